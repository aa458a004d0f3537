"""Prove ranges of codes for each channel, and find the channels that a layer on the machine need not compute.

Trained networks have channels whose code is the same for every input, because rounding and clamping leave only one
value. The machine neither computes such a channel nor reads it as an input. The host inserts the constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Graph, Site, Tensor
from tilewright.graph.ops import AveragePool2D, DepthwiseConv2D, FullyConnected, Linear, MaxPool2D, Reshape
from tilewright.graph.ops.linear import centre
from tilewright.graph.rounding import INT32_MAX, Requant, Rounding
from tilewright.graph.tensor import code_limits
from tilewright.targets.vta.compiler.lowered import Bounds
from tilewright.targets.vta.launch.layouts import CODE_DTYPES, held_offset, held_zero_point

#: A cache of `ReducedLayer.sums`, by weight tensor and shape of `w`: a network is often compiled for many machines.
_SUMS: WeakKeyDictionary[Tensor, dict[tuple[int, ...], tuple[int, int]]] = WeakKeyDictionary()
#: The number of weights whose products are in memory at a time.
TOGETHER = 1 << 18


class ReducedLayer(NamedTuple):
    """The part of a linear layer that the machine computes."""

    w: Array  # int32 (O', T, K'): the weights of the kept channels
    start: Array  # int64 (O'): the first input channel of each output
    inputs: Array | None  # int64: the kept input channels; None if all are kept
    outputs: Array | None  # int64: the kept output channels; None if all are kept
    per_tap: Array  # int64 (O, T): the machine's sum minus the sum of centred codes, by tap inside the image
    fixed: Array  # int64 (O): the centred sums of constant outputs, which the machine does not compute
    constant: Array  # bool (O): whether an output is constant
    low: Array  # int64 [K']: the lowest code, as the machine holds it
    high: Array  # int64 [K']: the highest code
    whole: Tensor | None = None  # the weight tensor, if nothing is left out and codes can have any value

    @property
    def sums(self) -> tuple[int, int]:
        """The bounds of the sums that the machine computes, for any subset of the taps: low <= 0 <= high."""
        cached = _SUMS.setdefault(self.whole, {}) if self.whole else {}
        if self.w.shape not in cached:
            least, most = sums_of(self.w, self.start, self.low, self.high, padded=True)
            cached[self.w.shape] = int(least.min()), int(most.max())
        return cached[self.w.shape]

    def corrected(self, correction: Array) -> Array:
        """Return the correction of all sums, int32 [row class, column class, O]; -fixed for constant outputs."""
        return np.where(self.constant, -self.fixed, correction).astype(np.int32)


def ranges(graph: Graph, rounding: Rounding) -> dict[str, Bounds]:
    """Return proven ranges by tensor name, for the tensors with a range narrower than the range of their dtype."""
    bounds: dict[str, Bounds] = {}
    for site in graph.sites():
        op = site.node.op
        x = site.inputs[0] if site.inputs else None
        if isinstance(op, Linear):
            if result := _of_linear(site, op, rounding, bounds):
                bounds[site.output.name] = result
        # The result of a pool lies between the codes in its window. A reshape keeps channels if the last axis stays.
        elif x is not None and x.name in bounds:
            pool = isinstance(op, AveragePool2D | MaxPool2D) and op.activation == "none"
            if pool or (isinstance(op, Reshape) and x.shape[-1:] == site.output.shape[-1:]):
                bounds[site.output.name] = bounds[x.name]
    return bounds


def codes_of(tensor: Tensor, proven: Mapping[str, Bounds]) -> Bounds:
    """Return the range of each channel of an 8-bit tensor. The channels are the last axis."""
    if tensor.name in proven:
        return proven[tensor.name]
    low, high = code_limits(tensor.code_type)
    channels = tensor.image[3]
    return Bounds(np.full(channels, low, np.int64), np.full(channels, high, np.int64))


def sums_of(w: Array, start: Array, low: Array, high: Array, padded: bool) -> tuple[Array, Array]:
    """Return the lowest and highest sum of each output, int64 (O), for weights (O, T, K) and values in `low`..`high`.

    Output o reads the K channels from `start[o]` on. `padded`: whether a tap may lie outside the image, and so add 0.
    """
    least, most = np.zeros((2, len(w)), np.int64)
    step = max(1, TOGETHER // max(1, w.shape[1] * w.shape[2]))
    for first in range(0, len(w), step):  # the products of all parts would take gigabytes
        part = slice(first, first + step)
        read = start[part, None, None] + np.arange(w.shape[2])
        ends = w[part] * low[read], w[part] * high[read]
        lower, upper = np.minimum(*ends), np.maximum(*ends)
        if padded:
            lower, upper = np.minimum(lower, 0, out=lower), np.maximum(upper, 0, out=upper)
        least[part] = lower.sum(axis=(1, 2))
        most[part] = upper.sum(axis=(1, 2))
    return least, most


def starts(site: Site, op: Linear) -> Array:
    """Return the first input channel that each output channel of an operator reads, int64 (O)."""
    weights = site.input(1).shape
    channels = site.input(0).shape[-1]
    if isinstance(op, DepthwiseConv2D):
        return np.arange(weights[3]) // (weights[3] // channels)
    outputs = weights[0]
    depth = weights[-1]
    # All output channels of a group read the same input channels.
    groups = 1 if isinstance(op, FullyConnected) else channels // depth
    return np.arange(outputs) // (outputs // groups) * depth


def centred_weights(site: Site, op: Linear) -> tuple[Array, Array]:
    """Return the centred weights of an operator, int32 (O, T, K), and each output's first input channel, int64 (O)."""
    w = centre(site.constant(1), site.input(1)).astype(np.int32)
    if isinstance(op, DepthwiseConv2D):
        return w.reshape(-1, w.shape[3]).T[:, :, None], starts(site, op)
    return w.reshape(len(w), -1, w.shape[-1]), starts(site, op)


