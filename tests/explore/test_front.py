"""Fronts and hypervolumes against brute force."""

from __future__ import annotations

import numpy as np
import pytest

from tests.explore.pareto import front, hypervolume
from tilewright.explore.trial import dominates


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(10))
def test_front(objectives: int, seed: int) -> None:
    points = np.random.default_rng(seed).integers(0, 6, (40, objectives)).astype(float)
    found = front(points)
    best = {tuple(p) for p in points if not any(dominates(q, p) for q in points)}
    assert len(found) == len(best)
    assert {tuple(points[i]) for i in found} == best


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(6))
def test_hypervolume_is_the_number_of_dominated_cells(objectives: int, seed: int) -> None:
    size = 5
    points = np.random.default_rng(seed).integers(0, size + 1, (7, objectives)).astype(float)
    cells = np.stack(np.meshgrid(*[np.arange(size)] * objectives), axis=-1).reshape(-1, objectives)
    covered = sum(any((point <= cell).all() for point in points) for cell in cells)
    assert hypervolume(points, np.full(objectives, float(size))) == pytest.approx(covered)


def test_nothing_is_dominated_beyond_the_worst_point() -> None:
    assert hypervolume(np.array([[3.0, 1.0]]), np.array([3.0, 5.0])) == 0
    assert hypervolume(np.zeros((0, 2)), np.array([3.0, 5.0])) == 0
