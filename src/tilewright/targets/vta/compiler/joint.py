"""Find the nodes that the machine computes together, in the accumulators of one layer, and lower them to that layer.

A tensor between two such nodes never reaches DRAM: exactly one node reads it, and it is no output of the graph.

How the accumulators of a group start is decided here too, so that neither GEMM clears them nor the ALU adds a bias to
their sums. A group finds in its accumulators what an earlier group left: results that were clipped, at least FLOOR. The
minimum of them and of anything at most FLOOR is the latter. So one ALU micro-op sets a tile to its bias less a constant
K, if no bias is above K + FLOOR. K is a multiple of 2^(shift + 8): it leaves the low byte of a shifted sum as it is, if
the bounds of the clip are lower by K / 2^shift. Four stages gain most, because the unit that multiplies does nothing
else. The operation REQ adds the bias itself: there, FLOOR is the start, and the bias is higher by -FLOOR. So it is
where the ALU shifts a residual left, for a bias in the accumulators would be shifted too. A pool leaves sums that were
not clipped: with four stages, where the ALU has time, it first shifts them right until they are above FLOOR.
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
from tilewright.targets.vta.compiler.epilogue import FLOOR
from tilewright.targets.vta.compiler.layer import Codes, Layer, result_phase
from tilewright.targets.vta.compiler.lower import lower
from tilewright.targets.vta.compiler.lowered import Context, Lowered
from tilewright.targets.vta.compiler.search import WORTH, least
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.launch.layouts import CODE_MAX, CODE_MIN


def joint(graph: Graph, takes: Callable[[tuple[Site, ...]], bool]) -> dict[str, tuple[Site, ...]]:
    """Return, by the name of each node that is computed together with others, all these nodes in order.

    `takes`: whether the machine can compute some nodes together.
    """
    readers = Counter(name for node in graph.nodes for name in node.inputs)
    inner = {name for name, count in readers.items() if count == 1} - set(graph.results)
    makers: dict[str, Site] = {}
    groups: dict[str, tuple[Site, ...]] = {}
    for site in graph.sites():
        for name in site.node.inputs:
            maker = makers.get(name) if name in inner else None
            if maker is None:
                continue
            sites = (*groups.get(maker.node.name, (maker,)), site)
            if _can_join(sites, makers) and takes(sites):
                groups |= dict.fromkeys((each.node.name for each in sites), sites)
                break
        makers |= dict.fromkeys(site.node.outputs, site)
    return groups


def _can_join(sites: tuple[Site, ...], makers: Mapping[str, Site]) -> bool:
    first, last = sites[0].node.op, sites[-1].node.op
    if len(sites) > 2 or not isinstance(first, Conv2D | DepthwiseConv2D | FullyConnected):
        return False
    return isinstance(last, MaxPool2D) or (isinstance(last, Add) and _rounds_once(sites[0], sites[1], makers))


def lower_all(sites: tuple[Site, ...], context: Context) -> Lowered | str:
    """Return the layer that nodes become together, or the reason why they do not become one."""
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
    """Return the layer of node `first` with a maximum pool on its sums, or the reason why there is none.

    The largest sum has the largest code only if all sums of a channel get the same bias.
    """
    op = site.node.op
    layer = lowered.layer
    codes = lowered.layer.codes
    assert isinstance(op, MaxPool2D)
    window = op.window
    x = site.input(0)
    out = site.output
    height, width = site.input(0).shape[1:3]
    if layer.residual:
        return "a residual joins the sums of its input"
    if codes is None or codes.biases > 1 or layer.fold > 1 or (layer.matrix and context.config.batch > 1):
        return "its input's codes differ from its sums by more than a scale"
    if (x.dtype, x.scale, x.zero_point) != (out.dtype, out.scale, out.zero_point) or op.activation != "none":
        return "its output has another range than its input"
    rows, columns = out.shape[1:3]
    if None in (result_phase(window, 0, height, rows), result_phase(window, 1, width, columns)):
        return "its windows share more than their borders"
    codes = replace(codes, rows=(0,) * rows, columns=(0,) * columns)
    size = (height, width) if layer.matrix else layer.size
    grid = (height, width)
    return replace(lowered, layer=replace(layer, size=size, grid=grid, out=(rows, columns), pool=window, codes=codes))


def _started(lowered: Lowered, context: Context) -> Lowered:
    """Return a layer with the start of its accumulators for which the search's bounds are lower.

    With three stages, a start on the ALU takes fewer cycles of the one unit that computes. With four, it may only make
    the ALU wait for stores, if GEMM has time to clear.
    """
    config = context.config
    timing = context.timing
    layer = lowered.layer
    codes = layer.codes
    tiles = lowered.parameters
    if codes is None or tiles is None or layer.kind != "sum" or (layer.pool and config.stages == 3):
        return lowered
    biases = tiles[:, : codes.biases].astype(np.int64)
    left = layer.residual.left if layer.residual else 0
    if codes.immediates is None or left:
        # Three stages: GEMM clears a tile in one cycle, as the ALU would.
        moved = (biases - (FLOOR << left), replace(codes, start="constant")) if config.stages == 4 else None
    else:
        moved = _moved(biases, codes)
    if moved is None or not _stay_inside(layer, moved[0], config):
        return lowered
    other = replace(layer, codes=moved[1])
    if config.stages == 4 and least(other, config, timing) >= (1 - WORTH) * least(layer, config, timing):
        return lowered
    tiles = tiles.copy()
    tiles[:, : codes.biases] = moved[0]
    return replace(lowered, layer=other, parameters=tiles)


def _moved(biases: Array, codes: Codes) -> tuple[Array, Codes] | None:
    """Return biases less K, and codes whose bounds are lower by K / 2^shift; None if there is no such K."""
    immediates = codes.immediates
    if immediates is None or immediates.shift is None:
        return None
    unit = 1 << (immediates.shift + 8)
    times = -(-(int(biases.max()) - FLOOR) // unit)
    low, high = (bound - (times << 8) for bound in (immediates.low, immediates.high))
    if low < FLOOR:
        return None
    return biases - times * unit, replace(codes, start="bias", immediates=immediates._replace(low=low, high=high))


def _stay_inside(layer: Layer, biases: Array, config: Config) -> bool:
    """Return whether each sum of products, with these biases, has two bits less than the accumulators.

    Then no sum leaves the accumulators, and a right shift by LARGEST_SHIFT of a sum of 32 bits is at least FLOOR.
    """
    most = layer.taps * layer.depth * config.block * CODE_MIN * CODE_MIN
    if layer.residual and layer.residual.after is None:
        most += -(FLOOR + (CODE_MIN << layer.residual.weight)) << layer.residual.left
    reach = max(abs(int(biases.max())), abs(int(biases.min()))) + most - FLOOR
    return reach < 1 << (config.acc.width - 2)


def with_residual(product: Site, add: Site) -> Site:
    """Return a product and the addition that alone reads its result as one node, which rounds once."""
    op = add.node.op
    (other,) = (at for at in (0, 1) if add.node.inputs[at] != product.output.name)
    assert isinstance(op, Add) and isinstance(product.node.op, Linear)
    bias = product.optional(2)
    inputs = (product.input(0), product.input(1), bias, add.input(other))
    names = tuple(tensor.name if tensor else "" for tensor in inputs)
    node = replace(product.node, op=replace(product.node.op, activation=op.activation), inputs=names)
    return Site(replace(node, outputs=add.node.outputs), inputs, add.outputs)


def _rounds_once(product: Site, add: Site, makers: Mapping[str, Site]) -> bool:
    """Return whether, in the rounding mode `pow2`, a product and an addition give the same codes if rounded once.

    They do if the addition does not round, that is if its operands and its result have one scale, and if the codes of
    the product that saturate give a sum that the addition's clip makes the same: the residual is not negative, and so
    is the result. `makers`: the sites of earlier nodes by output.
    """
    op = product.node.op
    y = product.output
    out = add.output
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
    computed = whole.input(3).data is None and _least_code(whole.node.inputs[3], makers) >= 0
    return lifted and computed and (low, high) == (0, CODE_MAX)


def _least_code(name: str, makers: Mapping[str, Site]) -> int:
    """Return a lower bound of the codes of an int8 tensor with zero point 0."""
    site = makers.get(name)
    if site is None:
        return CODE_MIN
    op = site.node.op
    out = site.output
    if isinstance(op, Linear | Add | Mul | Clamp):
        return clamp_range(op.activation, out.scale, 0, out.dtype)[0]
    return _least_code(site.node.inputs[0], makers) if isinstance(op, MaxPool2D | Reshape) else CODE_MIN
