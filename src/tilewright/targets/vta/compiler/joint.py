"""Fuse nodes that the machine computes as one layer, and decide how the accumulators of a layer start.

Two nodes are fused if the second node reads the sums of the first: a convolution and a maximum pool, or a product and
an addition. The tensor between the two nodes never reaches DRAM. So this tensor must not be a graph output, and only
the second node may read it.

Usually GEMM clears the accumulators of a group, and the ALU later adds the bias. Instead, one ALU micro-op per tile can
do both: it replaces each accumulator by the minimum of its value and the bias. This method has two parts:

- The accumulators have results of an earlier group. These results were clipped, so they are not below FLOOR. If no bias
  is above FLOOR, the minimum is the bias.
- To bring all biases down to FLOOR, a constant K is subtracted from them. K is a multiple of 2^(shift + 8), so the low
  byte of a shifted sum stays the same. Also, K / 2^shift is subtracted from the bounds of the clip.

Machines with four stages gain most, because their GEMM unit then only multiplies. Three cases differ:

- The operation REQ adds the bias itself. The accumulators then start with FLOOR, and the bias is higher by -FLOOR.
- The accumulators also start with FLOOR if the ALU shifts a residual left, because the shift would include a bias.
- A pool leaves sums that were not clipped. With four stages, the ALU has time to shift these sums right first, until
  none is below FLOOR.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from tilewright.array import Array
from tilewright.errors import ModelError
from tilewright.graph.ir import Graph, Site
from tilewright.graph.ops import Add, Clamp, Conv2D, DepthwiseConv2D, FullyConnected, Linear, MaxPool2D, Mul, Reshape
from tilewright.graph.rounding import clamp_range
from tilewright.graph.tensor import code_limits
from tilewright.targets.vta.compiler.epilogue import FLOOR
from tilewright.targets.vta.compiler.layer import Layer, Requantisation, result_phase
from tilewright.targets.vta.compiler.lower import lower
from tilewright.targets.vta.compiler.lowered import Context, Lowered
from tilewright.targets.vta.compiler.search import WORTH, least
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.launch.layouts import CODE_MIN


def fused_nodes(graph: Graph, takes: Callable[[tuple[Site, ...]], bool]) -> dict[str, tuple[Site, ...]]:
    """Return the nodes of each fused layer, by the name of each node. `takes` decides if nodes can be one layer."""
    readers = Counter(name for node in graph.nodes for name in node.inputs)
    inner = {name for name, count in readers.items() if count == 1} - set(graph.results)
    makers: dict[str, Site] = {}
    groups: dict[str, tuple[Site, ...]] = {}
    for site in graph.sites():
        # The first operand whose node can be extended is fused. A node belongs to at most one layer.
        for name in site.node.inputs:
            maker = makers.get(name) if name in inner else None
            if maker is None:
                continue
            sites = (*groups.get(maker.node.name, (maker,)), site)
            if _can_join(sites, makers) and takes(sites):
                groups |= dict.fromkeys((member.node.name for member in sites), sites)
                break
        makers |= dict.fromkeys(site.node.outputs, site)
    return groups


def _can_join(sites: tuple[Site, ...], makers: Mapping[str, Site]) -> bool:
    first, last = sites[0].node.op, sites[-1].node.op
    if len(sites) > 2 or not isinstance(first, Conv2D | DepthwiseConv2D | FullyConnected):
        return False
    return isinstance(last, MaxPool2D) or (isinstance(last, Add) and _rounds_once(sites[0], sites[1], makers))


def lower_fused(sites: tuple[Site, ...], context: Context) -> Lowered | str:
    """Return the layer that computes fused nodes, or the reason why one layer cannot compute them."""
    added = len(sites) > 1 and isinstance(sites[1].node.op, Add)
    lowered = lower(with_residual(*sites) if added else sites[0], context)
    if (
        added
        and not isinstance(lowered, str)
        and (context.rounding.elementwise != "pow2" or not lowered.layer.residual)
    ):
        return "its rounding, or the host, comes between its sums and the addition"
    for site in sites[2 if added else 1 :]:
        if isinstance(lowered, str):
            break
        lowered = _pooled(lowered, sites[0], site, context)
    return lowered if isinstance(lowered, str) else _started(lowered, context)


def _pooled(lowered: Lowered, first: Site, site: Site, context: Context) -> Lowered | str:
    """Return the layer of node `first` with a maximum pool on the sums, or the reason why this is not possible.

    The largest sum has the largest code only if all sums of a channel get the same bias.
    """
    op = site.node.op
    layer = lowered.layer
    requantisation = lowered.layer.requantisation
    assert isinstance(op, MaxPool2D)
    window = op.window
    x = site.input(0)
    out = site.output
    height, width = site.input(0).shape[1:3]
    if layer.residual:
        return "a residual joins the sums of its input"
    if (
        requantisation is None
        or requantisation.biases > 1
        or layer.fold > 1
        or (layer.matrix and context.config.batch > 1)
    ):
        return "its input's codes differ from its sums by more than a scale"
    if (x.dtype, x.scale, x.zero_point) != (out.dtype, out.scale, out.zero_point) or op.activation != "none":
        return "its output has another range than its input"
    # Each window needs a separate accumulator for the maximum.
    rows, columns = out.shape[1:3]
    if None in (result_phase(window, 0, height, rows), result_phase(window, 1, width, columns)):
        return "its windows share more than their borders"
    requantisation = replace(requantisation, rows=(0,) * rows, columns=(0,) * columns)
    size = (height, width) if layer.matrix else layer.size
    grid = (height, width)
    return replace(
        lowered,
        layer=replace(layer, size=size, grid=grid, out=(rows, columns), pool=window, requantisation=requantisation),
    )


def _started(lowered: Lowered, context: Context) -> Lowered:
    """Let the ALU start the accumulators of a layer (see the module), if this may take fewer cycles.

    With three stages, this always saves cycles of the unit that runs GEMM and ALU. With four stages, GEMM may have time
    to clear the accumulators, and the ALU may only wait for stores, so the lower bounds of both variants are compared.
    """
    config = context.config
    timing = context.timing
    layer = lowered.layer
    requantisation = layer.requantisation
    tiles = lowered.parameters
    if requantisation is None or tiles is None or layer.kind != "sum" or (layer.pool and config.stages == 3):
        return lowered
    biases = tiles[:, : requantisation.biases].astype(np.int64)
    left = layer.residual.left if layer.residual else 0
    if requantisation.immediates is None or left:
        # With three stages this saves nothing: GEMM clears a tile in one cycle, as the ALU does.
        moved = (biases - (FLOOR << left), replace(requantisation, start="constant")) if config.stages == 4 else None
    else:
        moved = _moved(biases, requantisation)
    if moved is None or not _stay_inside(layer, moved[0], config):
        return lowered
    restarted = replace(layer, requantisation=moved[1])
    if config.stages == 4 and least(restarted, config, timing) >= (1 - WORTH) * least(layer, config, timing):
        return lowered
    tiles = tiles.copy()
    tiles[:, : requantisation.biases] = moved[0]
    return replace(lowered, layer=restarted, parameters=tiles)


def _moved(biases: Array, requantisation: Requantisation) -> tuple[Array, Requantisation] | None:
    """Subtract K from biases, and K / 2^shift from the bounds of their requantisation; return both.

    Returns None if no constant K (see the module) makes all biases small enough and keeps the bounds in 16 bits.
    """
    immediates = requantisation.immediates
    if immediates is None or immediates.shift is None:
        return None
    unit = 1 << (immediates.shift + 8)
    # K = times * unit is the smallest multiple that brings every bias to FLOOR or below.
    times = -(-(int(biases.max()) - FLOOR) // unit)
    low, high = (bound - (times << 8) for bound in (immediates.low, immediates.high))
    if low < FLOOR:
        return None
    return biases - times * unit, replace(
        requantisation, start="bias", immediates=immediates._replace(low=low, high=high)
    )


def _stay_inside(layer: Layer, biases: Array, config: Config) -> bool:
    """Return whether each sum of products, with these biases, leaves two bits of the accumulator unused.

    In this case no sum overflows, and a 32-bit sum shifted right by LARGEST_SHIFT is not below FLOOR.
    """
    # `most` is the largest sum of products. If a residual is shifted left with the start value, `most` includes both.
    most = layer.taps * layer.depth * config.block * CODE_MIN * CODE_MIN
    if layer.residual and layer.residual.after is None:
        most += -(FLOOR + (CODE_MIN << layer.residual.weight)) << layer.residual.left
    reach = max(abs(int(biases.max())), abs(int(biases.min()))) + most - FLOOR
    return reach < 1 << (config.acc.width - 2)


def with_residual(product: Site, add: Site) -> Site:
    """Fuse a product and the addition that reads the product into one node, which rounds once."""
    op = add.node.op
    (operand,) = (at for at in (0, 1) if add.node.inputs[at] != product.output.name)
    assert isinstance(op, Add) and isinstance(product.node.op, Linear)
    bias = product.optional(2)
    inputs = (product.input(0), product.input(1), bias, add.input(operand))  # input 3 is the residual
    names = tuple(tensor.name if tensor else "" for tensor in inputs)
    node = replace(product.node, op=replace(product.node.op, activation=op.activation), inputs=names)
    return Site(replace(node, outputs=add.node.outputs), inputs, add.outputs)


def _rounds_once(product: Site, add: Site, makers: Mapping[str, Site]) -> bool:
    """Return whether rounding once keeps the codes of a product and an addition, in rounding mode `pow2`.

    `makers`: the earlier nodes, by output name.
    """
    op = product.node.op
    y = product.output
    out = add.output
    assert isinstance(op, Linear) and isinstance(add.node.op, Add)
    # First condition: the addition must not round, so its operands and result must have one scale.
    tensors = [*(add.optional(at) for at in (0, 1)), out]
    if any(tensor is None or tensor.quant != y.quant or tensor.dtype != "int8" for tensor in tensors):
        return False
    if y.quant is None or y.zero_point or y.quant.per_channel or op.shift or op.residual(product):
        return False
    if op.activation != "none" or add.node.inputs[0] == add.node.inputs[1] or add.input(0).shape != add.input(1).shape:
        return False
    whole = with_residual(product, add)
    low, high = clamp_range(add.node.op.activation, out.scale, 0, out.code_type)
    try:
        lifted = whole.node.op.shapes(whole) == (out.shape,)
    except ModelError:  # the scale of the sums is no power of two
        return False
    # Second condition: saturation of the product must not change the result. This holds if neither the residual nor the
    # result can be negative: then the clip of the addition gives the same code.
    computed = whole.input(3).data is None and _least_code(whole.node.inputs[3], makers) >= 0
    return lifted and computed and (low, high) == (0, code_limits(out.code_type)[1])


def _least_code(name: str, makers: Mapping[str, Site]) -> int:
    site = makers.get(name)
    if site is None:
        return CODE_MIN
    op = site.node.op
    out = site.output
    if isinstance(op, Linear | Add | Mul | Clamp):
        return clamp_range(op.activation, out.scale, 0, out.code_type)[0]
    return _least_code(site.node.inputs[0], makers) if isinstance(op, MaxPool2D | Reshape) else CODE_MIN
