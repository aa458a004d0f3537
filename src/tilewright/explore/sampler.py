"""Samplers, which choose the next machines of a study.

`Grid` measures a small space whole. `GuidedSampler` searches a large one. The search begins with a few machines between
the smallest and the largest. After these, it fits a model to the measured machines and chooses the point with the best
prediction. Later, every second point is a neighbour of the front: the neighbour differs from a machine on the front by
one step in one key. Neighbours are good candidates, because most machines on a front differ by single steps.
docs/explore.md has figures.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError
from tilewright.explore.space import Axis, Space
from tilewright.explore.study import Study
from tilewright.explore.trial import Trial
from tilewright.install import hint

if TYPE_CHECKING:
    import optuna

#: A space of up to this many points is measured completely, if no number of trials is given.
SMALL = 256
#: The positions of the first machines' sizes between the smallest (0) and the largest (1). The fit needs at least this
#: many machines.
FIRST = (0.0, 1.0, 0.5, 0.25, 0.75)
#: The number of measured machines after which every second point is a neighbour of the front.
FEW = 30
#: The number of candidate points for one guess, and the smallest value of an objective in the fit.
GUESSES = 5000
TINY = 1e-9
#: The number of already measured points that Optuna may choose before a random point is used.
REPEATS = 20
#: Ridge penalties of the fit: the weights of the squared constant, slope and step, relative to squared errors.
CONSTANT = 1e-9
SLOPE = 1e-4
STEP = 1e-2


class Sampler(Protocol):
    """A sampler chooses points of a space, each point at most once."""

    def ask(self) -> int | None:
        """Return the next point, or None if no point is left."""

    def tell(self, trial: Trial) -> None:
        """Record a trial's result."""


class Grid:
    """All points of a space, in order."""

    def __init__(self, study: Study) -> None:
        self._points = (point for point in range(study.space.size) if point not in study.trials)

    def ask(self) -> int | None:
        return next(self._points, None)

    def tell(self, trial: Trial) -> None:
        pass


class GuidedSampler:
    """A sampler that learns from earlier trials. With one worker, the study's seed makes the choice repeatable.

    If the fit predicts no machine that beats the front, and all neighbours of the front are measured, Optuna's sampler
    NSGA-II chooses.
    """

    def __init__(self, study: Study) -> None:
        self._study = study
        self._space = study.space
        self._random = random.Random(study.seed + len(study.trials))
        self._points = np.random.default_rng(study.seed + len(study.trials))
        self._first = list(FIRST)
        self._turn = 0
        self._asked: dict[int, optuna.Trial] = {}
        self._given = set(study.trials)
        self._optuna = _study(study)
        for trial in study.trials.values():
            if trial.point >= 0 and trial.measured:
                self._optuna.add_trial(_finished(self._space, trial, study.objectives))

    def ask(self) -> int | None:
        if len(self._given - {-1}) >= self._space.size:
            return None
        point = next(point for way in self._ways() if (point := way()) is not None)
        self._given.add(point)
        return point

    def _ways(self) -> Iterator[Callable[[], int | None]]:
        """Yield methods that choose the next point, the best method first. The last method always finds a point."""
        yield self._between
        measured = len(self._study.machines)
        if measured >= len(FIRST):
            self._turn += 1
            ways = [self._guess, self._neighbour]
            yield from ways if measured < FEW or self._turn % 2 else ways[::-1]
        yield self._chosen

    def tell(self, trial: Trial) -> None:
        asked = self._asked.pop(trial.point, None)
        if asked is not None:
            self._answer(asked, trial)
        elif trial.measured:
            self._optuna.add_trial(_finished(self._space, trial, self._study.objectives))

    def _answer(self, asked: optuna.Trial, trial: Trial | None) -> None:
        """Report to Optuna the trial of a point that Optuna chose: a measured machine's objectives, or a failure."""
        import optuna

        if trial and trial.measured:
            self._optuna.tell(asked, trial.objectives(self._study.objectives))
        else:
            self._optuna.tell(asked, state=optuna.trial.TrialState.FAIL)

    def _between(self) -> int | None:
        """Return the next of the FIRST points, with random values for unordered keys, or None if no point is left."""
        while self._first:
            part = self._first.pop(0)
            axes = self._space.axes
            sizes = [round(part * (len(axis.values) - 1)) for axis in axes]
            words = [self._random.randrange(len(axis.values)) for axis in axes]
            point = self._space.point([sizes[i] if axis.ordered else words[i] for i, axis in enumerate(axes)])
            if point not in self._given:
                return point
        return None

    def _guess(self) -> int | None:
        """Return the most promising of many unmeasured points, or None if no point can beat the front by the fit."""
        study = self._study
        size = self._space.size
        looked = np.arange(size) if size <= GUESSES else self._points.integers(size, size=GUESSES)
        left = np.setdiff1d(looked, np.fromiter(self._given, np.int64))
        if not len(left):
            return None
        front = np.array([trial.objectives(study.objectives) for trial in study.front()])
        measured = np.array([trial.point for trial in study.measured])
        guesses = guessed(self._space, measured, np.log(np.maximum(study.points(), TINY)), left)
        gained = gains(np.log(np.maximum(front, TINY)), guesses)
        best = int(np.argmax(gained))
        return int(left[best]) if gained[best] > 0 else None

    def _neighbour(self) -> int | None:
        beside = [point for trial in self._study.front() for point in self._space.neighbours(trial.point)]
        unknown = [point for point in beside if point not in self._given]
        return self._random.choice(unknown) if unknown else None

    def _chosen(self) -> int:
        """Return a point that Optuna chooses, or a random point if Optuna repeatedly chooses measured points."""
        for _ in range(REPEATS):
            asked = self._optuna.ask(_distributions(self._space))
            point = self._space.point([asked.params[axis.key] for axis in self._space.axes])
            if point not in self._given:
                self._asked[point] = asked
                return point
            self._answer(asked, self._study.trials.get(point))
        while (point := self._random.randrange(self._space.size)) in self._given:
            pass
        return point


