"""The loop, compiled on first use."""

from __future__ import annotations

from typing import Any

from tilewright.targets.cfu.jit import native, version
from tilewright.targets.cfu.seam import signature
from tilewright.targets.cfu.timing import Costs

from .state import Machine

_loop: Any = None


def run_loop(m: Machine, costs: Costs, execute: Any) -> None:
    """`loop` of loop.py; `execute` is a compiled function of the seam's signature."""
    global _loop  # noqa: PLW0603 - compiled once for a process: the types are always the same
    if _loop is None:
        import numba

        from .loop import make_loop

        types: Any = numba
        function = types.types.FunctionType(signature())
        _loop = native(make_loop(version()), types.void(types.typeof(m), types.typeof(costs), function))
    _loop(m, costs, execute)
