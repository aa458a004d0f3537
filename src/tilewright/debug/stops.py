"""Break points and watch points: at which positions of a launch a session stops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.debug.conditions import NAMES, Condition
from tilewright.debug.launches import Opened
from tilewright.debug.places import elements, place, values
from tilewright.debug.touches import touching
from tilewright.sim.steps import WRITE


@dataclass(frozen=True)
class Point:
    """A break point (`step` or `condition`), or a watch point (`watched`, perhaps with a condition).

    A break point stops before an instruction, a watch point after one that writes the watched place.
    """

    text: str
    launch: str = ""
    step: int | None = None
    watched: str = ""
    condition: Condition | None = None


class Search:
    """Finds the next position at which a point stops a launch."""

    def __init__(self, opened: Opened, points: dict[int, Point]) -> None:
        """Prepare the points of a launch. Raises InputError if a watched place is not in this launch."""
        self._opened = opened
        self._at: dict[int, list[int]] = {}
        self._conditions: list[tuple[int, Condition]] = []
        self._watched = {number: point.condition for number, point in points.items() if point.watched}
        for number, point in points.items():
            if point.step is not None:
                if point.launch == opened.walk.name:
                    self._at.setdefault(int(opened.position_of[point.step]), []).append(number)
            elif point.watched:
                written = np.flatnonzero(written_by(opened, point.watched))
                for position in (opened.position_of[written] + 1).tolist():
                    self._at.setdefault(position, []).append(number)
            elif point.condition:
                self._conditions.append((number, point.condition))

    def next(self, position: int, forward: bool) -> tuple[int, int | None]:
        """Return the next position with a stop, and the number of its point; None: the launch's end or start."""
        edge = self._opened.last if forward else 0
        for at in range(position + 1, edge + 1) if forward else range(position - 1, -1, -1):
            for number in self._at.get(at, ()):
                condition = self._watched.get(number)
                if condition is None or self._holds(condition, at, max(at - 1, 0)):
                    return at, number
            for number, condition in self._conditions:
                if at < len(self._opened.history.sequence) and self._holds(condition, at, at):
                    return at, number
        return edge, None

    def _holds(self, condition: Condition, position: int, shown: int) -> bool:
        """Evaluate a condition in the state at `position`; names describe the instruction at position `shown`."""
        opened, walk = self._opened, self._opened.walk
        step = int(opened.history.sequence[shown])
        return condition.holds(
            lambda name: NAMES[name](walk, step, shown),
            lambda text: values(walk, opened.history.move(position), place(walk, text)).tolist(),
        )


def written_by(opened: Opened, text: str) -> Any:
    """Return whether each instruction writes a place: bool [n]. Raises InputError if there is no such place."""
    walk = opened.walk
    return touching(walk.table, elements(walk, place(walk, text)), WRITE)
