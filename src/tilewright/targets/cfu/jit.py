"""Compiled functions that call each other across files, cached on disk under a key that covers all of their sources.

Numba's cache looks at one file only. What a closure holds is part of its key, so the loops are closures over a
number that stands for the sources of this target.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

HERE = Path(__file__).parent
#: What compiled functions are made of.
SOURCES = ("config.py", "timing.py", "seam.py", "own.py", "rv32", "array")


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
    from numba import extending

    return cast(F, cast(Any, extending).register_jitable(no_cfunc_wrapper=True)(function))


def native(function: Callable[..., Any], signature: Any, nogil: bool = True) -> Any:
    """`function` compiled for one signature, from the cache where there is a place for one."""
    import numba

    try:
        return cast(Any, numba).njit(signature, cache=True, nogil=nogil)(function)
    except RuntimeError:  # neither the package nor a home is writable
        return cast(Any, numba).njit(signature, nogil=nogil)(function)
