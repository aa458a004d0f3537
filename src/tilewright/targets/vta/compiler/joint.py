"""Find the nodes that the machine computes together, in the accumulators of one layer, and lower them to that layer.

A tensor between two such nodes never reaches DRAM: exactly one node reads it, and it is no output of the graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from tilewright.graph.ir import Graph, Site
from tilewright.targets.vta.compiler.lower import lower
from tilewright.targets.vta.compiler.lowered import Context, Lowered


def joint(graph: Graph, takes: Callable[[tuple[Site, ...]], bool]) -> dict[str, tuple[Site, ...]]:
    """Return, by the name of each node that is computed together with others, all these nodes in order.

    `takes`: whether the machine can compute some nodes together.
    """
    readers = Counter(name for node in graph.nodes for name in node.inputs)
    inner = {name for name, count in readers.items() if count == 1} - set(graph.outputs)
    makers: dict[str, Site] = {}
    found: dict[str, tuple[Site, ...]] = {}
    for site in graph.sites():
        for name in site.node.inputs:
            maker = makers.get(name) if name in inner else None
            if maker is None:
                continue
            sites = (*found.get(maker.node.name, (maker,)), site)
            if _fits(sites) and takes(sites):
                found |= dict.fromkeys((each.node.name for each in sites), sites)
                break
        makers |= dict.fromkeys(site.node.outputs, site)
    return found


def lower_all(sites: tuple[Site, ...], context: Context) -> Lowered | str:
    """Return the layer that nodes become together, or the reason why they do not become one."""
    found = lower(sites[0], context)
    for site in sites[1:]:
        if isinstance(found, str):
            break
        found = f"{site.node.op.label} is a layer of its own"
    return found


def _fits(sites: Iterable[Site]) -> bool:
    """Return whether the last of some nodes is of a kind that can work on the accumulators of those before it."""
    return False
