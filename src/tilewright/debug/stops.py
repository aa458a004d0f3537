"""Break points and watch points: the positions of a launch at which a session stops.

The conditions of break points are small expressions over the next instruction and the values in memories:

layer == "conv2" and unit == "compute" and n > 100
acc[37, 0, 5] > 1000 or dram.out[3] != 0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.debug.launches import OpenLaunch
from tilewright.debug.places import elements, place, touching, values
from tilewright.errors import InputError
from tilewright.expressions import BITS, LONGEST, Expression, Form, FormError, Lookup
from tilewright.sim.steps import WRITE
from tilewright.sim.walk import Walk

FORM = Form(BITS, (int, str), places=True)


def _cycle(walk: Walk, step: int, position: int) -> int:
    if walk.trace is None:
        raise InputError("cycle", "the launch has no times", "use n")
    return int(walk.trace.start[step])


#: The names that a condition may use. Each value is computed from an instruction and its position of execution.
NAMES: Mapping[str, Callable[[Walk, int, int], Any]] = {
    "n": lambda walk, step, position: step,
    "position": lambda walk, step, position: position,
    "cycle": _cycle,
    "unit": lambda walk, step, position: walk.unit_of(step),
    "layer": lambda walk, step, position: walk.layer_of(step),
    "op": lambda walk, step, position: walk.operation(step),
    "text": lambda walk, step, position: walk.text(step),
}


class Condition:
    """The condition of a break or watch point."""

    def __init__(self, text: str) -> None:
        """Parse a condition. Raises InputError if the text is not a condition."""
        self.text = text.strip()
        try:
            if len(text) > LONGEST:
                raise FormError(f"it has more than {LONGEST} characters")
            self._expression = Expression(text, FORM)
            if unknown := self._expression.names - NAMES.keys():
                raise FormError(f"there is no name '{min(unknown)}'")
        except SyntaxError as error:
            raise self._wrong(error.msg) from None
        except FormError as error:
            raise self._wrong(str(error)) from None

    def holds(self, name: Lookup, place: Lookup) -> bool:
        """Evaluate the condition. Raises InputError if an operation cannot use its operands, such as text + 1."""

        def single(text: str) -> int:
            value = place(text)
            if np.ndim(value):
                raise InputError(f"condition '{self.text}'", f"{text} is more than one value", "index every axis")
            return int(value)

        try:
            return bool(self._expression.value(name, single))
        except (TypeError, ValueError, ArithmeticError) as error:
            raise self._wrong(str(error)) from None

    def _wrong(self, reason: str) -> InputError:
        forms = f"comparisons, and, or, not, + - * // % & | ^ >>, numbers, texts, {', '.join(NAMES)}, MEMORY[...]"
        return InputError(f"condition '{self.text}'", reason, f"use {forms}")


@dataclass(frozen=True)
class Point:
    """A break point (`step` or `condition`), or a watch point (`watched`, optionally with a condition).

    A break point stops before an instruction; a watch point stops after an instruction that writes the watched place.
    """

    text: str
    launch: str = ""
    step: int | None = None
    watched: str = ""
    condition: Condition | None = None


class Search:
    """Finds the next position at which a point stops a launch."""

    def __init__(self, launch: OpenLaunch, points: dict[int, Point]) -> None:
        """Prepare the points of a launch. Raises InputError if a watched place is not in this launch."""
        self._launch = launch
        self._at: dict[int, list[int]] = {}
        self._conditions: list[tuple[int, Condition]] = []
        self._watched = {number: point.condition for number, point in points.items() if point.watched}
        for number, point in points.items():
            if point.step is not None:
                if point.launch == launch.walk.name:
                    self._at.setdefault(int(launch.position_of[point.step]), []).append(number)
            elif point.watched:
                walk = launch.walk
                written = np.flatnonzero(touching(walk.table, elements(walk, place(walk, point.watched)), WRITE))
                # A watch point stops after the write, which is one position later.
                for position in (launch.position_of[written] + 1).tolist():
                    self._at.setdefault(position, []).append(number)
            elif point.condition:
                self._conditions.append((number, point.condition))

    def next(self, position: int, forward: bool) -> tuple[int, int | None]:
        """Return the next position at which a point stops, and the point's number, or the end (or start) and None."""
        # The positions of all writes are known from the footprints. Conditions are evaluated at each position, but the
        # launch is executed only if a condition reads memory.
        edge = self._launch.last if forward else 0
        for at in range(position + 1, edge + 1) if forward else range(position - 1, -1, -1):
            for number in self._at.get(at, ()):
                condition = self._watched.get(number)
                if condition is None or self._holds(condition, at, max(at - 1, 0)):
                    return at, number
            for number, condition in self._conditions:
                if at < len(self._launch.history.sequence) and self._holds(condition, at, at):
                    return at, number
        return edge, None

    def _holds(self, condition: Condition, position: int, shown: int) -> bool:
        """Evaluate a condition on the memory at `position`, for the instruction at position `shown`."""
        launch = self._launch
        walk = self._launch.walk
        step = int(launch.history.sequence[shown])
        return condition.holds(
            lambda name: NAMES[name](walk, step, shown),
            lambda text: values(walk, launch.history.move(position), place(walk, text)).tolist(),
        )
