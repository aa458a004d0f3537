"""Rules of a study: expressions over the keys and results of a machine, such as `dsp <= 220`.

An expression has numbers, words in quotes, names, arithmetic, comparisons and `and`, `or`, `not`. It is parsed by
Python's own parser, and evaluated here: nothing else of Python can be reached.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from tilewright.errors import InputError, option

Value: TypeAlias = bool | int | float | str
#: Characters of a rule; the largest exponent, so that `2 ** KEY` stays small.
LONGEST, LARGEST_EXPONENT = 500, 64

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


@dataclass(frozen=True)
class Rule:
    """An expression that every machine of a study must fulfil."""

    text: str

    def __post_init__(self) -> None:
        """Raise InputError if the text is not such an expression."""
        if len(self.text) > LONGEST:
            raise InputError(option("--where"), f"a rule has {len(self.text)} characters", f"the longest has {LONGEST}")
        _check(self._tree, self.text)

    @cached_property
    def _tree(self) -> ast.expr:
        try:
            return ast.parse(self.text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise InputError(
                option("--where"), f"'{self.text}' is not an expression", "write it as in: dsp <= 220"
            ) from None

    @cached_property
    def names(self) -> frozenset[str]:
        """The keys and results that the rule reads."""
        return frozenset(node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name))

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Return whether the rule holds for `values`. Raises InputError if it cannot be computed from them."""
        try:
            return bool(_value(self._tree, values))
        except KeyError as error:
            known = ", ".join(sorted(values))
            raise InputError(
                option("--where"), f"'{self.text}': there is no {error.args[0]}", f"choose of {known}"
            ) from None
        except (TypeError, ArithmeticError) as error:
            raise InputError(option("--where"), f"'{self.text}' cannot be computed: {error}") from None


def _check(node: ast.expr, text: str) -> None:
    """Check that an expression has only parts that `_value` knows. Raises InputError for any other part."""
    known = (
        isinstance(node, ast.Name | ast.BoolOp)
        or (isinstance(node, ast.Constant) and isinstance(node.value, int | float | str))
        or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub))
        or (isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC)
        or (isinstance(node, ast.Compare) and all(type(op) in _COMPARISONS for op in node.ops))
    )
    if not known:
        part = ast.unparse(node)
        remedy = "use names, numbers, + - * / // % **, comparisons, and, or, not"
        raise InputError(option("--where"), f"'{text}': '{part}' is not allowed", remedy)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            _check(child, text)


def _value(node: ast.expr, values: Mapping[str, Value]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=ast.Not()):
            return not _value(node.operand, values)
        case ast.UnaryOp():
            return -_value(node.operand, values)
        case ast.BoolOp():
            parts = (bool(_value(part, values)) for part in node.values)
            return all(parts) if isinstance(node.op, ast.And) else any(parts)
        case ast.BinOp():
            left, right = _value(node.left, values), _value(node.right, values)
            if isinstance(node.op, ast.Pow) and abs(right) > LARGEST_EXPONENT:
                raise ArithmeticError(f"the exponent {right} is above {LARGEST_EXPONENT}")
            if isinstance(left, str) or isinstance(right, str):
                raise TypeError("arithmetic on a word")
            return _ARITHMETIC[type(node.op)](left, right)
        case ast.Compare():
            left = _value(node.left, values)
            for op, other in zip(node.ops, node.comparators, strict=True):
                right = _value(other, values)
                if not _COMPARISONS[type(op)](left, right):
                    return False
                left = right
            return True
    raise AssertionError(f"_check lets through {ast.dump(node)}")
