"""Loops compiled by Numba on first use. Compiled loops stay on disk, and later processes load them without Numba."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import update_wrapper
from inspect import isfunction
from typing import Any, ClassVar, Generic, ParamSpec, TypeVar

from tilewright.sim import native
from tilewright.sim.beside import apart
from tilewright.sim.native import Emit

P = ParamSpec("P")
R = TypeVar("R")


#: Microseconds that all loops together may run uncompiled in one process, as long as loading Numba takes. Compiling a
#: loop takes a second more, once per installation.
PATIENCE = 300_000
#: The same for a loop that is on disk: loading LLVM and the loops takes 60 to 100 ms.
PATIENCE_IF_KEPT = 100_000
#: Uncompiled microseconds from which on a call is left by Ctrl-C. Compiled, such a call takes 5 ms.
LONG = 1_000_000
#: Parts of compiled functions, by module.
_PARTS: dict[str, list[Callable[..., object]]] = {}


def njit(function: Callable[..., Any], *signature: Any, **options: bool) -> Any:
    """Return the function compiled by Numba, with Numba's disk cache if one can be written."""
    import numba

    compiler: Any = numba.njit
    try:
        return compiler(*signature, cache=True, **options)(function)
    except RuntimeError:  # neither the package nor a home is writable
        return compiler(*signature, **options)(function)


class Compiled(Generic[P, R]):
    """A function of arrays and numbers that runs compiled; `.python` is the same function, uncompiled.

    Its arguments are positional: arrays, numbers, and named tuples of these.
    """

    #: Uncompiled microseconds of all loops so far, plus those that `expect` announced; the part of these still ahead.
    spent: ClassVar[int] = 0
    expected: ClassVar[int] = 0

    def __init__(self, python: Callable[P, R]) -> None:
        update_wrapper(self, python)
        self.python = python
        self._native: dict[str, Callable[..., Any]] = {}  # by the types of the arguments

    def due(self, microseconds: int) -> bool:
        """Return whether to use the compiled version for a call that takes about `microseconds` uncompiled.

        Calls stay in Python until all of them together have taken as long as loading the compiled version takes.
        """
        announced = min(Compiled.expected, microseconds)
        Compiled.expected -= announced
        Compiled.spent += microseconds - announced
        return bool(self._native) or Compiled.spent >= PATIENCE or (Compiled.spent >= PATIENCE_IF_KEPT and self._kept())

    def of(self, microseconds: int) -> Callable[P, R]:
        """Return the function, compiled or not, for a call that takes about `microseconds` uncompiled."""
        if not self.due(microseconds):
            return self.python
        return self.apart if microseconds >= LONG else self

    def apart(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the compiled function so that Ctrl-C ends the wait for it, at the cost of 0.1 ms."""
        return apart(lambda: self(*args, **kwargs))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        assert not kwargs, "a compiled loop takes its arguments by position"
        types = native.signature(args)
        if types not in self._native:
            self._native[types] = self._load(args)
        result: R = self._native[types](*args)
        return result

    def _load(self, args: tuple[Any, ...]) -> Callable[..., Any]:
        return native.load(self.python, _parts(self.python), args)

    def _kept(self) -> bool:
        return native.kept(self.python)


def _parts(function: Callable[..., object]) -> tuple[Callable[..., object], ...]:
    """Return the parts of the function's module, and of the modules whose parts it imports, directly or not."""
    found: dict[Callable[..., object], None] = {}
    modules = [function.__module__]
    for module in modules:
        found |= dict.fromkeys(_PARTS.get(module, ()))
        imported = {each.__module__ for each in vars(sys.modules[module]).values() if isfunction(each)}
        modules += sorted(imported & _PARTS.keys() - {*modules})
    return tuple(found)


class _ByNumba(Compiled[P, R]):
    """A compiled function that needs Numba in every process, because it allocates or uses Numba's library."""

    def _load(self, args: tuple[Any, ...]) -> Callable[..., Any]:
        made: Callable[..., Any] = njit(self.python, nogil=True)
        return made

    def _kept(self) -> bool:
        return False


def expect(microseconds: int) -> None:
    """Announce later calls that take `microseconds` uncompiled, so that calls before them are compiled as well."""
    Compiled.spent += microseconds
    Compiled.expected += microseconds


def compiled(function: Callable[P, R]) -> Compiled[P, R]:
    """Return `function`, to be compiled on its first call (a decorator).

    It returns an integer or None and writes to arrays that it is given: it may allocate nothing, and use no function of
    Numba's library, such as math.frexp. It may call functions marked with `part`, but no other compiled function.
    """
    return Compiled(function)


def by_numba(function: Callable[P, R]) -> Compiled[P, R]:
    """Return `function`, to be compiled on its first call, if it breaks the rules of `compiled` (a decorator).

    Calling it imports Numba.
    """
    return _ByNumba(function)


def called(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a part (see `part`) that LLVM need not inline: one with several callers, or a long one (a decorator)."""
    native.CALLED.add(function)
    return part(function)


def in_llvm(emit: Emit) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Mark a part (see `part`) whose compiled form `emit` writes with llvmlite (a decorator).

    The function returns None. `emit(builder, bits, operands)` gets llvmlite's IR builder and, for each argument, the
    bits of a number or of an element, and the number (64 bits) or the address of an array's first element.
    """

    def mark(function: Callable[P, None]) -> Callable[P, None]:
        native.EMITTED[function] = emit
        return part(function)

    return mark


def part(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function that compiled functions of its module call, and return it (a decorator).

    The function may write arrays, but not allocate any. Other modules may import it. Constants that it uses belong into
    its own file: of others, kept loops do not notice changes.
    """
    _PARTS.setdefault(function.__module__, []).append(function)
    return function
