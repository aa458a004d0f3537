"""Which layers become one launch: neighbours that finish on chip and hand each other tensors as they lie in DRAM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

from tilewright.graph.ir import Graph, Site
from tilewright.graph.ops import Conv2D, DepthwiseConv2D, FullyConnected
from tilewright.graph.rounding import Rounding
from tilewright.program.program import HostStep
from tilewright.targets.vta.codegen.layer import Layer
from tilewright.targets.vta.codegen.lower import lower
from tilewright.targets.vta.codegen.lowered import Context, Lowered
from tilewright.targets.vta.codegen.plan import Plan
from tilewright.targets.vta.codegen.search import best
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
    """A node on the machine; `reads`: for each tensor that it reads, the member that makes it, None: the host."""

    site: Site
    lowered: Lowered
    plan: Plan
    reads: tuple[int | None, ...]


@dataclass(eq=False)
class Chain:
    """Members in order; `made` the results that the next ones may read, by tensor."""

    members: list[Member] = field(default_factory=list)
    made: dict[str, tuple[int, Layout]] = field(default_factory=dict)

    def add(self, site: Site, lowered: Lowered, plan: Plan, batch: int) -> None:
        reads = tuple(self.made[name][0] if name in self.made else None for name in operands(site, lowered.layer))
        self.members.append(Member(site, lowered, plan, reads))
        if closed(lowered.layer):
            self.made[site.output.name] = (len(self.members) - 1, written(lowered.layer, site, batch))


def closed(layer: Layer) -> bool:
    """Whether a layer's result is codes, with nothing left for the host."""
    return layer.codes is not None or layer.kind == "max"


def operands(site: Site, layer: Layer) -> list[str]:
    """The tensors that a layer reads as tiles."""
    return [site.input(index).name for index in range(layer.operands)]


def lies(layer: Layer, channels: int, size: tuple[int, int], tiles: int, columns: int, batch: int) -> Layout:
    """How a layer's input or result lies; `columns`: pixels in a row of the image."""
    shares = layer.matrix and batch > 1
    return Layout(channels, tiles, size[0] * size[1], layer.fold, columns if layer.fold > 1 else 0, shares)


def read(layer: Layer, site: Site, batch: int) -> Layout:
    channels = site.input(1 if isinstance(site.node.op, FullyConnected) else 0).shape[-1]  # of a row of a product
    lying = lies(layer, channels, layer.size, layer.in_tiles, _columns(site.input(0).shape), batch)
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
    return lies(layer, site.output.shape[-1], layer.out, layer.out_tiles, _columns(site.output.shape), batch)


def _columns(shape: tuple[int, ...]) -> int:
    return shape[-2] if len(shape) > 2 else 1


def placed(site: Site, context: Context) -> tuple[Lowered, Plan] | str:
    """The layer of a node and its plan, or why the host takes it."""
    lowered = lower(site, context)
    if isinstance(lowered, str):
        return lowered
    if found := best(lowered.layer, context.config):
        return lowered, found[0]
    if lowered.layer.codes:  # its parameters do not fit: the host finishes
        return placed(site, context._replace(codes=False))
    depths = ", ".join(
        f"{chip.depth} {chip.name}" for chip in (context.config.inp, context.config.wgt, context.config.acc)
    )
    return f"no tile of it fits the buffers ({depths} tiles)"


def chains(graph: Graph, config: Config, rounding: Rounding) -> Iterator[Chain | HostStep]:
    """The graph's nodes in order, as chains and host steps."""
    context, chain = Context(config, rounding), Chain()
    chained = config.alu != "upstream" or rounding.elementwise == "pow2"  # else the host finishes almost all
    for site in graph.sites():
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
    own = {member.site.output.name for member in chain.members}
    for single in (False, True):
        candidate = placed(site, context._replace(single=True)) if single else found
        if isinstance(candidate, str):
            continue
        layer = candidate[0].layer
        names = [name for name in operands(site, layer) if name in own]
        if all(name in chain.made and chain.made[name][1] == read(layer, site, context.config.batch) for name in names):
            return candidate
    return None
