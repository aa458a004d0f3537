"""Which layers become one launch: neighbours that finish on chip and hand each other tensors as they lie in DRAM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import NamedTuple

from tilewright.graph.ir import Graph, Site
from tilewright.graph.ops import Concat, Conv2D, DepthwiseConv2D, FullyConnected, MatMul, Reshape
from tilewright.graph.rounding import Rounding
from tilewright.program.program import HostStep
from tilewright.targets.vta.compiler.layer import Layer, columns_of
from tilewright.targets.vta.compiler.lower import lower
from tilewright.targets.vta.compiler.lowered import Context, Lowered
from tilewright.targets.vta.compiler.plan import Plan
from tilewright.targets.vta.compiler.search import best
from tilewright.targets.vta.config import Config


class Layout(NamedTuple):
    """How a tensor lies in DRAM: channels of a pixel, their tiles, tiles of pixels, and what shares a tile."""

    channels: int
    channel_tiles: int
    pixels: int
    fold: int
    columns: int  # of pixels in a row, where several share a tile
    rows: bool  # several rows of a matrix share a tile
    host: bool = False  # as only the host lays it out


@dataclass(frozen=True, eq=False)
class Member:
    """A node on the machine; `reads`: for each tensor that it reads, the members that make it; (): the host."""

    site: Site
    lowered: Lowered
    plan: Plan
    reads: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class View:
    """A node whose result lies where members have made it, one behind the other: no instructions."""

    site: Site
    made: tuple[int, ...]
    layout: Layout


@dataclass(eq=False)
class Chain:
    """Members in order, and the views between them; `made`: what the next ones may read, by tensor.

    `segments`: members whose results lie behind each other in DRAM.
    """

    members: list[Member] = field(default_factory=list)
    nodes: list[Member | View] = field(default_factory=list)
    made: dict[str, tuple[tuple[int, ...], Layout]] = field(default_factory=dict)
    segments: list[tuple[int, ...]] = field(default_factory=list)

    def add(self, site: Site, lowered: Lowered, plan: Plan, batch: int) -> None:
        reads = tuple(self.made[name][0] if name in self.made else () for name in operands(site, lowered.layer))
        own = (len(self.members),)
        self.members.append(Member(site, lowered, plan, reads))
        self.nodes.append(self.members[-1])
        self.segments.append(own)
        if lowered.layer.closed and not isinstance(site.node.op, MatMul):  # matrices lie beside each other
            self.made[site.output.name] = own, written(lowered.layer, site, batch)

    def replan(self, plans: Sequence[Plan]) -> list[Member]:
        """Give the members other plans."""
        made = {id(old): replace(old, plan=plan) for old, plan in zip(self.members, plans, strict=True)}
        self.members = [made[id(member)] for member in self.members]
        self.nodes = [made.get(id(node), node) for node in self.nodes]
        return self.members

    def view(self, site: Site, block: int) -> bool:
        """Whether a node's result lies in DRAM already, or does when results of members lie behind each other."""
        op, out = site.node.op, site.output
        tensors = [tensor for tensor in site.inputs if tensor]
        found = [self.made[tensor.name] for tensor in tensors if tensor.name in self.made]
        layouts = [layout for _, layout in found]
        if not found or len(found) < len(tensors) or any(layout.fold > 1 or layout.rows for layout in layouts):
            return False
        if isinstance(op, Concat):
            last = op.axis % len(out.shape) == len(out.shape) - 1 and op.activation == "none"
            if not last or any(y.channels % block for y in layouts[:-1]) or not self._join([made for made, _ in found]):
                return False
        elif not isinstance(op, Reshape) or tensors[0].shape[-1:] != out.shape[-1:]:
            return False
        made = tuple(member for members, _ in found for member in members)
        channels, tiles = (
            sum(values) for values in zip(*((y.channels, y.channel_tiles) for y in layouts), strict=True)
        )
        layout = layouts[0]._replace(channels=channels, channel_tiles=tiles)
        self.made[out.name] = made, layout
        self.nodes.append(View(site, made, layout))
        return True

    def _join(self, parts: list[tuple[int, ...]]) -> bool:
        """Have the results of some members lie behind each other; whole segments only, each once."""
        if len(set(parts)) < len(parts) or not set(parts) <= set(self.segments):
            return False
        self.segments = [segment for segment in self.segments if segment not in parts]
        self.segments.append(tuple(member for part in parts for member in part))
        return True


