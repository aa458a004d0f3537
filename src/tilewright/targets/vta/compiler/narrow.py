"""Clamp sums to two bytes where the codes stay the same, so that the machine stores fewer byte planes.

The host requantises a sum to a code. All sums below a bound give the lowest code, all sums above another bound the
highest code. If the two bounds are at most 2 * FURTHEST apart, the sums are moved to the middle of the 16-bit integers
and clamped. GEMM moves the sums: it multiplies a tile of equal inputs (UNIT) by weights that add an offset to each
channel. The correction, which the host subtracts from the sums, includes the offset.

Channels whose sums do not fit two bytes come first, so that as many channel tiles as possible are clamped. If the sums
of the other tiles have at most SHORT bits, the third bytes of two tiles may be stored as the halves of one byte.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Site
from tilewright.graph.ops import Linear
from tilewright.graph.rounding import Rounding
from tilewright.targets.vta.compiler.constant import ReducedLayer, proven_sums, sums_of
from tilewright.targets.vta.compiler.layer import NARROW, Layer
from tilewright.targets.vta.compiler.lowered import Context, Lowered, width_of
from tilewright.targets.vta.compiler.work import costs_of
from tilewright.targets.vta.launch.layouts import CODE_MAX, CODE_MIN

#: All codes of the tile whose products are offsets, and the largest weight.
UNIT = 127
#: The largest distance of a sum from the middle: the top byte plane of an earlier sum may be added (Layer.carries).
FURTHEST = (1 << 15) + CODE_MIN
#: The bits of sums whose third byte fits half a byte.
SHORT = 20
#: The bits of accumulators that hold any sum with its offset.
SUM_BITS = 32
#: Assumed number of groups of a layer, and the fraction of the shorter of computation and stores that is not hidden.
GROUPS = 10
ALONE = 0.125
#: The smallest fraction of a layer's cycles that clamping must save.
WORTH = 0.02


class Windows(NamedTuple):
    """A layer with its channels in order, and the offsets of its channels: `offset` int64 [channels], in units of UNIT.

    `fits`, `short` bool [channels]: whether the sums of a channel may be clamped; whether they have at most SHORT bits.
    """

    part: ReducedLayer
    offset: Array
    fits: Array
    short: Array

    def narrowed(self, lowered: Lowered, context: Context) -> Lowered:
        """Return a lowered form of the layer with the number of clamped channel tiles that takes the fewest cycles."""
        block = context.config.block
        layer = lowered.layer
        channel = _channels(lowered, len(self.fits), block)
        fits = np.all(self.fits[channel] | (channel < 0), axis=1)
        most = int(np.argmin(np.append(fits[::-1], False)))
        # Pixels of a folded tile share a correction, so all of their tiles are clamped, or none.
        counts = range(most + 1) if layer.fold == 1 else (0, most)[: 1 + (most == layer.out_tiles)]
        short = np.append(0, np.cumsum(np.all(self.short[channel] | (channel < 0), axis=1)))
        choices = [replace(layer, narrow=count) for count in counts]
        choices += [
            replace(layer, narrow=count, paired=True, carries=False)
            for count in counts
            if 0 < layer.out_tiles - count == short[layer.out_tiles - count] and layer.planes == NARROW + 1
        ]
        best = min(choices, key=lambda choice: cycles(choice, context))
        if best == layer or cycles(best, context) > (1 - WORTH) * cycles(layer, context):
            return lowered
        if not best.narrow:
            return replace(lowered, layer=best)
        channel = channel[layer.out_tiles - best.narrow :]
        offsets = np.where(channel < 0, 0, self.offset[channel])
        computed = np.arange(lowered.correction.shape[2]) if lowered.outputs is None else lowered.outputs
        moved = np.unique(channel[channel >= 0])
        correction = lowered.correction.copy()
        correction[:, :, computed[moved]] += (UNIT * self.offset[moved]).astype(np.int32)
        return replace(lowered, layer=best, correction=correction, offsets=offsets)


def windows(site: Site, op: Linear, part: ReducedLayer, correction: Array, context: Context) -> Windows | None:
    """Return the windows of the sums of a layer whose sums the host requantises; None if sums are not clamped.

    `correction` int32 [row class, column class, channel]: what the host subtracts from the sums.
    """
    config = context.config
    if (config.out.width, config.wgt.width) != (8, 8):  # offsets are products of 8-bit codes and weights
        return None
    if context.proven is None or not costs_of(config, context.timing).answers or config.stages != 3:
        return None
    if width_of(*part.sums, config).planes <= NARROW or config.acc.width < SUM_BITS or config.batch > config.block:
        return None
    sums = proven_sums(site, op, context.rounding, context.proven)
    if sums is None:
        return None
    bottom, top = _bounds(site, op, context.rounding, *sums)
    classes = correction.reshape(-1, correction.shape[2])
    bottom, top = bottom + classes.min(axis=0), top + classes.max(axis=0)
    if part.outputs is not None:
        bottom, top = bottom[part.outputs], top[part.outputs]
    low, high = sums_of(part.w, part.start, part.low, part.high, padded=True)
    short = (low >= -(1 << SHORT - 1)) & (high < 1 << SHORT - 1)
    bottom, top = np.maximum(bottom, low), np.minimum(top, high)
    offset = np.rint(-(bottom + top) / (2 * UNIT)).astype(np.int64)
    fits = (bottom + UNIT * offset >= -FURTHEST) & (top + UNIT * offset <= FURTHEST)
    fits &= np.abs(offset) <= UNIT * config.block
    order = np.argsort(fits, kind="stable")
    alone = part.w.shape[2] == 1 and np.array_equal(part.start, np.arange(len(fits)))
    if (not alone and part.start.any()) or np.array_equal(order, np.arange(len(fits))):
        return Windows(part, offset, fits, short)
    part = part._replace(w=part.w[order], outputs=order if part.outputs is None else part.outputs[order])
    if alone:  # each channel reads the input channel of the same number
        inputs = order if part.inputs is None else part.inputs[order]
        part = part._replace(inputs=inputs, low=part.low[order], high=part.high[order])
    return Windows(part, offset[order], fits[order], short[order])


def _bounds(site: Site, op: Linear, rounding: Rounding, low: Array, high: Array) -> tuple[Array, Array]:
    """Return the largest sum with the code of `low`, and the smallest with the code of `high`, for each channel."""
    ends = op.finish(site, np.stack([low, high]).astype(np.int32), rounding)
    # Bisection: `inside` has the code of its end, and `outside` is a sum past it or has another code.
    inside = np.stack([low, high])
    outside = np.stack([high + 1, low - 1])
    while (np.abs(outside - inside) > 1).any():
        middle = (inside + outside) // 2
        same = op.finish(site, middle.astype(np.int32), rounding) == ends
        inside = np.where(same, middle, inside)
        outside = np.where(same, outside, middle)
    return inside[0], inside[1]


def _channels(lowered: Lowered, count: int, block: int) -> Array:
    """Return the channel, of `count` channels, in each lane of each output channel tile; -1 in empty lanes."""
    layer = lowered.layer
    if strip := lowered.strip:
        lanes = np.arange(block)
        channel = np.arange(layer.out_tiles)[:, None] * strip.outputs + lanes % strip.outputs
        return np.where((lanes < strip.writes * strip.outputs) & (channel < count), channel, -1)
    rows = np.arange(layer.out_tiles * block).reshape(-1, block)
    return np.where(rows < count * layer.fold, rows % count, -1)


def cycles(layer: Layer, context: Context) -> float:
    """Return about the least cycles of a layer with clamped sums, or with shared bytes."""
    costs = costs_of(context.config, context.timing)
    wide = layer.out_tiles - layer.narrow
    alu: float = (wide * (layer.planes - 1) + layer.narrow * (NARROW + 1)) * costs.intervals.alu_immediate
    alu += layer.paired * wide / 2 * costs.intervals.alu
    gemm = layer.out_tiles * (not layer.carries) + layer.narrow
    compute = layer.gemm_uops() + layer.out_pixels * (alu + gemm * costs.intervals.gemm)
    more = 3 * (layer.narrow > 0) + 2 * layer.paired  # instructions of a group
    compute += GROUPS * costs.instruction * more
    store = layer.out_pixels * layer.out_tiles * layer.stored_planes * context.config.out.tile_bytes * costs.store_byte
    loads = 2 * costs.handover.load * (layer.narrow > 0)
    return max(compute, store) + ALONE * min(compute, store) + loads


def offset_tiles(offsets: Array) -> Array:
    """Return weight tiles that multiply a tile of UNITs to offsets int64 [tiles, lanes]: int8 [tiles, lanes, lanes]."""
    block = offsets.shape[1]
    spread = (offsets[..., None] + np.arange(block)) // block  # parts that differ by at most 1, with the sum `offsets`
    assert spread.min() >= CODE_MIN and spread.max() <= CODE_MAX
    return spread.astype(np.int8)
