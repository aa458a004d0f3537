"""Compile functions that call each other across the files of this folder, with a disk cache that covers all of them.

Numba's own cache key covers one file, and the values that a closure holds. So the compiled loop is a closure over
`version()`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from tilewright.sim.jit import njit

F = TypeVar("F", bound=Callable[..., Any])

_callees: list[Callable[..., Any]] = []


@cache
def version() -> int:
    """Return a 48-bit hash of the sources of this folder."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:6], "little")


def callee(function: F) -> F:
    """Mark a function for compiled callers. They call a compiled version of it; Python code calls the original."""
    _callees.append(function)
    return function


def native(function: Callable[..., Any]) -> Any:
    """Return `function` compiled. It may neither allocate nor call Python."""
    from numba import extending

    while _callees:
        cast(Any, extending).register_jitable(no_cfunc_wrapper=True)(_callees.pop())
    return njit(function, nogil=True, _nrt=False)