def guessed(space: Space, points: Array, values: Array, unmeasured: Array) -> Array:
    """Return the predicted logarithms of the objectives at the points `unmeasured` int64 [m]: float [m, objectives].

    `values` float [n, objectives] are the logarithms at the measured `points` int64 [n]. A changed key mostly
    multiplies a machine's cycles, bytes or cells by a factor that does not depend on the other keys. Therefore the fit
    is a model of the objective's logarithm, with a sum of terms for each key: a slope, and a step at each value. Ridge
    regression keeps a step small if the measured machines give no evidence for the step.
    """
    tables, costs = zip(*map(_table, space.axes), strict=True)
    parts = [table[index] for table, index in zip(tables, _indices(space, points), strict=True)]
    design = np.concatenate([np.ones((len(points), 1)), *parts], axis=1)
    weight = np.diag(np.concatenate([[CONSTANT], *costs]))
    constant, *factors = np.split(
        np.linalg.solve(design.T @ design + weight, design.T @ values), np.cumsum([1, *map(len, costs[:-1])])
    )
    predicted = np.repeat(constant, len(unmeasured), axis=0)
    for table, factor, index in zip(tables, factors, _indices(space, unmeasured), strict=True):
        predicted += (table @ factor)[index]
    return predicted


def _table(axis: Axis) -> tuple[Array, Array]:
    """Return the terms of a key, float [values, terms], and each term's penalty in the fit, float [terms]."""
    count = len(axis.values)
    if not axis.ordered:
        return np.eye(count), np.full(count, STEP)
    slope = np.arange(count)[:, None] / max(1, count - 1)
    return np.concatenate([slope, np.tri(count)[:, 1:]], axis=1), np.array([SLOPE, *[STEP] * (count - 1)])


def _indices(space: Space, points: Array) -> Iterator[Array]:
    """For each axis in order, yield the index of each point's value on this axis, int64 [n]."""
    size = space.size
    for axis in space.axes:
        size //= len(axis.values)
        yield points // size % len(axis.values)


def gains(front: Array, guesses: Array) -> Array:
    """Return the gain of each guess over the front, float [m]. A guess with a positive gain is not dominated.

    The gain over one machine is the largest difference in an objective (a logarithm). The gain over the front is the
    smallest of these gains.
    """
    least = np.full(len(guesses), np.inf)
    columns = np.ascontiguousarray(guesses.T)
    for machine in front:
        np.minimum(least, (machine[:, None] - columns).max(axis=0), out=least)
    return least


def _distributions(space: Space) -> dict[str, optuna.distributions.BaseDistribution]:
    from optuna.distributions import CategoricalDistribution, IntDistribution

    sizes = {axis: len(axis.values) for axis in space.axes}
    return {
        axis.key: IntDistribution(0, size - 1) if axis.ordered else CategoricalDistribution(range(size))
        for axis, size in sizes.items()
    }


def _study(study: Study) -> optuna.Study:
    try:
        import optuna
    except ImportError:
        remedy = f"{hint('explore')}, or measure the whole space"
        raise InputError("explore", "a search needs Optuna", remedy) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.NSGAIISampler(seed=study.seed)
    return optuna.create_study(directions=["minimize"] * len(study.objectives), sampler=sampler)


def _finished(space: Space, trial: Trial, objectives: tuple[str, ...]) -> optuna.trial.FrozenTrial:
    import optuna

    distributions = _distributions(space)
    params = dict(zip(distributions, space.indices(trial.point), strict=True))
    return optuna.trial.create_trial(params=params, distributions=distributions, values=trial.objectives(objectives))
