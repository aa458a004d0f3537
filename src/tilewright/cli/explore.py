"""Commands that compare many machines: explore, sweep."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from tilewright.cli import inputs, options
from tilewright.cli.options import say, say_json, shared, taken
from tilewright.errors import InputError

if TYPE_CHECKING:
    from tilewright.explore import Study

#: The default objectives of a study.
OBJECTIVES = "cycles,on_chip_kib"
FOLDER = click.Path(file_okay=False, path_type=Path)


@dataclass(frozen=True)
class Exploration:
    """The options that explore and sweep share."""

    models: tuple[str, ...] = shared(click.argument("models", nargs=-1, metavar="MODEL..."))
    shapes: dict[str, tuple[int, ...]] = shared(inputs.shapes)
    target: str | None = shared(options.of_target("See `tilewright targets`."))
    config: str | None = shared(options.config)
    overrides: dict[str, str] = shared(options.overrides)
    rounding: str | None = shared(options.rounding)
    timing: str | None = shared(options.timing)
    space: str | None = taken(
        "--space", metavar="FILE.json|PRESET", help="The configuration keys that vary, and their values."
    )
    vary: dict[str, str] = taken(
        "--vary",
        multiple=True,
        metavar="KEY=VALUES",
        callback=options.pairs,
        help='Vary a key: "13..17", "64..1024 * 2" or "upstream, fused".',
    )
    where: tuple[str, ...] = taken(
        "--where", multiple=True, metavar="RULE", help='Leave machines out, as in "on_chip_kib <= 256".'
    )
    objective: tuple[str, ...] = taken(
        "--objective",
        default=(OBJECTIVES,),
        multiple=True,
        show_default=OBJECTIVES,
        metavar="NAME,...",
        help="What to make small: results or sizes. May be given several times.",
    )
    output: Path | None = taken("-o", "--output", type=FOLDER, metavar="STUDY", help="Keep the study in this folder.")
    resume: Path | None = taken("--resume", type=FOLDER, metavar="STUDY", help="Go on with a kept study.")
    workers: int = taken("--workers", type=click.IntRange(1, 1024), default=1, show_default=True, help="Processes.")
    cluster: str | None = taken(
        "--cluster",
        metavar="WHERE",
        help="Measure on a Dask cluster: tcp://HOST:PORT, tls://..., local:N, slurm:N or kubernetes:N.",
    )
    seed: int = taken("--seed", type=int, default=0, show_default=True, help="Of the search.")
    csv: Path | None = shared(
        options.new_file("--csv", metavar="FILE", about="Write all trials as CSV.", suffixes=(".csv",))
    )
    parquet: Path | None = shared(
        options.new_file(
            "--parquet",
            metavar="FILE",
            about="Write all trials as Parquet (extra `explore`).",
            suffixes=(".parquet", ".pq"),
        )
    )
    html: Path | None = shared(
        options.new_file(
            "--html", metavar="FILE", about="Write the study as a page, one HTML file.", suffixes=options.HTML
        )
    )
    as_json: bool = shared(options.as_json)

    def run(self, trials: int | None, grid: bool, prune: bool) -> Study:
        """Run the study and write the requested files."""
        from tilewright.explore import explore, results

        if self.parquet:
            results.require_parquet()
        pool = None
        if self.cluster:
            from tilewright.explore import cluster

            cluster.opener(self.cluster)  # a wrong option raises its error here, before anything is measured
            pool = partial(cluster.Cluster, where=self.cluster)
        study = self._study()
        with options.progress_bar() as bar:
            progress = bar and (lambda done, total, text: bar(done, total or 0, text))
            explore(study, trials=trials, grid=grid, prune=prune, workers=self.workers, pool=pool, progress=progress)
        if self.csv:
            results.write_csv(study, self.csv)
        if self.parquet:
            results.write_parquet(study, self.parquet)
        if self.html:
            from tilewright.explore import page

            page.write(study, self.html)
        return study

    def _study(self) -> Study:
        from tilewright.explore import Space, Study, study_of

        if self.resume:
            if self.models or self.shapes or self.target or self.space or self.vary:
                raise InputError("--resume", "a kept study has its own models and space", "give --resume alone")
            return Study.open(self.resume)
        if self.target is None:
            raise InputError("--target", "is missing", "give -t TARGET, or --resume STUDY")
        data = _space(self.space, self.target) if self.space else {}
        space = Space.from_json(data, self.space or "--vary", self.vary, self.where)
        if self.config is not None:
            space = replace(space, config=self.config)
        given = (name.strip() for names in self.objective for name in names.split(","))
        names = list(dict.fromkeys(filter(None, given)))
        study = study_of(
            self.models,
            self.target,
            space,
            names,
            overrides=self.overrides,
            rounding=self.rounding,
            timing=self.timing,
            seed=self.seed,
            shapes=self.shapes,
        )
        if self.output:
            study.keep(self.output)
        return study


def _space(name: str, target: str) -> dict[str, Any]:
    from tilewright import fields, targets
    from tilewright.explore.space import FORM, Spaces

    if name.endswith(".json"):
        return fields.read(name, InputError, FORM)
    machine = targets.get(target)
    spaces = machine.spaces if isinstance(machine, Spaces) else {}
    if name not in spaces:
        remedy = f"choose one of {', '.join(spaces)}, or give a .json file" if spaces else "give a .json file"
        raise InputError("--space", f"{target} has no space '{name}'", remedy)
    return dict(spaces[name])


exploration = options.bundle("exploration", Exploration)


@click.command()
@exploration
@click.option("--trials", type=click.IntRange(1), metavar="N", help="Measure N machines, chosen by a search.")
@click.option("--grid", is_flag=True, help="Measure the whole space.")
@click.option(
    "--prune/--no-prune", default=True, help="Leave out machines whose lower bounds are worse than the front."
)
@click.option(
    "--check", is_flag=True, help="Run each machine of the front with values: same cycles, no mismatch, no hazard."
)
def explore(exploration: Exploration, trials: int | None, grid: bool, prune: bool, check: bool) -> int:
    """Search for the best machines for some networks.

    Prints the Pareto front: the machines that no other machine beats in all objectives. Each figure is exact. A space
    of up to 256 points is measured whole; for a larger one, give --trials or --grid. Exit status 1 if --check finds a
    difference.
    """
    began = perf_counter()
    study = exploration.run(trials, grid, prune)
    seconds = perf_counter() - began
    wrong = _checked(study) if check else []
    folder = exploration.resume or exploration.output
    files = list[Path]()
    if folder:
        from tilewright.explore import results

        files = results.write_front(study, folder / "front")
    if exploration.as_json:
        shown = {"files": [str(file) for file in files]} if folder else {}
        checks = {"checked": len(study.front()), "differences": wrong} if check else {}
        say_json({**study.to_json(), "seconds": seconds, **shown, **checks})
        return int(bool(wrong))
    _show(study, seconds, study.front())
    if check:
        say(f"{len(study.front())} machines of the front run again with values: {len(wrong)} differences")
        for text in wrong:
            say(f"  {text}")
    if folder and files:
        _advise(study, files[0])
    return int(bool(wrong))


def _checked(study: Study) -> list[str]:
    from tilewright.explore.measure import differences

    front = study.front()
    differing = list[str]()
    with options.progress_bar() as bar:
        for done, trial in enumerate(front):
            if bar:
                bar(done, len(front), f"checking machine {trial.point}")
            differing += [f"machine {trial.point}: {text}" for text in differences(study.subject, trial)]
    return differing


@click.command()
@exploration
def sweep(exploration: Exploration) -> None:
    """Measure all machines of a space, and print them as a table."""
    began = perf_counter()
    study = exploration.run(None, True, False)
    seconds = perf_counter() - began
    if exploration.as_json:
        rows = [trial.to_json() for trial in sorted(study.trials.values(), key=lambda trial: trial.point)]
        say_json({**study.to_json(), "seconds": seconds, "rows": rows})
        return
    _show(study, seconds, sorted(study.measured, key=lambda trial: trial.point))


def _show(study: Study, seconds: float, shown: list[Any]) -> None:
    from tilewright.report.render import console
    from tilewright.report.table import Grid

    to = console()
    keys = [axis.key for axis in study.space.axes if len(axis.values) > 1]
    results = [*study.objectives, *(name for name in ("utilization",) if name not in study.objectives)]
    front = {trial.point for trial in study.front()}
    estimates = study.estimates
    titles = [f"{name} (estimate)" if name in estimates else name for name in results]
    grid = Grid(("machine", *keys, *titles, "front"), {*keys, *titles}, ("utilization",))
    for trial in shown:
        cells = [_cell(name, trial.values[name]) for name in results]
        grid.add_row(trial.point, *(trial.set[key] for key in keys), *cells, "*" if trial.point in front else "")
    base = study.base
    if base:
        grid.add_section()
        setting = [str(study.subject.config.get(key, base.values.get(key, ""))) for key in keys]
        grid.add_row("base", *setting, *(_cell(name, base.values[name]) for name in results), "")
    to.print(grid)
    said = study.to_json()
    to.print(
        f"{said['trials']} of {said['points']:,} machines measured in {seconds:.1f} s, {said['pruned']} left out by"
        f" their bounds, {said['excluded']} by --where, {said['refused']} refused",
        soft_wrap=True,
    )
    for rule, count in said["rules"].items():
        to.print(f"  refused {count}: {rule}", soft_wrap=True)


def _cell(name: str, value: int | float | str) -> str:
    if name == "utilization":
        return f"{100 * float(value):.1f} %"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}" if isinstance(value, float) else value


def _advise(study: Study, best: Path) -> None:
    model = study.subject.models[0]
    target = study.subject.target
    spelt = (f"{name}={','.join(map(str, shape))}" for name, shape in model.shapes)
    shapes = "".join(f" --shape {shlex.quote(text)}" for text in spelt)
    chosen = f"{shlex.quote(model.path)}{shapes} -t {target} -c {shlex.quote(str(best))}"
    say(f"the fastest: {best}")
    say(f"  tilewright run {chosen}")
    from tilewright import targets
    from tilewright.targets.gateware import Gateware

    if isinstance(targets.get(target), Gateware):
        say(f"  tilewright compile {chosen} -o best.twp && tilewright cosim best.twp")
