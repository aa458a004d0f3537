"""Compiled loops: Numba, imported and compiled on first use, cached on disk after that."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, ClassVar, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


#: Microseconds that all loops together may spend uncompiled in one process: what loading Numba takes. Compiling takes
#: a second a loop, once for an installation; loading what was compiled before, some milliseconds.
PATIENCE = 300_000
#: Parts of compiled functions, by module.
_PARTS: dict[str, list[Callable[..., object]]] = {}
#: Options of parts: they allocate nothing, and nobody calls them from outside the loop.
_PART_OPTIONS = {"_nrt": False, "forceinline": True, "no_cfunc_wrapper": True, "no_cpython_wrapper": True}


def njit(function: Callable[..., Any], *signature: Any, **options: bool) -> Any:
    """The function compiled by Numba, from the disk cache where there is a place for one."""
    import numba

    compiler: Any = numba.njit
    try:
        return compiler(*signature, cache=True, **options)(function)
    except RuntimeError:  # neither the package nor a home is writable
        return compiler(*signature, **options)(function)


class Compiled(Generic[P, R]):
    """A function of arrays and numbers that runs compiled; `.python` is the same source, uncompiled."""

    #: Microseconds of all loops so far, with those that `expect` has announced; and of these what is still to come.
    spent: ClassVar[int] = 0
    expected: ClassVar[int] = 0

    def __init__(self, python: Callable[P, R]) -> None:
        update_wrapper(self, python)
        self.python = python
        self._native: Callable[P, R] | None = None

    def due(self, microseconds: int) -> bool:
        """Whether to run compiled a call that would take about so long otherwise: not while that is soon done."""
        announced = min(Compiled.expected, microseconds)
        Compiled.expected -= announced
        Compiled.spent += microseconds - announced
        return Compiled.spent >= PATIENCE or self._native is not None

    def of(self, microseconds: int) -> Callable[P, R]:
        """The function for a call that would take about so long uncompiled."""
        return self if self.due(microseconds) else self.python

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._native is None:
            import numba

            for function in _PARTS.get(self.python.__module__, ()):
                numba.extending.register_jitable(**_PART_OPTIONS)(function)
            self._native = njit(self.python, nogil=True)
        return self._native(*args, **kwargs)


def expect(microseconds: int) -> None:
    """Announce what loops will take later, so that those before them need not run uncompiled until then."""
    Compiled.spent += microseconds
    Compiled.expected += microseconds


def compiled(function: Callable[P, R]) -> Compiled[P, R]:
    """Decorator: compile `function` when it is first called. It may call parts, but no other compiled function."""
    return Compiled(function)


def part(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: a part of the compiled functions of its module. It may write into arrays, but not make any.

    Numba's cache knows a function by its own file, so parts stay in the file of the loop that calls them.
    """
    _PARTS.setdefault(function.__module__, []).append(function)
    return function
