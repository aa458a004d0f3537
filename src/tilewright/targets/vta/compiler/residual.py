"""Residuals in a layer's sums: codes times a power of two, added to the accumulators by GEMM micro-ops.

Weights are a multiple of the identity, at most 2**6, the largest power of two that int8 holds. To shift codes left by
s bits takes one micro-op per output tile if s <= 6. If the sums are then shifted right by t bits, t <= s <= t + 6, so
does adding the codes, shifted left by s - t bits, to the shifted sums: the result is the same. In all other cases the
ALU shifts the codes left before the products are added, with a micro-op of its own.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Site
from tilewright.graph.ops import Linear
from tilewright.targets.vta.compiler.kernels import ONE, Dim, Kernel, Step, over
from tilewright.targets.vta.compiler.layer import LARGEST_SHIFT, Codes, Residual
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import AluOp

#: log2 of the largest weight.
LARGEST_WEIGHT = 6
#: Bits of the accumulators: a residual needs as many as the reference's sums have.
WIDTH = 32


def residual_of(site: Site, op: Linear, codes: Codes, config: Config) -> Residual | None:
    """Return how the machine adds a node's residual to its sums, which it requantises by `codes`; None if it cannot."""
    tensor, lift = op.residual(site), op.lift(site)
    if tensor is None or tensor.zero_point or tensor.dtype != "int8" or config.acc.width < WIDTH:
        return None
    shift = codes.immediates.shift if codes.immediates else None
    if lift <= LARGEST_WEIGHT:
        return Residual(lift, 0, False)
    if shift is not None and 0 <= lift - shift <= LARGEST_WEIGHT and config.stages == 3:  # gemm and alu are one unit
        return Residual(lift - shift, 0, True)
    return Residual(LARGEST_WEIGHT, lift - LARGEST_WEIGHT, False) if lift <= LARGEST_WEIGHT + LARGEST_SHIFT else None


def residual_weights(residual: Residual, block: int) -> Array:
    """Return the weight tile of a residual, int8 [block, block]."""
    return np.eye(block, dtype=np.int8) * np.int8(1 << residual.weight)


@lru_cache(maxsize=1024)
def residual_steps(residual: Residual, tiles: int) -> tuple[Step, ...]:
    """Return the steps that add `tiles` tiles of codes to the first tiles of an accumulator slot."""
    start = np.zeros(1, np.int64)
    added = Step(Kernel(start, start, start, ONE, Dim(tiles, 1, 1, 0, False)))
    return (added, Step(over(tiles), AluOp.SHR, -residual.left)) if residual.left else (added,)


def unshifted(steps: tuple[Step, ...]) -> int:
    """Return the number of an epilogue's steps up to its last right shift: a late residual is added after them."""
    return 1 + max(index for index, step in enumerate(steps) if step.op == AluOp.SHR)
