"""Samplers, which choose the next machines of a study.

`Grid` chooses all points of a small space. `GuidedSampler` searches a large space: it begins with a few machines
between the smallest and the largest. Then it fits a model to the measured machines, and chooses the point with the best
prediction. Later, every second point is a neighbour of the front: a point that differs from a machine on the front by
one step in one key. Neighbours are good candidates, because most machines on a front differ by single steps (see the
figures in docs/explore.md).
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
#: The first machines of a search: 0 has the smallest value of each key, 1 has the largest value. The fit needs at least
#: len(FIRST) measured machines.
FIRST = (0.0, 1.0, 0.5, 0.25, 0.75)
#: After this number of measured machines, every second point is a neighbour of the front.
FEW = 30
#: The number of random points for which the fit predicts objectives.
GUESSES = 5000
#: Smaller objectives are replaced by this value before their logarithm is taken.
TINY = 1e-9
#: If Optuna chooses a known point this many times, a random point is used instead.
REPEATS = 20
#: Ridge penalties of the fit: the weights of a squared constant, slope or step relative to a squared error.
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
    """A sampler that chooses all points of a space in order."""

    def __init__(self, study: Study) -> None:
        self._points = (point for point in range(study.space.size) if point not in study.trials)

    def ask(self) -> int | None:
        return next(self._points, None)

    def tell(self, trial: Trial) -> None:
        pass


class GuidedSampler:
    """A sampler that learns from earlier trials. With one worker, the study's seed makes the choice repeatable.

    Optuna's sampler NSGA-II chooses a point if the fit predicts no machine that beats the front, and if all neighbours
    of the front are measured.
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
        """Yield the methods that choose the next point, in order of preference. The last one always finds a point."""
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
        """Report the objectives (or a failure) of a point to Optuna, which had chosen the point."""
        import optuna

        if trial and trial.measured:
            self._optuna.tell(asked, trial.objectives(self._study.objectives))
        else:
            self._optuna.tell(asked, state=optuna.trial.TrialState.FAIL)

    def _between(self) -> int | None:
        """Return the next of the FIRST points, or None after the last one. Unordered keys get random values."""
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
        # By the fit, a point without a gain cannot beat the front.
        return int(left[best]) if gained[best] > 0 else None

    def _neighbour(self) -> int | None:
        beside = [point for trial in self._study.front() for point in self._space.neighbours(trial.point)]
        unknown = [point for point in beside if point not in self._given]
        return self._random.choice(unknown) if unknown else None

    def _chosen(self) -> int:
        """Return a new point from Optuna, or a random point if Optuna only chooses known points."""
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
    """Predict the logarithms of the objectives, float [m, objectives], at the points `unmeasured`, int64 [m].

    `values`, float [n, objectives], are the logarithms at the measured `points`, int64 [n]. A changed key mostly
    multiplies the cycles, bytes or cells of a machine by a factor that does not depend on the other keys. Therefore the
    logarithm of an objective is modelled as a sum of terms for each key: a slope, and a step at each value. Ridge
    regression keeps a step small if the measured machines give no evidence for the step.
    """
    tables, costs = zip(*map(_table, space.axes), strict=True)
    parts = [table[index] for table, index in zip(tables, _indices(space, points), strict=True)]
    design = np.concatenate([np.ones((len(points), 1)), *parts], axis=1)
    weight = np.diag(np.concatenate([[CONSTANT], *costs]))
    # The normal equations of ridge regression.
    constant, *factors = np.split(
        np.linalg.solve(design.T @ design + weight, design.T @ values), np.cumsum([1, *map(len, costs[:-1])])
    )
    predicted = np.repeat(constant, len(unmeasured), axis=0)
    for table, factor, index in zip(tables, factors, _indices(space, unmeasured), strict=True):
        predicted += (table @ factor)[index]
    return predicted


def _table(axis: Axis) -> tuple[Array, Array]:
    """Return the model's terms for a key, float [values, terms], and their ridge penalties, float [terms]."""
    count = len(axis.values)
    if not axis.ordered:
        return np.eye(count), np.full(count, STEP)
    slope = np.arange(count)[:, None] / max(1, count - 1)
    return np.concatenate([slope, np.tri(count)[:, 1:]], axis=1), np.array([SLOPE, *[STEP] * (count - 1)])


def _indices(space: Space, points: Array) -> Iterator[Array]:
    size = space.size
    for axis in space.axes:
        size //= len(axis.values)
        yield points // size % len(axis.values)


def gains(front: Array, guesses: Array) -> Array:
    """Return the gain of each predicted point over the front, float [m]. A positive gain means: not dominated."""
    least = np.full(len(guesses), np.inf)
    columns = np.ascontiguousarray(guesses.T)
    # The gain of a point over one machine is its largest improvement of an objective, as a logarithm. The gain over the
    # front is the smallest of these gains.
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
