"""Explore machines: find the best configuration of a target for given networks.

A study (study.py) measures machines of a space (space.py). A sampler (sampler.py) chooses the machines, and workers
(pool.py) measure them (measure.py). Every figure is exact: the network is compiled for the machine and timed as in
`tilewright run`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tilewright import targets
from tilewright.errors import InputError, option
from tilewright.explore import bounds
from tilewright.explore.measure import Model, Subject, machine, sizes
from tilewright.explore.pool import InProcess, Pool, Processes
from tilewright.explore.sampler import SMALL, Grid, GuidedSampler, Sampler
from tilewright.explore.space import Space
from tilewright.explore.study import Study
from tilewright.explore.trial import BASE, PRUNED, REFUSED, Rule, Trial, dominates
from tilewright.model.shapes import Shapes
from tilewright.run import timing_model
from tilewright.targets import given

__all__ = ["Space", "Study", "Trial", "explore", "study_of"]

#: A callback(measured, total, text) after each trial; the first arguments are numbers of machines.
Progress = Callable[[int, int, str], None]


def study_of(
    models: Sequence[str | Path],
    target: str,
    space: Space,
    objectives: Sequence[str] = ("cycles",),
    *,
    overrides: dict[str, str] | None = None,
    rounding: str | None = None,
    timing: str | None = None,
    seed: int = 0,
    shapes: Shapes | None = None,
) -> Study:
    """Return a new study of networks on machines of a target.

    `overrides` are configuration keys for all machines, in addition to the fixed keys of the space. `shapes` maps ONNX
    inputs with open extents to their shapes; each model uses the shapes of its own inputs. Raises InputError if a
    model, a rule or an option is wrong, ModelError or UnsupportedError if a model cannot be loaded, and ConfigError if
    the base machine is illegal.
    """
    chosen = targets.get(target)
    if not models:
        raise InputError("explore", "no model is given", "give at least one .tflite or .onnx file")
    loaded = tuple(Model.of(path, shapes) for path in models)
    if unknown := set(shapes or ()).difference(*(dict(model.shapes) for model in loaded)):
        raise InputError(option("--shape", "shapes"), f"no model has an input '{min(unknown)}'", "check its name")
    if len({model.name for model in loaded}) < len(loaded):
        raise InputError("explore", "two models have the same file name", "rename one")
    for model in loaded:
        model.load()  # otherwise the error of a damaged model would be reported as one of the base machine
    fixed = {**space.fixed, **(overrides or {})}
    if twice := next((axis.key for axis in space.axes if axis.key in fixed), None):
        raise InputError(
            option("--set", "overrides"),
            f"{twice} varies in this study",
            "leave it out of the base machine, or out of the space",
        )
    config = chosen.config(space.config, fixed)
    given.refuse_unknown(option("--space"), type(config), [axis.key for axis in space.axes])
    for rule in space.rules:
        Rule(rule)
    timing = timing_model(chosen, timing, config)
    subject = Subject(target, loaded, config.to_dict(), rounding, timing, space.rules)
    return Study(subject, space, tuple(objectives), seed)


def explore(
    study: Study,
    *,
    trials: int | None = None,
    grid: bool = False,
    prune: bool = True,
    workers: int = 1,
    pool: Callable[[Subject], Pool] | None = None,
    progress: Progress | None = None,
) -> None:
    """Measure machines of a study until `trials` machines are measured, or until the space is exhausted.

    `grid` measures all points in order. Without `grid` and `trials`, this is also the default for a space of up to
    SMALL points. `prune` leaves out machines whose lower bounds are worse than a measured machine. `pool` creates the
    workers [default: `workers` processes]. Raises InputError if the base machine cannot run, or if it has no value for
    an objective.
    """
    whole = grid or (trials is None and study.space.size <= SMALL)
    if trials is None and not whole:
        reason = f"the space has {study.space.size:,} points, more than {SMALL}"
        raise InputError("explore", reason, f"give {option('--trials')}, or {option('--grid')} to measure all")
    sampler: Sampler = Grid(study) if whole else GuidedSampler(study)
    wanted = study.space.size if trials is None else trials
    make_pool = pool or (lambda subject: Processes(subject, workers) if workers > 1 else InProcess(subject))
    with make_pool(study.subject) as workshop:
        _search(study, sampler, workshop, wanted, prune, progress)


def _search(study: Study, sampler: Sampler, pool: Pool, wanted: int, prune: bool, progress: Progress | None) -> None:
    """Keep all workers busy until `wanted` machines are measured, or until the sampler has no more points."""
    busy = 0
    exhausted = False
    # The base machine is submitted first, but other machines do not wait for its result. A trial that ends earlier is
    # kept in `waiting`, because `_complete` compares the layers on the host with those of the base machine.
    waiting = list[Trial]()
    if study.base is None:
        pool.submit(BASE, {})
    while True:
        # The base machine keeps one worker busy until its result comes.
        while busy < pool.workers - (not study.base) and not exhausted:
            # Count machines in progress, too, so that the study ends with exactly `wanted` machines.
            if len(study.machines) + len(waiting) + busy >= wanted:
                break
            point = sampler.ask()
            if point is None:
                exhausted = True
                break
            trial = _without_running(study, point, prune)
            if trial is None:
                pool.submit(point, study.space.at(point))
                busy += 1
            else:
                study.add(trial)
                sampler.tell(trial)
        if study.base and not busy:
            return
        trial = pool.ended()
        if trial.point == BASE:
            _check_base(study, trial)
            study.add(trial)
        else:
            waiting.append(trial)
            busy -= 1
        while study.base and waiting:
            trial = _complete(study, study.base, waiting.pop(0))
            study.add(trial)
            sampler.tell(trial)
            if progress:
                progress(len(study.machines), min(wanted, study.space.size), f"{len(study.front())} on the front")


def _check_base(study: Study, base: Trial) -> None:
    """Raise InputError if the base machine cannot run, or has no value for an objective or a rule."""
    if not base.measured:
        raise InputError("the base machine", base.reason, "change its configuration")
    numbers = {name for name, value in base.values.items() if not isinstance(value, str)}
    if unknown := [name for name in study.objectives if name not in numbers]:
        reason = f"there is no '{unknown[0]}'"
        raise InputError(option("--objective", "objectives"), reason, f"choose of {', '.join(sorted(numbers))}")
    for rule in map(Rule, study.subject.rules):
        if names := sorted(rule.names - base.values.keys()):
            reason = f"'{rule.text}': there is no {names[0]}"
            raise InputError(option("--where"), reason, f"choose one of {', '.join(sorted(base.values))}")


def _complete(study: Study, base: Trial, trial: Trial) -> Trial:
    """Return a trial, refused if the host runs more layers than on the base machine, or if it lacks an objective."""
    if more := sum(len(set(nodes) - set(base.host[model])) for model, nodes in trial.host.items()):
        reason = f"the host would run {more} more layers than on the base machine"
        return replace(trial, status=REFUSED, reason=reason, causes=(), layers={}, host={})
    # For example, a machine that cannot be built has no value `area`.
    lacking = [name for name in study.objectives if trial.measured and name not in trial.values]
    return replace(trial, status=REFUSED, reason=f"the machine has no {lacking[0]}") if lacking else trial


def _without_running(study: Study, point: int, prune: bool) -> Trial | None:
    """Return the trial of a machine that is illegal, breaks a rule, or cannot reach the front; otherwise None."""
    keys = study.space.at(point)
    config = machine(study.subject, point, keys)
    if isinstance(config, Trial):
        return config
    base = study.base
    if base is None:
        return None
    # Another point may describe the same machine, for example if two keys only matter together.
    if same := study.machines.get(config.digest(), base if base.digest == config.digest() else None):
        return replace(same, point=point, set=keys, seconds=0.0)
    if not prune:
        return None
    measures = sizes(study.subject, config)
    bound = bounds.least(study.subject, study.objectives, config, measures, base.host)
    if not any(dominates(better.objectives(study.objectives), bound) for better in study.front()):
        return None
    shown = ", ".join(f"{name} >= {value:,.0f}" for name, value in zip(study.objectives, bound, strict=True))
    return Trial(
        point, keys, PRUNED, config.digest(), f"a measured machine is better than its bounds: {shown}", measures
    )
