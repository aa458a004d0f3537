"""Find the nodes that the machine computes together, in the accumulators of one layer, and lower them to that layer.

A tensor between two such nodes never reaches DRAM: exactly one node reads it, and it is no output of the graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from tilewright.graph.ir import Graph, Site
from tilewright.graph.ops import Add, Conv2D, DepthwiseConv2D, FullyConnected, MaxPool2D
from tilewright.targets.vta.compiler.layer import result_phase
from tilewright.targets.vta.compiler.lower import lower
from tilewright.targets.vta.compiler.lowered import Context, Lowered
from tilewright.targets.vta.compiler.residual import rounds_once, with_residual
from tilewright.targets.vta.compiler.search import WORTH, least
from tilewright.targets.vta.compiler.start import started


def joint(graph: Graph, takes: Callable[[tuple[Site, ...]], bool]) -> dict[str, tuple[Site, ...]]:
    """Return, by the name of each node that is computed together with others, all these nodes in order.

    `takes`: whether the machine can compute some nodes together.
    """
    readers = Counter(name for node in graph.nodes for name in node.inputs)
    inner = {name for name, count in readers.items() if count == 1} - set(graph.results)
    makers: dict[str, Site] = {}
    found: dict[str, tuple[Site, ...]] = {}
    for site in graph.sites():
        for name in site.node.inputs:
            maker = makers.get(name) if name in inner else None
            if maker is None:
                continue
            sites = (*found.get(maker.node.name, (maker,)), site)
            if _fits(sites, makers) and takes(sites):
                found |= dict.fromkeys((each.node.name for each in sites), sites)
                break
        makers |= dict.fromkeys(site.node.outputs, site)
    return found


def lower_all(sites: tuple[Site, ...], context: Context) -> Lowered | str:
    """Return the layer that nodes become together, or the reason why they do not become one."""
    added = len(sites) > 1 and isinstance(sites[1].node.op, Add)
    found = lower(with_residual(*sites) if added else sites[0], context)
    if added and not isinstance(found, str) and (context.rounding.elementwise != "pow2" or not found.layer.residual):
        found = "its rounding, or the host, comes between its sums and the addition"
    for site in sites[2 if added else 1 :]:
        if isinstance(found, str):
            break
        found = _pooled(found, sites[0], site, context)
    return found if isinstance(found, str) else _started(found, context)


def _started(found: Lowered, context: Context) -> Lowered:
    """Return a layer with the start of its accumulators (see start.py) for which the search's bounds are lower.

    With three stages, a start on the ALU takes fewer cycles of the one unit that computes. With four, it may only make
    the ALU wait for stores, if GEMM has time to clear.
    """
    config, timing = context.config, context.timing
    other = started(found, config)
    if other is found or config.stages == 3:
        return other
    better = least(other.layer, config, timing) < (1 - WORTH) * least(found.layer, config, timing)
    return other if better else found


def _fits(sites: tuple[Site, ...], makers: Mapping[str, Site]) -> bool:
    """Return whether the last of some nodes is of a kind that can work on the accumulators of those before it.

    `makers`: the sites of earlier nodes by output.
    """
    first, last = sites[0].node.op, sites[-1].node.op
    if len(sites) > 2 or not isinstance(first, Conv2D | DepthwiseConv2D | FullyConnected):
        return False
    return isinstance(last, MaxPool2D) or (isinstance(last, Add) and rounds_once(sites[0], sites[1], makers))


def _pooled(found: Lowered, first: Site, site: Site, context: Context) -> Lowered | str:
    """Return the layer `found` of node `first` with a maximum pool on its sums, or the reason why there is none.

    The largest sum has the largest code only if all sums of a channel get the same bias.
    """
    op, layer, codes = site.node.op, found.layer, found.layer.codes
    assert isinstance(op, MaxPool2D)
    window, x, out, grid = op.window, site.input(0), site.output, site.input(0).shape[1:3]
    if layer.residual:
        return "a residual joins the sums of its input"
    if codes is None or codes.biases > 1 or layer.fold > 1 or (layer.matrix and context.config.batch > 1):
        return "its input's codes differ from its sums by more than a scale"
    if (x.dtype, x.scale, x.zero_point) != (out.dtype, out.scale, out.zero_point) or op.activation != "none":
        return "its output has another range than its input"
    if any(result_phase(window, axis, grid[axis], out.shape[1 + axis]) is None for axis in (0, 1)):
        return "its windows share more than their borders"
    rows, columns = out.shape[1:3]
    codes = replace(codes, rows=(0,) * rows, columns=(0,) * columns)
    size, grid = ((grid[0], grid[1]),) * 2 if layer.matrix else (layer.size, (grid[0], grid[1]))
    return replace(found, layer=replace(layer, size=size, grid=grid, out=(rows, columns), pool=window, codes=codes))