def _of_linear(site: Site, op: Linear, rounding: Rounding, proven: Mapping[str, Bounds]) -> Bounds | None:
    """Return the ranges of an operator's output; None if the ranges of the operator's sums prove no range."""
    sums = proven_sums(site, op, rounding, proven)
    if sums is None:
        return None
    # Requantisation is monotonic, so the lowest and highest sum give the lowest and highest code.
    ends = op.finish(site, np.stack(sums).astype(np.int32), rounding).astype(np.int64)
    return Bounds(ends[0], ends[1])


def proven_sums(site: Site, op: Linear, rounding: Rounding, proven: Mapping[str, Bounds]) -> tuple[Array, Array] | None:
    """Return the bounds of an operator's centred sums, int64 (O); None if its requantisation may not be monotonic."""
    x = site.input(0)
    bias = site.optional(2)
    out = site.output
    if (
        op.shift is not None
        or op.residual(site)
        or x.dtype not in CODE_DTYPES
        or out.dtype not in CODE_DTYPES
        or site.input(1).data is None
        or (bias is not None and bias.data is None)
    ):
        return None
    w, start = centred_weights(site, op)
    if isinstance(op, FullyConnected) and x.shape[-1] != w.shape[2]:
        return None
    low, high = centred_sums(site, w, start, proven)
    added = np.abs(bias.data.astype(np.int64)).max() if bias is not None and bias.data is not None else 0
    requant = Requant.of_product(x, site.input(1), out, op.activation, rounding.delegated)
    if max(high.max(), -low.min()) + added > INT32_MAX or (requant.real >= 1).any():
        return None  # sums may wrap, or the rounding rule may not be monotonic
    return low, high


def centred_sums(site: Site, w: Array, start: Array, proven: Mapping[str, Bounds]) -> tuple[Array, Array]:
    """Return the bounds of the sums of centred codes (code - zero point), int64 (O), for weights (O, T, K)."""
    x = site.input(0)
    codes = codes_of(x, proven)
    window = getattr(site.node.op, "window", None)
    low, high = (end - x.zero_point for end in codes)
    return sums_of(w, start, low, high, padded=bool(window and any(window.padding)))


def reduce_layer(site: Site, w: Array, start: Array, proven: Mapping[str, Bounds] | None) -> ReducedLayer:
    """Return the part of a layer with weights w (O, T, K) that the machine computes. `proven`: the result of `ranges`.

    Output channel o reads K input channels from `start[o]` on. At least one input and one output are kept.
    """
    x = site.input(0)
    zero_point = held_zero_point(site.input(0))
    outputs = len(w)
    depth = w.shape[2]
    per_tap = w.sum(axis=2, dtype=np.int64) * zero_point
    alone = depth == 1 and np.array_equal(start, np.arange(outputs))
    channels = int(start[-1]) + depth  # the channels of a matrix row, which may join several pixels
    full = x.shape[-1] == channels and (depth == channels or alone)
    if proven is None or not full or (x.name not in proven and site.output.name not in proven):
        least, most = (np.full(channels, limit - held_offset(x), np.int64) for limit in code_limits(x.code_type))
        none = np.zeros(outputs, np.int64)
        return ReducedLayer(w, start, None, None, per_tap, none, none > 0, least, most, site.input(1))
    codes = codes_of(x, proven)
    results = codes_of(site.output, proven)
    # For an output that is proven constant, every sum gives the same code. The host requantises the lowest sum.
    fixed = centred_sums(site, w, start, proven)[0]
    needed = ~results.constant
    read = ~codes.constant
    held = codes.low - held_offset(x)
    if alone:
        both = needed & read  # a depthwise channel is either both read and computed, or left out
        both[0] |= not both.any()
        inputs = result = np.flatnonzero(both)
        per_tap -= np.where(~both[:, None], w[:, :, 0] * held[:, None], 0)
        w = w[both]
        start = np.arange(len(inputs))
    else:
        # At least one input and one output channel stay. `per_tap` includes the constant codes of the other inputs.
        read[0] |= not read.any()
        needed[0] |= not needed.any()
        inputs = np.flatnonzero(read)
        result = np.flatnonzero(needed)
        per_tap -= (w[:, :, ~read] * held[~read]).sum(axis=2, dtype=np.int64)
        w = w[needed][:, :, read]
        start = np.zeros(len(result), np.int64)
    low, high = (end[inputs] - held_offset(x) for end in codes)
    constant = results.constant & ~np.isin(np.arange(outputs), result)
    return ReducedLayer(w, start, inputs, result, per_tap, fixed, constant, low, high)
