"""Where a CFU meets the CPU: `execute(funct7, funct3, a, b, cycle) -> (value, ready cycle)`.

Operands are int32 values, `cycle` is when the command is taken, `ready cycle` when the answer is there (the next
cycle for most). The CFU takes its next command one cycle after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol

from tilewright.array import Array

from .array.state import COUPLED
from .jit import native, version

Execute = Callable[[int, int, int, int, int], tuple[int, int]]


class Unit(Protocol):
    """A CFU of one's own, with state."""

    def execute(self, funct7: int, funct3: int, a: int, b: int, cycle: int) -> tuple[int, int]: ...


Cfu = Execute | Unit


@contextmanager
def seam(cfu: Cfu | None, regs: Array) -> Iterator[Any]:
    """What the loop calls, compiled (see `signature`): the model (None), or what asks a function or object in Python.

    `regs` are the CFU's registers; those of one in Python hold only by what number it is known here.
    """
    if cfu is None:
        yield _model(bool(regs[COUPLED]))
        return
    from .own import registered

    with registered(cfu if callable(cfu) else cfu.execute, regs):
        yield _stub()


@cache
def signature() -> Any:
    """Of compiled functions: registers int64 [..], buffers int32 [..], RAM uint8 [..], then as in Python."""
    import numba

    types: Any = numba.types
    number = types.int64
    arrays = [types.Array(kind, 1, "C") for kind in (types.int64, types.int32, types.uint8)]
    return types.UniTuple(number, 2)(*arrays, *[number] * 5)


@cache
def _model(extended: bool) -> Any:
    """The CFU's model; the extensions, which are most of it, are compiled for machines that have some."""
    from .array import coupled
    from .array.model import make_execute

    return native(make_execute(version(), coupled.beyond if extended else coupled.nothing), signature())


@cache
def _stub() -> Any:
    from .own import ask

    return native(ask, signature(), nogil=False)
