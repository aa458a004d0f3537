"""Guesses the objectives of machines that are not measured yet, from those that are.

A key of a machine mostly multiplies its cycles, bytes or cells by some factor, whatever the other keys are. So the
logarithm of an objective is fitted as a sum with a term for each key: a slope, and a step at each of its values. The
fit leaves steps small that the measured machines do not show (ridge regression).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilewright.array import Array
from tilewright.explore.space import Axis, Space

#: What the constant, a slope and a step cost in the fit, squared, beside the squared errors of logarithms.
CONSTANT, SLOPE, STEP = 1e-9, 1e-4, 1e-2


def guessed(space: Space, points: Array, values: Array, others: Array) -> Array:
    """Return a guess of the logarithms of objectives at points `others` int64 [m]: float [m, objectives].

    `values` float [n, objectives] are the logarithms at the measured `points` int64 [n].
    """
    tables, costs = zip(*map(_table, space.axes), strict=True)
    parts = [table[index] for table, index in zip(tables, _indices(space, points), strict=True)]
    known = np.concatenate([np.ones((len(points), 1)), *parts], axis=1)
    weight = np.diag(np.concatenate([[CONSTANT], *costs]))
    constant, *factors = np.split(
        np.linalg.solve(known.T @ known + weight, known.T @ values), np.cumsum([1, *map(len, costs[:-1])])
    )
    found = np.repeat(constant, len(others), axis=0)
    for table, own, index in zip(tables, factors, _indices(space, others), strict=True):
        found += (table @ own)[index]
    return found


def _table(axis: Axis) -> tuple[Array, Array]:
    """Return the terms of a key: float [values, terms], and what each costs, float [terms]."""
    count = len(axis.values)
    if not axis.ordered:
        return np.eye(count), np.full(count, STEP)
    slope = np.arange(count)[:, None] / max(1, count - 1)
    return np.concatenate([slope, np.tri(count)[:, 1:]], axis=1), np.array([SLOPE, *[STEP] * (count - 1)])


def _indices(space: Space, points: Array) -> Iterator[Array]:
    """Yield the index of each point's value on each axis, int64 [n], the first axis first."""
    size = space.size
    for axis in space.axes:
        size //= len(axis.values)
        yield points // size % len(axis.values)


def gains(front: Array, guesses: Array) -> Array:
    """Return by how much each guess is better than every machine of the front in some objective: float [m].

    That is the least, over the machines of the front, of the largest difference in an objective; all are logarithms.
    """
    found, columns = np.full(len(guesses), np.inf), np.ascontiguousarray(guesses.T)
    for machine in front:
        np.minimum(found, (machine[:, None] - columns).max(axis=0), out=found)
    return found
