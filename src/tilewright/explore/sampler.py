"""Samplers: they choose the machines that a study measures next.

A small space is measured whole, by `Grid`. A large one is searched by `Searched`: Optuna chooses the first machines,
then come neighbours of the front, which differ from a machine on it by one step in one key. Sizes of a machine act on
its time in steps and one by one, so that a front is mostly connected. docs/explore.md has figures.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from tilewright.errors import InputError
from tilewright.explore.space import Space
from tilewright.explore.study import Study
from tilewright.explore.trial import Trial

if TYPE_CHECKING:
    import optuna

#: Spaces of up to this many points are measured whole unless a number of trials is given.
SMALL = 256
#: Machines that Optuna chooses before neighbours of the front are measured: one in SPARSE points of the space, but no
#: fewer than FEWEST and no more than FIRST.
SPARSE, FEWEST, FIRST = 50, 5, 30
#: Optuna's choices that the study already has, before a random point is taken instead.
REPEATS = 20


class Sampler(Protocol):
    """Chooses points of a space. It never gives a point twice."""

    def ask(self) -> int | None:
        """Return the next point; None if there is none left."""

    def tell(self, trial: Trial) -> None:
        """Take note of a trial's result."""


class Grid:
    """All points of a space, in order."""

    def __init__(self, study: Study) -> None:
        self._points = (point for point in range(study.space.size) if point not in study.trials)

    def ask(self) -> int | None:
        return next(self._points, None)

    def tell(self, trial: Trial) -> None:
        pass


class Searched:
    """Points chosen by what earlier trials found; the study's seed makes the choice repeatable with one worker.

    Optuna's sampler NSGA-II chooses the first machines. Then neighbours of the front are measured in
    random order; while all of them are known, Optuna chooses again.
    """

    def __init__(self, study: Study) -> None:
        self._study, self._space = study, study.space
        self._random = random.Random(study.seed + len(study.trials))
        self._first = min(FIRST, max(FEWEST, study.space.size // SPARSE))
        self._asked: dict[int, optuna.Trial] = {}
        self._given = set(study.trials)
        self._optuna = _study(study)
        for trial in study.trials.values():
            if trial.point >= 0 and trial.measured:
                self._optuna.add_trial(_known(self._space, trial, study.objectives))

    def ask(self) -> int | None:
        if len(self._given - {-1}) >= self._space.size:
            return None
        point = self._neighbour() if len(self._study.machines) >= self._first else None
        point = self._chosen() if point is None else point
        self._given.add(point)
        return point

    def tell(self, trial: Trial) -> None:
        import optuna

        asked = self._asked.pop(trial.point, None)
        if asked is None:
            if trial.measured:
                self._optuna.add_trial(_known(self._space, trial, self._study.objectives))
        elif trial.measured:
            self._optuna.tell(asked, trial.objectives(self._study.objectives))
        else:
            self._optuna.tell(asked, state=optuna.trial.TrialState.FAIL)

    def _neighbour(self) -> int | None:
        """Return a random point next to the front that is not known yet; None if all are known."""
        found = [point for point in self._beside() if point not in self._given]
        return self._random.choice(found) if found else None

    def _beside(self) -> Iterator[int]:
        for trial in self._study.front():
            yield from self._space.neighbours(trial.point)

    def _chosen(self) -> int:
        """Return a point that Optuna chooses; a random one after many choices that are already known."""
        import optuna

        for _ in range(REPEATS):
            asked = self._optuna.ask(_distributions(self._space))
            point = self._space.point(
                [_index(axis.ordered, axis.values, asked.params[axis.key]) for axis in self._space.axes]
            )
            if point not in self._given:
                self._asked[point] = asked
                return point
            known = self._study.trials.get(point)
            if known and known.measured:
                self._optuna.tell(asked, known.objectives(self._study.objectives))
            else:
                self._optuna.tell(asked, state=optuna.trial.TrialState.FAIL)
        while (point := self._random.randrange(self._space.size)) in self._given:
            pass
        return point


def _index(ordered: bool, values: tuple[str, ...], chosen: Any) -> int:
    return int(chosen) if ordered else values.index(chosen)


def _distributions(space: Space) -> dict[str, optuna.distributions.BaseDistribution]:
    from optuna.distributions import CategoricalDistribution, IntDistribution

    return {
        axis.key: IntDistribution(0, len(axis.values) - 1) if axis.ordered else CategoricalDistribution(axis.values)
        for axis in space.axes
    }


def _study(study: Study) -> optuna.Study:
    try:
        import optuna
    except ImportError:
        remedy = "pip install 'tilewright[explore]', or measure the whole space with --grid"
        raise InputError("explore", "a search needs Optuna", remedy) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.NSGAIISampler(seed=study.seed)
    return optuna.create_study(directions=["minimize"] * len(study.objectives), sampler=sampler)


def _known(space: Space, trial: Trial, objectives: tuple[str, ...]) -> optuna.trial.FrozenTrial:
    """Return a measured machine as a finished trial of Optuna's."""
    import optuna

    indices = space.indices(trial.point)
    params = {axis.key: i if axis.ordered else axis.values[i] for axis, i in zip(space.axes, indices, strict=True)}
    return optuna.trial.create_trial(
        params=params, distributions=_distributions(space), values=trial.objectives(objectives)
    )