def operands(site: Site, layer: Layer) -> list[str]:
    """The tensors that a layer reads as tiles."""
    return [site.input(index).name for index in range(layer.operands)]


def lies(layer: Layer, channels: int, size: tuple[int, int], tiles: int, columns: int, batch: int) -> Layout:
    """How a layer's input or result lies; `columns`: pixels in a row of the image."""
    shares = layer.matrix and batch > 1
    return Layout(channels, tiles, size[0] * size[1], layer.fold, columns if layer.fold > 1 else 0, shares)


def read(layer: Layer, site: Site, batch: int) -> Layout:
    channels = site.input(1 if isinstance(site.node.op, FullyConnected) else 0).shape[-1]  # of a row of a product
    lying = lies(layer, channels, layer.size, layer.in_tiles, columns_of(site.input(0).shape), batch)
    return lying._replace(host=_laid_out_by_host(layer, site))


def _laid_out_by_host(layer: Layer, site: Site) -> bool:
    """Whether a layer reads patches, or zeros beyond the last of the pixels that share a tile.

    Where a layer writes such tiles there is something behind the last pixel.
    """
    op = site.node.op
    if not isinstance(op, Conv2D | DepthwiseConv2D):
        return False
    if layer.matrix:
        return prod(op.window.kernel) > 1
    width, window = site.input(0).shape[2], op.window
    last = (site.output.shape[2] - 1) * window.stride[1] + window.extent[1] - 1 - window.padding[2]
    return width % layer.fold > 0 and last >= width


def written(layer: Layer, site: Site, batch: int) -> Layout:
    return lies(layer, site.output.shape[-1], layer.out, layer.out_tiles, columns_of(site.output.shape), batch)


def placed(site: Site, context: Context) -> tuple[Lowered, Plan] | str:
    """The layer of a node and its plan, or why the host takes it."""
    lowered = lower(site, context)
    if isinstance(lowered, str):
        return lowered
    if found := best(lowered.layer, context.config, context.timing):
        return lowered, found
    if lowered.layer.codes:  # its parameters do not fit: the host finishes
        return placed(site, context._replace(codes=False))
    depths = ", ".join(
        f"{chip.depth} {chip.name}" for chip in (context.config.inp, context.config.wgt, context.config.acc)
    )
    return f"no tile of it fits the buffers ({depths} tiles)"


def chains(graph: Graph, config: Config, rounding: Rounding, timing: str) -> Iterator[Chain | HostStep]:
    """The graph's nodes in order, as chains and host steps."""
    context, chain = Context(config, rounding, timing), Chain()
    chained = config.rescales or rounding.elementwise == "pow2"  # else the host finishes almost all
    for site in graph.sites():
        if chained and chain.view(site, config.block):
            continue
        found = placed(site, context)
        joined = None if isinstance(found, str) or not chained else _joined(chain, site, found, context)
        if joined is None and chain.members:
            yield chain
            chain = Chain()
        if isinstance(found, str):
            yield HostStep(site.node.name, found)
        else:
            chain.add(site, *(joined or found), batch=config.batch)
    if chain.members:
        yield chain


def _joined(chain: Chain, site: Site, found: tuple[Lowered, Plan], context: Context) -> tuple[Lowered, Plan] | None:
    """The layer and plan with which a node can be the chain's next member; None where it cannot."""
    own = {node.site.output.name for node in chain.nodes}
    for single in (False, True):
        candidate = placed(site, context._replace(single=True)) if single else found
        if isinstance(candidate, str):
            continue
        layer = candidate[0].layer
        if isinstance(site.node.op, MatMul) and own.intersection(site.node.inputs):
            return None  # the host lays out both
        names = [name for name in operands(site, layer) if name in own]
        if all(name in chain.made and chain.made[name][1] == read(layer, site, context.config.batch) for name in names):
            return candidate
    return None
