"""Conditions of break points: small expressions over the next instruction and the values in memories.

layer == "conv2" and unit == "compute" and n > 100
acc[37, 0, 5] > 1000 or dram.out[3] != 0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.errors import InputError
from tilewright.expressions import BITS, LONGEST, Expression, Form, FormError, Lookup
from tilewright.sim.walk import Walk

FORM = Form(BITS, (int, str), places=True)


def _cycle(walk: Walk, step: int, position: int) -> int:
    if walk.trace is None:
        raise InputError("cycle", "the launch has no times", "use n")
    return int(walk.trace.start[step])


#: Names that a condition may use, and their values for an instruction at a position of the order of execution.
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
    """A condition that was read from text."""

    def __init__(self, text: str) -> None:
        """Read a condition. Raises InputError if the text is not one."""
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
        """Evaluate the condition. Raises InputError if its values do not fit its operations."""

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
