"""The blocked GEMM of examples/, for tests."""

from __future__ import annotations

import runpy
from collections.abc import Callable

from tests.conftest import ROOT
from tilewright.array import Array
from tilewright.targets.vta.runtime import RunResult, Runtime

_EXAMPLE = runpy.run_path(str(ROOT / "examples" / "blocked_gemm.py"))
SIZE: int = _EXAMPLE["SIZE"]
#: (runtime, x, w, bias, virtual threads) -> (out, result)
blocked_gemm: Callable[[Runtime, Array, Array, Array, int], tuple[Array, RunResult]] = _EXAMPLE["blocked_gemm"]
