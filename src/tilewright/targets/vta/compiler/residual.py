"""Residuals in a layer's sums: before its products, codes times a power of two are added to its cleared accumulators.

One GEMM micro-op per output tile multiplies the codes by identity weights of up to 2**6, the largest power of two that
int8 holds. A larger power takes a left shift on the ALU as well.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tilewright.array import Array
from tilewright.targets.vta.compiler.kernels import ONE, Dim, Kernel, Step, over
from tilewright.targets.vta.compiler.layer import LARGEST_SHIFT, LARGEST_WEIGHT
from tilewright.targets.vta.isa.alu import AluOp

#: Largest left shift of a residual, with one GEMM and one ALU instruction.
LARGEST_LIFT = LARGEST_WEIGHT + LARGEST_SHIFT


def weights(lift: int, block: int) -> Array:
    """Return the weight tile that multiplies codes by 2**lift, or by the largest power below: int8 [block, block]."""
    return np.eye(block, dtype=np.int8) * np.int8(1 << min(lift, LARGEST_WEIGHT))


@lru_cache(maxsize=1024)
def steps(lift: int, tiles: int) -> tuple[Step, ...]:
    """Return the steps that add `tiles` tiles of codes, shifted left by `lift` bits, to a slot's cleared tiles."""
    start = np.zeros(1, np.int64)
    added = Step(Kernel(start, start, start, ONE, Dim(tiles, 1, 1, 0, False)))
    return (added, Step(over(tiles), AluOp.SHR, LARGEST_WEIGHT - lift)) if lift > LARGEST_WEIGHT else (added,)
