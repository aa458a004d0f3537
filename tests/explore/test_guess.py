"""Guesses of objectives: exact where keys multiply, and gains as their definition says."""

from __future__ import annotations

import random

import numpy as np

from tilewright.explore.sampler import gains, guessed
from tilewright.explore.space import Axis, Space
from tilewright.explore.trial import dominates

SPACE = Space((Axis.of("a", "1..5"), Axis.of("b", "x, y, z"), Axis.of("c", "3..6"), Axis.of("d", "7")))


def test_keys_that_multiply_are_found() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    factors = [rng.uniform(-1, 1, (len(axis.values), 2)) for axis in SPACE.axes]
    points = np.arange(SPACE.size)
    values = np.array(
        [sum(table[i] for table, i in zip(factors, SPACE.indices(int(point)), strict=True)) for point in points]
    )
    known = np.sort(rng.permutation(points)[:40])
    found = guessed(SPACE, known, values[known], points)
    assert np.abs(found - values).max() < 0.05
    assert np.abs(guessed(SPACE, known, values[known] * 0, points)).max() < 1e-6


def test_a_slope_goes_on() -> None:
    """The largest value of `a` is not measured: its guess goes on as the slope of the others does."""
    points = np.array([SPACE.point((a, 0, 0, 0)) for a in range(5)])
    found = guessed(SPACE, points[:3], np.arange(3.0)[:, None], points)
    assert np.abs(found[:, 0] - np.arange(5)).max() < 0.2


def test_gains() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    front, guesses = rng.uniform(size=(7, 3)), rng.uniform(size=(50, 3))
    found = gains(front, guesses)
    for gain, guess in zip(found.tolist(), guesses, strict=True):
        assert gain == min(max(a - b for a, b in zip(machine, guess, strict=True)) for machine in front)
        assert (gain <= 0) == any(dominates(machine, guess) for machine in front)
