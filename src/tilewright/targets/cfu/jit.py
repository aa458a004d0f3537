"""Compiled functions that call each other across files, cached on disk under a key that covers all of their sources.

Numba's cache looks at one file only. The key includes the contents of a closure, so the loops are closures over a
number that stands for the sources of this target.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from tilewright.sim.jit import njit

F = TypeVar("F", bound=Callable[..., Any])

HERE = Path(__file__).parent
#: The sources of compiled functions.
SOURCES = ("config.py", "runtime/core.py", "isa", "timing")
#: Functions that Numba does not know yet, and whether to inline them: it is imported when the first loop is compiled.
_callees: list[tuple[Callable[..., Any], bool]] = []


@cache
def version() -> int:
    """A number that changes with any of SOURCES."""
    digest = hashlib.sha256()
    for source in SOURCES:
        place = HERE / source
        for path in sorted(place.glob("*.py")) if place.is_dir() else [place]:
            digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:6], "little")


def callee(function: F) -> F:
    """Decorator: compiled as part of the compiled functions that call it; called from Python, it stays Python."""
    _callees.append((function, False))
    return function


def inlined(function: F) -> F:
    """As `callee`, and always inlined: for a function of many short cases."""
    _callees.append((function, True))
    return function


def native(function: Callable[..., Any], signature: Any, python: bool = False) -> Any:
    """`function` compiled for one signature, from the cache where there is a place for one.

    `python`: it calls Python. Others hold no lock, allocate nothing, and count no references to their arrays, which
    would take a third of their time.
    """
    from numba import extending

    while _callees:
        callee, inline = _callees.pop()
        cast(Any, extending).register_jitable(no_cfunc_wrapper=True, forceinline=inline)(callee)
    return njit(function, signature, nogil=not python, _nrt=python)
