"""Loops compiled by Numba. Numba is imported, and loops are compiled, on first use; compiled loops stay on disk."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, ClassVar, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


#: Microseconds that all loops together may run uncompiled in one process. Loading Numba takes as long. Compiling takes
#: a second per loop, once per installation; loading a compiled loop takes some milliseconds.
PATIENCE = 300_000
#: Parts of compiled functions, by module.
_PARTS: dict[str, list[Callable[..., object]]] = {}
#: Options of parts: they allocate nothing, and only compiled loops call them.
_PART_OPTIONS = {"_nrt": False, "forceinline": True, "no_cfunc_wrapper": True, "no_cpython_wrapper": True}


def njit(function: Callable[..., Any], *signature: Any, **options: bool) -> Any:
    """Return the function compiled by Numba, with a disk cache if one can be written."""
    import numba

    compiler: Any = numba.njit
    try:
        return compiler(*signature, cache=True, **options)(function)
    except RuntimeError:  # neither the package nor a home is writable
        return compiler(*signature, **options)(function)


class Compiled(Generic[P, R]):
    """A function of arrays and numbers that runs compiled; `.python` is the same function, uncompiled."""

    #: Uncompiled microseconds of all loops so far, plus those that `expect` announced; the part of these still ahead.
    spent: ClassVar[int] = 0
    expected: ClassVar[int] = 0

    def __init__(self, python: Callable[P, R]) -> None:
        update_wrapper(self, python)
        self.python = python
        self._native: Callable[P, R] | None = None

    def due(self, microseconds: int) -> bool:
        """Return whether to use the compiled version for a call that takes about `microseconds` uncompiled.

        Calls stay in Python until all of them together have taken PATIENCE: loading Numba takes as long.
        """
        announced = min(Compiled.expected, microseconds)
        Compiled.expected -= announced
        Compiled.spent += microseconds - announced
        return Compiled.spent >= PATIENCE or self._native is not None

    def of(self, microseconds: int) -> Callable[P, R]:
        """Return the function, compiled or not, for a call that takes about `microseconds` uncompiled."""
        return self if self.due(microseconds) else self.python

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._native is None:
            import numba

            for function in _PARTS.get(self.python.__module__, ()):
                numba.extending.register_jitable(**_PART_OPTIONS)(function)
            self._native = njit(self.python, nogil=True)
        return self._native(*args, **kwargs)


def expect(microseconds: int) -> None:
    """Announce later calls that take `microseconds` uncompiled, so that calls before them are compiled as well."""
    Compiled.spent += microseconds
    Compiled.expected += microseconds


def compiled(function: Callable[P, R]) -> Compiled[P, R]:
    """Return `function`, to be compiled on its first call (a decorator).

    It may call functions marked with `part`, but no other compiled function.
    """
    return Compiled(function)


def part(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function that compiled functions of its module call, and return it (a decorator).

    The function may write arrays, but not allocate any.

    Numba's cache checks only a function's own file for changes, so a part must be in the file of the loop calling it.
    """
    _PARTS.setdefault(function.__module__, []).append(function)
    return function
