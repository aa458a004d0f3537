"""Residuals in a layer's sums: codes times a power of two, added to the accumulators by GEMM micro-ops.

Weights are a multiple of the identity, at most 2**6, the largest power of two that int8 holds. To shift codes left by
s bits takes one micro-op per output tile if s <= 6. If the ALU shifts the sums right by t bits, codes can also be added
after k of these bits, shifted left by s - k: the result is the same. With k = t, this takes one micro-op as well, with
k = s < t one more right shift. In all other cases the ALU shifts the codes left before the products are added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tilewright.array import Array
from tilewright.errors import ModelError
from tilewright.graph.ir import Site
from tilewright.graph.ops import Add, Clamp, Linear, MaxPool2D, Mul, Reshape
from tilewright.graph.rounding import clamp_range
from tilewright.targets.vta.compiler.kernels import ONE, Dim, Kernel, Step, over
from tilewright.targets.vta.compiler.layer import LARGEST_SHIFT, Codes, Residual
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.launch.codes import CODE_MAX, CODE_MIN

#: log2 of the largest weight.
LARGEST_WEIGHT = 6
#: Bits of the accumulators: a residual needs as many as the reference's sums have.
WIDTH = 32


def residual_of(site: Site, op: Linear, codes: Codes, config: Config) -> Residual | None:
    """Return how the machine adds a node's residual to its sums, which it requantises by `codes`; None if it cannot."""
    tensor, lift = op.residual(site), op.lift(site)
    if tensor is None or tensor.zero_point or tensor.dtype != "int8" or config.acc.width < WIDTH:
        return None
    if lift <= LARGEST_WEIGHT:
        return Residual(lift, 0, None)
    shift = codes.immediates.shift if codes.immediates else None
    if shift is not None and config.stages == 3:  # one unit runs GEMM and ALU
        after = min(shift, lift)
        if lift - after <= LARGEST_WEIGHT:
            return Residual(lift - after, 0, after)
    return Residual(LARGEST_WEIGHT, lift - LARGEST_WEIGHT, None) if lift <= LARGEST_WEIGHT + LARGEST_SHIFT else None


def with_residual(product: Site, add: Site) -> Site:
    """Return a product and the addition that alone reads its result as one node, which rounds once."""
    op, (other,) = add.node.op, (at for at in (0, 1) if add.node.inputs[at] != product.output.name)
    assert isinstance(op, Add) and isinstance(product.node.op, Linear)
    bias = product.optional(2)
    inputs = (product.input(0), product.input(1), bias, add.input(other))
    names = tuple(tensor.name if tensor else "" for tensor in inputs)
    node = replace(product.node, op=replace(product.node.op, activation=op.activation), inputs=names)
    return Site(replace(node, outputs=add.node.outputs), inputs, add.outputs)


def rounds_once(product: Site, add: Site, makers: Mapping[str, Site]) -> bool:
    """Return whether, in the rounding mode `pow2`, a product and an addition give the same codes if rounded once.

    They do if the addition does not round, that is if its operands and its result have one scale, and if the codes of
    the product that saturate give a sum that the addition's clip makes the same: the residual is not negative, and so
    is the result. `makers`: the sites of earlier nodes by output.
    """
    op, y, out = product.node.op, product.output, add.output
    assert isinstance(op, Linear) and isinstance(add.node.op, Add)
    tensors = [*(add.optional(at) for at in (0, 1)), out]
    if any(tensor is None or tensor.quant != y.quant or tensor.dtype != "int8" for tensor in tensors):
        return False
    if y.quant is None or y.zero_point or y.quant.per_channel or op.shift or op.residual(product):
        return False
    if op.activation != "none" or add.node.inputs[0] == add.node.inputs[1] or add.input(0).shape != add.input(1).shape:
        return False
    whole = with_residual(product, add)
    low, high = clamp_range(add.node.op.activation, out.scale, 0, out.dtype)
    try:
        lifted = whole.node.op.shapes(whole) == (out.shape,)
    except ModelError:  # its sums have no scale that is a power of two
        return False
    computed = whole.input(3).data is None and _least(whole.node.inputs[3], makers) >= 0
    return lifted and computed and (low, high) == (0, CODE_MAX)


def _least(name: str, makers: Mapping[str, Site]) -> int:
    """Return a lower bound of the codes of an int8 tensor with zero point 0."""
    site = makers.get(name)
    if site is None:
        return CODE_MIN
    op, out = site.node.op, site.output
    if isinstance(op, Linear | Add | Mul | Clamp):
        return clamp_range(op.activation, out.scale, 0, out.dtype)[0]
    return _least(site.node.inputs[0], makers) if isinstance(op, MaxPool2D | Reshape) else CODE_MIN


def residual_weights(residual: Residual, block: int) -> Array:
    """Return the weight tile of a residual, int8 [block, block]."""
    return np.eye(block, dtype=np.int8) * np.int8(1 << residual.weight)


@lru_cache(maxsize=1024)
def residual_steps(residual: Residual, tiles: int) -> tuple[Step, ...]:
    """Return the steps that add `tiles` tiles of codes to the first tiles of an accumulator slot."""
    start = np.zeros(1, np.int64)
    added = Step(Kernel(start, start, start, ONE, Dim(tiles, 1, 1, 0, False)))
    return (added, Step(over(tiles), AluOp.SHR, -residual.left)) if residual.left else (added,)


@lru_cache(maxsize=1024)
def parted(steps: tuple[Step, ...], after: int) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Return an epilogue in two parts, between which a residual is added: after `after` bits of the right shift."""
    places = [place for place, step in enumerate(steps) if step.op == AluOp.SHR]
    rest = sum(steps[place].imm or 0 for place in places) - after
    shifted = steps[places[0]]
    before = (*steps[: places[0]], *_right(shifted, after))
    return before, (*_right(shifted, rest), *steps[places[-1] + 1 :])


def _right(step: Step, bits: int) -> Iterator[Step]:
    for done in range(0, bits, LARGEST_SHIFT):
        yield step._replace(imm=min(bits - done, LARGEST_SHIFT))
