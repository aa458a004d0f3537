"""Conditions of break points: small expressions over the next instruction and the values in memories.

    layer == "conv2" and unit == "compute" and n > 100
    acc[37, 0, 5] > 1000 or dram.out[3] != 0

The text is parsed by `ast`, and only the forms listed here are evaluated.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.errors import InputError

LONGEST, DEEPEST = 500, 40
#: Names that a condition may use; the session gives their values for the next instruction.
NAMES = ("n", "position", "cycle", "unit", "layer", "op", "text")
COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.RShift: operator.rshift,
}

#: Returns the value of a name, and the value at a place given as text.
Lookup = Callable[[str], Any]


class Condition:
    """A condition that was read from text. `reads_values` says whether it reads a memory or a tensor."""

    def __init__(self, text: str) -> None:
        """Read a condition. Raises InputError if the text is not one."""
        self.text = text.strip()
        try:
            if len(text) > LONGEST:
                raise SyntaxError(f"it has more than {LONGEST} characters")
            self._tree = ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise self._wrong(getattr(error, "msg", str(error))) from None
        self._check(self._tree, 0)
        self.reads_values = any(isinstance(node, ast.Subscript) for node in ast.walk(self._tree))

    def holds(self, name: Lookup, place: Lookup) -> bool:
        """Evaluate the condition. Raises InputError if its values do not fit its operations."""
        try:
            return bool(self._value(self._tree, name, place))
        except (TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
            raise self._wrong(str(error)) from None

    def _wrong(self, reason: str) -> InputError:
        forms = f"comparisons, and, or, not, + - * // % & | ^ >>, numbers, texts, {', '.join(NAMES)}, MEMORY[...]"
        return InputError(f"condition '{self.text}'", reason, f"use {forms}")

    def _check(self, node: ast.expr, depth: int) -> None:
        """Check that only known forms occur. Raises InputError otherwise."""
        if depth > DEEPEST:
            raise self._wrong("it is nested too deeply")
        parts: list[ast.expr] = []
        match node:
            case ast.BoolOp(values=values):
                parts = values
            case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
                parts = [operand]
            case ast.Compare(left=left, ops=ops, comparators=comparators) if all(type(op) in COMPARE for op in ops):
                parts = [left, *comparators]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
                parts = [left, right]
            case ast.Constant(value=int() | str()) | ast.Subscript():
                pass
            case ast.Name(id=name) if name in NAMES:
                pass
            case ast.Name(id=name):
                raise self._wrong(f"there is no name '{name}'")
            case _:
                raise self._wrong(f"'{ast.unparse(node)}' is not allowed")
        for part in parts:
            self._check(part, depth + 1)

    def _value(self, node: ast.expr, name: Lookup, place: Lookup) -> Any:
        match node:
            case ast.BoolOp(op=op, values=values):
                each = (self._value(part, name, place) for part in values)
                return all(each) if isinstance(op, ast.And) else any(each)
            case ast.UnaryOp(op=op, operand=operand):
                value = self._value(operand, name, place)
                return not value if isinstance(op, ast.Not) else -_number(value)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                values = [self._value(part, name, place) for part in (left, *comparators)]
                return all(COMPARE[type(op)](a, b) for op, a, b in zip(ops, values, values[1:], strict=False))
            case ast.BinOp(left=left, op=op, right=right):
                a, b = (_number(self._value(part, name, place)) for part in (left, right))
                return ARITHMETIC[type(op)](a, b)
            case ast.Constant(value=value):
                return value
            case ast.Name(id=known):
                return name(known)
            case _:
                value = place(ast.get_source_segment(self.text, node) or "")
                if np.ndim(value):
                    raise InputError(
                        f"condition '{self.text}'", f"{ast.unparse(node)} is more than one value", "index every axis"
                    )
                return int(value)


def _number(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is not a number")
    return value
