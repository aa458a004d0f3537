"""Small expressions that users write: conditions of break points, rules of a study.

An expression consists of numbers, quoted words, names, arithmetic, comparisons and `and`, `or`, `not`; some forms allow
places with an index. Python's parser reads the expression, and only this module evaluates it, so that it cannot reach
any other part of Python.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Limits of an expression: its characters, its nested levels, and an exponent, so that `2 ** KEY` stays small.
LONGEST = 500
DEEPEST = 250
LARGEST_EXPONENT = 64

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def _power(base: Any, exponent: Any) -> Any:
    if abs(exponent) > LARGEST_EXPONENT:
        raise ArithmeticError(f"the exponent {exponent} is above {LARGEST_EXPONENT}")
    return base**exponent


Arithmetic = Mapping[type[ast.operator], Callable[[Any, Any], Any]]
_BASIC: Arithmetic = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
#: Operators for real numbers, and operators for integers (with bitwise operators).
REAL: Arithmetic = {**_BASIC, ast.Div: operator.truediv, ast.Pow: _power}
BITS: Arithmetic = {
    **_BASIC,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.RShift: operator.rshift,
}


class FormError(Exception):
    """An expression contains a part that its form does not allow."""


@dataclass(frozen=True)
class Form:
    """The allowed parts of an expression: operators, types of constants, and places with an index, such as acc[3]."""

    arithmetic: Arithmetic
    constants: tuple[type, ...]
    places: bool = False


#: A function that returns the value of a name or of a place.
Lookup = Callable[[str], Any]
#: A function that returns the value of an expression. Its arguments look up names and places.
Evaluate = Callable[[Lookup, Lookup], Any]


class Expression:
    """A parsed expression. `names` lists the names that the expression uses.

    `value(name, place)` returns the expression's value, or raises TypeError, ValueError or ArithmeticError.
    """

    def __init__(self, text: str, form: Form) -> None:
        """Parse an expression. Raises SyntaxError for invalid text, FormError for a part that `form` does not allow."""
        self._text = text.strip()
        self._form = form
        self.names: set[str] = set()
        try:
            tree = ast.parse(self._text, mode="eval").body
        except (ValueError, RecursionError, MemoryError) as error:
            raise SyntaxError(str(error)) from None
        self.value = self._read(tree, DEEPEST)

    def _read(self, node: ast.expr, depth: int) -> Evaluate:
        if depth < 0:
            raise FormError("it is nested too deeply")

        def part(inner: ast.expr) -> Evaluate:
            return self._read(inner, depth - 1)

        match node:
            case ast.Constant(value=value) if isinstance(value, self._form.constants):
                return lambda name, place: value
            case ast.Name(id=identifier):
                self.names.add(identifier)
                return lambda name, place: name(identifier)
            case ast.Subscript() if self._form.places:
                where = ast.get_source_segment(self._text, node) or ""
                return lambda name, place: place(where)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                denied = part(operand)
                return lambda name, place: not denied(name, place)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                negated = part(operand)
                return lambda name, place: -_number(negated(name, place))
            case ast.BoolOp(op=op, values=values):
                joined = [part(term) for term in values]
                join = all if isinstance(op, ast.And) else any
                return lambda name, place: join(term(name, place) for term in joined)
            case ast.BinOp(left=left, op=operation, right=right) if type(operation) in self._form.arithmetic:
                a = part(left)
                b = part(right)
                compute = self._form.arithmetic[type(operation)]
                return lambda name, place: compute(_number(a(name, place)), _number(b(name, place)))
            case ast.Compare(left=left, ops=ops, comparators=further) if all(type(op) in _COMPARISONS for op in ops):
                return self._compared([_COMPARISONS[type(op)] for op in ops], [part(term) for term in (left, *further)])
        raise FormError(f"'{ast.unparse(node)}' is not allowed")

    @staticmethod
    def _compared(holds: Sequence[Callable[[Any, Any], bool]], parts: Sequence[Evaluate]) -> Evaluate:
        def value(name: Lookup, place: Lookup) -> bool:
            values = [part(name, place) for part in parts]
            return all(hold(a, b) for hold, a, b in zip(holds, values, values[1:], strict=False))

        return value


def _number(value: Any) -> Any:
    if not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return value
