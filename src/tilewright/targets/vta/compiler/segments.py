"""Where a launch keeps its tensors: segments of DRAM, and what the host must know of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.targets.vta.compiler.chain import Chain, Member, View, operands
from tilewright.targets.vta.compiler.emit import Names, Place
from tilewright.targets.vta.config import Config


def places(chain: Chain) -> dict[int, Place]:
    """The place of each member's result: a segment of its own, or behind others in one."""
    number = len(chain.members) > 1
    found = {}
    for members in chain.segments:
        first = members[0]
        kind = "out" if chain.members[first].lowered.layer.closed else "acc"
        at = 0
        for member in members:
            found[member] = Place(f"{kind}{first if number else ''}", at)
            layer = chain.members[member].lowered.layer
            at += layer.planes * layer.out_tiles * layer.out_pixels
    return found


def names(index: int, member: Member, members: Sequence[Member], where: Mapping[int, Place]) -> Names:
    """The segments of a member, numbered where there are several members."""
    number = str(index) if len(members) > 1 else ""
    inputs = tuple(
        where[made[0]] if made else Place(f"x{number}{'b' * operand}") for operand, made in enumerate(member.reads)
    )
    return Names(f"wgt{number}", f"par{number}", inputs, where[index])


def kinds(chain: Chain, named: Sequence[Names], where: Mapping[int, Place], wanted: set[str]) -> dict[str, str]:
    """What each segment is to the host: it gives back those with a result that is wanted."""
    found = {"uop": "const"}
    for member, name in zip(chain.members, named, strict=True):
        found |= {name.weights: "input" if member.lowered.tiles is None else "const", name.parameters: "const"}
        found |= {place.segment: "input" for place, made in zip(name.inputs, member.reads, strict=True) if not made}
        found.setdefault(name.result.segment, "scratch")
    for position, node in enumerate(chain.nodes):
        if _needed(node, wanted):
            found[where[_first(chain, position)].segment] = "output"
    return found


def layers(
    chain: Chain, named: Sequence[Names], where: Mapping[int, Place], wanted: set[str], config: Config
) -> list[dict[str, Any]]:
    """What the host must know of each node: how its input and its result lie, and for people its plan."""
    found = []
    for position, node in enumerate(chain.nodes):
        first = _first(chain, position)
        form = _view(node) if isinstance(node, View) else _layer(node, named[first])
        place = where[first] if _needed(node, wanted) else None
        common = {"node": node.site.node.name, "batch": config.batch, "block": config.block}
        result = {"result": place.segment if place else None, "first": place.first if place else 0}
        found.append(common | result | form)
    return found


def _first(chain: Chain, position: int) -> int:
    """The number of the first member that makes a node's result."""
    node = chain.nodes[position]
    return node.made[0] if isinstance(node, View) else chain.members.index(node)


def _needed(node: Member | View, wanted: set[str]) -> bool:
    return node.site.output.name in wanted or (isinstance(node, Member) and not node.lowered.layer.closed)


def _layer(member: Member, name: Names) -> dict[str, Any]:
    layer = member.lowered.layer
    chunks = [[*outs, *sums] for outs, sums in member.plan.weight_chunks] if member.lowered.tiles is None else []
    read = list(zip(name.inputs, operands(member.site, layer), member.reads, strict=True))
    return {
        "inputs": [place.segment for place, _, made in read if not made],
        "tensors": [tensor for _, tensor, made in read if not made],
        "weights": name.weights if chunks else None,
        "chunks": chunks,
        "matrix": layer.matrix,
        "codes": layer.closed,
        "in_tiles": layer.in_tiles,
        "in_pixels": layer.size[0] * layer.size[1],
        "out_tiles": layer.out_tiles,
        "out_pixels": layer.out_pixels,
        "planes": layer.planes,
        "fold": layer.fold,
        "plan": member.plan.dump(),
    }


def _view(view: View) -> dict[str, Any]:
    layout = view.layout
    return {
        "inputs": [],
        "tensors": [],
        "weights": None,
        "matrix": False,
        "codes": True,
        "in_tiles": layout.channel_tiles,
        "in_pixels": layout.pixels,
        "out_tiles": layout.channel_tiles,
        "out_pixels": layout.pixels,
        "planes": 1,
        "fold": 1,
        "plan": "where it is read, no instructions",
    }
