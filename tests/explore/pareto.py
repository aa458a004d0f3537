"""Pareto fronts of points whose objectives are all to be as small as possible, and the volume that they dominate."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array


def front(points: Array) -> Array:
    """Return the indices of the points (float [n, objectives]) that no other dominates, in ascending order.

    Of equal points, the first is kept.
    """
    order = np.lexsort(points.T[::-1])
    kept: list[int] = []
    for index in order.tolist():
        if not kept or not (points[kept] <= points[index]).all(axis=1).any():
            kept.append(index)
    return np.sort(np.array(kept, np.int64))


def hypervolume(points: Array, worst: Array) -> float:
    """Return the volume that the points (float [n, objectives]) dominate, up to the point `worst` (float [objectives]).

    The last objective is cut into slices, each a problem with one objective less. The time grows with n to the power
    of the number of objectives, which suits fronts of some hundred points in up to four objectives.
    """
    inside = points[(points < worst).all(axis=1)]
    if not len(inside):
        return 0.0
    inside = inside[front(inside)]
    if inside.shape[1] == 1:
        return float(worst[0] - inside[:, 0].min())
    inside = inside[np.argsort(inside[:, -1], kind="stable")]
    edges = np.append(inside[1:, -1], worst[-1])
    total = 0.0
    for count, (height, below) in enumerate(zip(edges, inside[:, -1], strict=True), start=1):
        if height > below:
            total += float(height - below) * hypervolume(inside[:count, :-1], worst[:-1])
    return total
