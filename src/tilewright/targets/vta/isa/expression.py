"""Integer expressions: the text that defines the result of a user's own ALU operation (see own.py).

`parse` accepts a small part of Python: integers, the operands, operators and the functions below, each with its meaning
in NumPy on int64. `parse` reads the text with `ast` and never executes the text, so a text may come from any file. The
result is a list of steps for a stack; `Expression.on` runs them on arrays, values/loop.py in a compiled loop.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import ConfigError

#: The operands: the first operand, the second operand (acc[src] or the immediate), the immediate field.
OPERANDS = ("dst", "src", "imm")
#: Limits of an expression: characters, steps, values on the stack.
MAX_CHARACTERS = 1000
MAX_STEPS = 64
MAX_DEPTH = 12


class Do(IntEnum):
    """One step of an expression. A step replaces the topmost values of the stack by its result.

    CONSTANT pushes `value`. WRAP keeps the low `value` bits, signed. WHERE has a condition and two values as operands.
    """

    DST = 0
    SRC = 1
    IMM = 2
    CONSTANT = 3
    ADD = 4
    SUB = 5
    MUL = 6
    AND = 7
    OR = 8
    XOR = 9
    SHL = 10
    SHR = 11
    MIN = 12
    MAX = 13
    LESS = 14
    EQUAL = 15
    ABS = 16
    WRAP = 17
    WHERE = 18


#: The steps with two operands, and ABS: NumPy's function, and the kind of arithmetic that costs energy
#: (sim.events.KINDS; "" for wires and single gates). A shift by less than 0 or more than 63 bits shifts all bits out.
_FUNCTIONS: dict[Do, tuple[Callable[..., Any], str]] = {
    Do.ADD: (np.add, "add"),
    Do.SUB: (np.subtract, "add"),
    Do.MUL: (np.multiply, "multiply"),
    Do.AND: (np.bitwise_and, ""),
    Do.OR: (np.bitwise_or, ""),
    Do.XOR: (np.bitwise_xor, ""),
    Do.SHL: (np.left_shift, "shift"),
    Do.SHR: (np.right_shift, "shift"),
    Do.MIN: (np.minimum, "compare"),
    Do.MAX: (np.maximum, "compare"),
    Do.LESS: (lambda a, b: np.less(a, b).astype(np.int64), "compare"),
    Do.EQUAL: (lambda a, b: np.equal(a, b).astype(np.int64), "compare"),
    Do.ABS: (np.absolute, "add"),
}
_OPERATORS: dict[type[ast.AST], Do] = {
    **{ast.Add: Do.ADD, ast.Sub: Do.SUB, ast.Mult: Do.MUL, ast.LShift: Do.SHL, ast.RShift: Do.SHR},
    **{ast.BitAnd: Do.AND, ast.BitOr: Do.OR, ast.BitXor: Do.XOR},
}
#: Comparisons: the step, whether to swap the operands, and whether to negate the result.
_COMPARISONS: dict[type[ast.AST], tuple[Do, bool, bool]] = {
    ast.Lt: (Do.LESS, False, False),
    ast.Gt: (Do.LESS, True, False),
    ast.GtE: (Do.LESS, False, True),
    ast.LtE: (Do.LESS, True, True),
    ast.Eq: (Do.EQUAL, False, False),
    ast.NotEq: (Do.EQUAL, False, True),
}
#: The functions, which may also be called as `np.NAME`: the order in which arguments are computed, and the steps after
#: that.
_NAMED: dict[str, tuple[tuple[int, ...], tuple[tuple[Do, int], ...]]] = {
    **dict.fromkeys(("abs", "absolute"), ((0,), ((Do.ABS, 0),))),
    **dict.fromkeys(("min", "minimum"), ((0, 1), ((Do.MIN, 0),))),
    **dict.fromkeys(("max", "maximum"), ((0, 1), ((Do.MAX, 0),))),
    "clip": ((2, 0, 1), ((Do.MAX, 0), (Do.MIN, 0))),
    "where": ((0, 1, 2), ((Do.WHERE, 0),)),
    **{f"int{bits}": ((0,), ((Do.WRAP, bits),)) for bits in (8, 16, 32)},
}


@dataclass(frozen=True)
class Expression:
    """A checked expression: pairs of a step and its constant (0 for steps without one), in execution order."""

    steps: tuple[tuple[Do, int], ...]

    def uses(self, operand: str) -> bool:
        """Return whether the result depends on an operand, one of OPERANDS."""
        return (Do[operand.upper()], 0) in self.steps

    @property
    def kinds(self) -> tuple[str, ...]:
        """The arithmetic of one evaluation, as names of sim.events.KINDS."""
        return tuple(_FUNCTIONS[do][1] for do, _ in self.steps if do in _FUNCTIONS and _FUNCTIONS[do][1])

    def on(self, dst: Array, src: Array, imm: int) -> Array:
        """Return the values, int64, with the shape of `dst`. Operands are integers; all steps wrap to 64 bits."""
        given = {Do.DST: dst.astype(np.int64), Do.SRC: src.astype(np.int64), Do.IMM: np.int64(imm)}
        stack: list[Any] = []
        for do, value in self.steps:
            if do in given:
                stack.append(given[do])
            elif do == Do.CONSTANT:
                stack.append(np.int64(value))
            elif do == Do.ABS:
                stack.append(_FUNCTIONS[do][0](stack.pop()))
            elif do == Do.WRAP:
                stack.append(np.asarray(stack.pop()).astype(f"int{value}").astype(np.int64))
            else:
                # The operands were pushed in order, so the second operand is on top.
                b = stack.pop()
                a = stack.pop()
                stack.append(np.where(stack.pop(), a, b) if do == Do.WHERE else _FUNCTIONS[do][0](a, b))
        return np.broadcast_to(stack[0], dst.shape)


@lru_cache
def parse(text: str, where: str) -> Expression:
    """Return the checked expression in `text`. Raises ConfigError, which begins with `where`, for other text."""
    steps: list[tuple[Do, int]] = []
    if len(text) > MAX_CHARACTERS:
        raise ConfigError(where, f"the expression has {len(text)} characters; at most {MAX_CHARACTERS} are allowed")
    try:
        _add(ast.parse(text.strip(), mode="eval").body, steps, where)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = getattr(error, "msg", None) or str(error) or "it is nested too deeply"
        raise ConfigError(
            where, f"'{text}' is not an expression: {reason}", "write one such as abs(dst - src)"
        ) from None
    if len(steps) > MAX_STEPS:
        raise ConfigError(where, f"the expression has {len(steps)} steps; at most {MAX_STEPS} are allowed")
    # Each operand adds one value to the stack. Each step removes its operands and adds one result.
    depth = most = 0
    for do, _ in steps:
        depth += 1 if do <= Do.CONSTANT else {Do.ABS: 0, Do.WRAP: 0, Do.WHERE: -2}.get(do, -1)
        most = max(most, depth)
    if most > MAX_DEPTH:
        raise ConfigError(where, f"the expression keeps {most} values at once; at most {MAX_DEPTH} are allowed")
    return Expression(tuple(steps))


def _add(node: ast.expr, steps: list[tuple[Do, int]], where: str) -> None:
    def add(*parts: ast.expr) -> None:
        for part in parts:
            _add(part, steps, where)

    match node:
        case ast.Constant(value=int(value)) if type(value) is int and -(1 << 63) <= value < 1 << 63:
            steps.append((Do.CONSTANT, value))
        case ast.Name(id=name) if name in OPERANDS:
            steps.append((Do[name.upper()], 0))
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))) if type(value) is int:
            add(ast.Constant(-value))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            add(ast.Constant(0), operand)
            steps.append((Do.SUB, 0))
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            add(operand)
        # ~a is a ^ -1, and -a is 0 - a, so unary operators need no steps.
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            add(operand, ast.Constant(-1))
            steps.append((Do.XOR, 0))
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            add(left, right)
            steps.append((_OPERATORS[type(operator)], 0))
        case ast.Compare(left=left, ops=[comparison], comparators=[right]) if type(comparison) in _COMPARISONS:
            do, swaps, negates = _COMPARISONS[type(comparison)]
            add(*((right, left) if swaps else (left, right)))
            steps += [(do, 0), *([(Do.CONSTANT, 1), (Do.XOR, 0)] if negates else [])]
        case ast.IfExp(test=test, body=body, orelse=other):
            add(test, body, other)
            steps.append((Do.WHERE, 0))
        case ast.Call(func=function, args=arguments, keywords=[]):
            order, then = _NAMED.get(_name(function), ((), ()))
            if not order:
                raise ConfigError(where, f"there is no function '{_name(function)}'", f"use {', '.join(_NAMED)}")
            if len(arguments) != len(order):
                reason = f"{_name(function)} has {len(arguments)} arguments, not {len(order)}"
                raise ConfigError(where, reason, "give the arguments of the NumPy function")
            add(*(arguments[at] for at in order))
            steps += then
        case _:
            reason = f"'{ast.unparse(node)}' is not allowed in a meaning"
            operators = f"{', '.join(OPERANDS)}, integers, + - * << >> & | ^ ~, comparisons, a if c else b"
            raise ConfigError(where, reason, f"use {operators}, {', '.join(_NAMED)}")


def _name(function: ast.expr) -> str:
    """Return the name of a called function, without `np.`; "" for anything else."""
    match function:
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="np" | "numpy"), attr=name):
            return name
    return ast.unparse(function)
