"""Compile functions that call each other across files, with a disk cache that depends on all of their sources.

Numba's own cache key covers a single file and the contents of closures. The compiled loops are therefore closures over
`version()`, a hash of the sources of this target.
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
#: The files and folders with the sources of compiled functions.
SOURCES = ("config.py", "runtime/seam.py", "isa", "timing")
#: Functions to register with Numba, and whether to inline them. Numba is imported when the first loop is compiled.
_callees: list[tuple[Callable[..., Any], bool]] = []


@cache
def version() -> int:
    """Return a 48-bit hash of all files in SOURCES."""
    digest = hashlib.sha256()
    for source in SOURCES:
        place = HERE / source
        for path in sorted(place.glob("*.py")) if place.is_dir() else [place]:
            digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:6], "little")


def callee(function: F) -> F:
    """Mark a function for compiled callers. They call a compiled version of it; Python code calls the original."""
    _callees.append((function, False))
    return function


def inlined(function: F) -> F:
    """Mark a function like `callee`, but always inline it. It suits functions with many short cases."""
    _callees.append((function, True))
    return function


def native(function: Callable[..., Any], signature: Any, python: bool = False) -> Any:
    """Return `function` compiled for the Numba signature `signature`, from the disk cache if it is there.

    With `python`, the function may call Python. Without, it releases the GIL, allocates nothing and does not count
    references to arrays: counting would take a third of the time.
    """
    from numba import extending

    while _callees:
        callee, inline = _callees.pop()
        cast(Any, extending).register_jitable(no_cfunc_wrapper=True, forceinline=inline)(callee)
    return njit(function, signature, nogil=not python, _nrt=python)
