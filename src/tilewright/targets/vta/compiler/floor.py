"""Lower bounds for all programs that the compiler can make for a network, from the shapes of the network alone.

A program multiplies each code by all its weights, and reads each multiplied weight and code from DRAM. Products with
padding are not counted. Channels that are proven constant are not counted either, because the compiler leaves them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import gcd, prod
from typing import NamedTuple

import numpy as np

from tilewright.array import Array, ascending
from tilewright.graph.ir import Graph, Site, Tensor
from tilewright.graph.ops import Add, DepthwiseConv2D, Linear, MaxPool2D, Window
from tilewright.graph.ops.linear import Convolution
from tilewright.graph.rounding import Rounding
from tilewright.sim.events import Events
from tilewright.targets.vta.compiler.chain import chains_layers
from tilewright.targets.vta.compiler.constant import ranges, starts
from tilewright.targets.vta.compiler.lowered import Bounds
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.events import access, products
from tilewright.targets.vta.timing import MODELS


class NodeMinimum(NamedTuple):
    """The minimum work of any program for a node with weights. A code or weight is one byte."""

    products: int
    lanes: int  # the maximum number of products in one lane of the array in a micro-op
    weights: int  # the number of weights that are multiplied
    source: str  # the name of the input
    read: int  # the number of input codes that are multiplied
    written: int  # the number of result codes that must reach DRAM


def floor(graph: Graph, config: Config, rounding: Rounding, timing: str, host: frozenset[str]) -> Events:
    """Return a lower bound, over all programs, of the cycles (`cycles`) and of each event count.

    `host`: nodes that may run on the host.
    """
    least = _nodes(graph, rounding, not chains_layers(config, rounding))
    nodes = [node for name, node in least.items() if name not in host]
    rows = config.batch
    block = config.block
    # In a micro-op, each of the rows * block lanes of the array does at most min(block, lanes) useful products.
    micro_ops = sum(-(-node.products // (rows * block * min(block, node.lanes))) for node in nodes)
    weights = sum(node.weights for node in nodes) * config.wgt.width // 8
    written = sum(node.written for node in nodes) * config.out.width // 8
    sources: dict[str, int] = {}
    for node in nodes:  # one read of a tensor may serve several nodes
        sources[node.source] = max(node.read, sources.get(node.source, 0))
    codes = sum(sources.values()) * config.inp.width // 8
    beat = config.bus_bits // 8
    work = micro_ops * MODELS[timing].intervals(config).gemm
    return Events(
        (products(config, micro_ops),),
        accesses=(
            access(config.inp, micro_ops, codes // config.inp.tile_bytes),
            access(config.wgt, micro_ops, weights // config.wgt.tile_bytes),
            access(config.acc, micro_ops, micro_ops),
        ),
        read_bytes=weights + codes,
        write_bytes=written,
        cycles=max(work, -(-(weights + codes) // beat), -(-written // beat)),
    )


@lru_cache(maxsize=64)
def _nodes(graph: Graph, rounding: Rounding, constants: bool) -> dict[str, NodeMinimum]:
    """Return the minimum work of each node with weights. With `constants`, channels proven constant may be left out."""
    proven = ranges(graph, rounding) if constants else {}
    readers: dict[str, list[Site]] = {}
    for site in graph.sites():
        for name in site.node.inputs:
            readers.setdefault(name, []).append(site)
    return {
        site.node.name: _least(site, proven, readers.get(site.output.name, []), site.output.name in graph.results)
        for site in graph.sites()
        if isinstance(site.node.op, Linear) and site.input(1).data is not None
    }


def _least(site: Site, proven: dict[str, Bounds], readers: Sequence[Site], is_output: bool) -> NodeMinimum:
    op = site.node.op
    x = site.input(0)
    out = site.output
    weights = site.input(1)
    assert isinstance(op, Linear)
    window = op.window if isinstance(op, Convolution) else Window()
    outputs = out.shape[-1]
    start = starts(site, op)
    depth = weights.size // prod(window.kernel) // outputs
    channels = int(start[-1]) + depth  # channels of a matrix row, which may join several pixels
    varies = _varies(x, proven) if x.shape[-1] == channels else np.ones(channels, np.bool_)
    computed = _varies(out, proven)
    reads = np.append(0, np.cumsum(varies))
    pairs = int((reads[start + depth] - reads[start])[computed].sum())  # (output channel, input channel)
    if isinstance(op, DepthwiseConv2D):
        varies = np.isin(np.arange(len(varies)), start[computed]) & varies
    within = readers[0] if len(readers) == 1 and not is_output else None
    if isinstance(op, Convolution):
        axes = [_axis(site, window, axis, within) for axis in (0, 1)]
        met, taps, pixels = (prod(counts) for counts in zip(*axes, strict=True))
    else:
        met = (rows := x.size // depth)
        taps = 1
        pixels = rows
    # Several taps may multiply one input code, each for another output. One micro-op can do all these products.
    reuse = prod(-(-k * gcd(s, d) // s) for k, s, d in zip(window.kernel, window.stride, window.dilation, strict=True))
    lanes = min(prod(window.kernel) * depth, outputs * depth // channels * reuse)
    joined = within is not None and isinstance(within.node.op, Add | MaxPool2D)  # the sums may stay in the machine
    reaches = (readers or is_output) and not joined
    written = out.size // outputs * int(computed.sum()) if reaches else 0
    return NodeMinimum(met * pairs, lanes, taps * pairs, x.name, pixels * int(varies.sum()), written)


def _varies(tensor: Tensor, proven: dict[str, Bounds]) -> Array:
    return ~proven[tensor.name].constant if tensor.name in proven else np.ones(tensor.shape[-1], np.bool_)


def _axis(site: Site, window: Window, axis: int, reader: Site | None) -> tuple[int, int, int]:
    """Count (output, tap) pairs inside the image, taps that are ever inside, and pixels read, along an axis."""
    at = np.arange(site.output.shape[1 + axis])
    # If only a maximum pool reads the outputs, the machine must compute only the outputs that this pool reads.
    if reader and isinstance(reader.node.op, MaxPool2D):
        at = np.intersect1d(at, _taps(reader.node.op.window, axis, np.arange(reader.output.shape[1 + axis])))
    taps = _taps(window, axis, at)
    inside = (taps >= 0) & (taps < site.input(0).shape[1 + axis])
    return int(inside.sum()), int(inside.any(axis=0).sum()), len(ascending(taps[inside]))


def _taps(window: Window, axis: int, at: Array) -> Array:
    """Return the input position along an axis for each output in `at` and each window tap, int64 [outputs, taps]."""
    first: Array = at[:, None] * window.stride[axis] - window.padding[2 * axis]
    return first + np.arange(window.kernel[axis]) * window.dilation[axis]
