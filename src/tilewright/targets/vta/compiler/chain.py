"""Join consecutive layers into one launch if the host need not requantise or lay out the data between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import NamedTuple

from tilewright.graph.ir import Graph, Site, Tensor
from tilewright.graph.ops import Concat, Conv2D, DepthwiseConv2D, FullyConnected, MatMul, Reshape
from tilewright.graph.rounding import Rounding
from tilewright.program.program import HostStep
from tilewright.targets.vta.compiler.constant import ranges
from tilewright.targets.vta.compiler.joint import joint, lower_all
from tilewright.targets.vta.compiler.layer import Layer
from tilewright.targets.vta.compiler.legal import plan_of
from tilewright.targets.vta.compiler.lowered import Context, Lowered
from tilewright.targets.vta.compiler.plan import Plan
from tilewright.targets.vta.compiler.residual import with_residual
from tilewright.targets.vta.compiler.scores import score
from tilewright.targets.vta.compiler.search import best, least
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.launch.layouts import columns_of
from tilewright.targets.vta.schedule import Schedule


class Layout(NamedTuple):
    """The layout of a tensor in DRAM: its channel tiles, and how pixels or matrix rows share tiles."""

    channels: int
    channel_tiles: int
    pixels: int  # tiles per channel tile
    fold: int  # neighbouring pixels in one tile
    columns: int  # pixels in a row if `fold` is above 1, else 0
    rows: bool  # several rows of a matrix share a tile
    host: bool = False  # a layout that only the host can write


@dataclass(frozen=True, eq=False)
class Member:
    """One or more nodes that the machine runs as one layer (see joint.py); only the last one's result reaches DRAM.

    `reads`: for each operand (see `operands`), which members (indices) write it; () if the host does. `given`: whether
    the plan is the user's, and must stay.
    """

    sites: tuple[Site, ...]
    lowered: Lowered
    plan: Plan
    reads: tuple[tuple[int, ...], ...]
    given: bool = False

    @property
    def site(self) -> Site:
        return self.sites[0]

    @property
    def result(self) -> Tensor:
        return self.sites[-1].output


@dataclass(frozen=True, eq=False)
class Joined:
    """A further node that member number `member` computes. `last`: this node's result is the member's."""

    site: Site
    member: int
    last: bool


@dataclass(frozen=True, eq=False)
class View:
    """A node without instructions: the members `made` (indices) already write its result, consecutively, to DRAM."""

    site: Site
    made: tuple[int, ...]
    layout: Layout


@dataclass(eq=False)
class Chain:
    """The nodes of one launch: members, which the machine runs as layers, and views, which need no instructions.

    `nodes`: members, each followed by its parts, and views in order. `made`: for each tensor that later members may
    read, the members (indices) that write it, and its layout. `segments`: tuples of members (indices) whose results
    share one DRAM segment, in order.
    """

    members: list[Member] = field(default_factory=list)
    nodes: list[Member | Joined | View] = field(default_factory=list)
    made: dict[str, tuple[tuple[int, ...], Layout]] = field(default_factory=dict)
    segments: list[tuple[int, ...]] = field(default_factory=list)

    def add(self, sites: tuple[Site, ...], lowered: Lowered, plan: Plan, batch: int, given: bool = False) -> None:
        named = operands(sites, lowered.layer, batch)
        reads = tuple(self.made[name][0] if name in self.made else () for name, _ in named)
        own = (len(self.members),)
        member = Member(sites, lowered, plan, reads, given)
        self.members.append(member)
        self.nodes.append(member)
        self.nodes += [Joined(site, own[0], site is sites[-1]) for site in sites[1:]]
        self.segments.append(own)
        if lowered.layer.closed and not isinstance(sites[0].node.op, MatMul):  # its matrices are in tiles of their own
            self.made[member.result.name] = own, written(lowered.layer, member.result, batch)

    def stores_first(self, batch: int) -> Chain:
        """Return a chain of the same independent members: those with the most bytes to store per micro-op come first.

        Their last byte planes are then stored while the others compute.
        """
        found = Chain()
        for member in sorted(self.members, key=lambda member: _work_per_byte(member.lowered.layer)):
            found.add(member.sites, member.lowered, member.plan, batch, member.given)
        return found

    def replan(self, plans: Sequence[Plan]) -> list[Member]:
        """Replace the members' plans by `plans`, in order; return the new members."""
        made = {id(old): replace(old, plan=plan) for old, plan in zip(self.members, plans, strict=True)}
        self.members = [made[id(member)] for member in self.members]
        self.nodes = [made.get(id(node), node) for node in self.nodes]
        return self.members

    def view(self, site: Site, block: int) -> bool:
        """Add a node as a `View` if members already write its result to DRAM; return whether it was added.

        A concatenation is a view if the results that it joins can be made consecutive in DRAM.
        """
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
        """Join segments (tuples of members) into one; return False if a part is no whole segment or occurs twice."""
        if len(set(parts)) < len(parts) or not set(parts) <= set(self.segments):
            return False
        self.segments = [segment for segment in self.segments if segment not in parts]
        self.segments.append(tuple(member for part in parts for member in part))
        return True


def _work_per_byte(layer: Layer) -> float:
    """Return the micro-ops of a layer, divided by the number of tiles that it stores, counting each byte plane."""
    tiles = layer.out_tiles * layer.out_pixels
    return (layer.gemm_uops() + tiles * (layer.planes - 1)) / (tiles * layer.planes)


def operands(sites: tuple[Site, ...], layer: Layer, batch: int) -> list[tuple[str, Layout]]:
    """Return the tensors that a member's layer reads as input tiles (not as weights): their names and layouts.

    A residual comes last. It has the layout of the result.
    """
    first = sites[0]
    layout = read(layer, first, batch)
    found = [(first.input(index).name, layout) for index in range(layer.operands)]
    if layer.residual is not None:
        whole = first if len(sites) == 1 else with_residual(*sites)
        found.append((whole.input(3).name, written(layer, whole.output, batch)))
    return found


def lies(layer: Layer, channels: int, size: tuple[int, int], tiles: int, columns: int, batch: int) -> Layout:
    """Return the DRAM layout of a layer's input or result with `tiles` channel tiles; `columns`: pixels in a row."""
    shares = layer.matrix and batch > 1
    return Layout(channels, tiles, size[0] * size[1], layer.fold, columns if layer.fold > 1 else 0, shares)


def read(layer: Layer, site: Site, batch: int) -> Layout:
    """Return the layout in which a layer reads its input."""
    channels = site.input(1 if isinstance(site.node.op, FullyConnected) else 0).image[3]  # of a matrix row
    lying = lies(layer, channels, layer.size, layer.in_tiles, columns_of(site.input(0).shape), batch)
    return lying._replace(host=_laid_out_by_host(layer, site))


def _laid_out_by_host(layer: Layer, site: Site) -> bool:
    """Return whether only the host can lay out a layer's input: im2col patches, or rows padded with zeros.

    A layer may rely on zeros after the last pixel of a row's last tile. Other layers leave other values there.
    """
    op = site.node.op
    if not isinstance(op, Conv2D | DepthwiseConv2D):
        return False
    if layer.matrix:
        return prod(op.window.kernel) > 1
    width, window = site.input(0).shape[2], op.window
    last = (site.output.shape[2] - 1) * window.stride[1] + window.extent[1] - 1 - window.padding[2]
    return width % layer.fold > 0 and last >= width


def written(layer: Layer, result: Tensor, batch: int) -> Layout:
    """Return the layout in which a layer writes its result."""
    return lies(layer, result.image[3], layer.out, layer.out_tiles, columns_of(result.shape), batch)


def placed(
    sites: tuple[Site, ...], context: Context, lowered: Lowered | str | None = None
) -> tuple[Lowered, Plan] | str:
    """Return the layer that nodes become and the layer's plan, or the reason why the host runs the first of them.

    `lowered`: the layer, if it is known.
    """
    lowered = lowered or lower_all(sites, context)
    if isinstance(lowered, str):
        return lowered
    config, timing = context.config, context.timing
    plans = _plans(sites, (lowered, *lowered.others), context)
    if plans:
        return plans[0] if len(plans) == 1 else min(plans, key=lambda form: score(form[1], config, timing)[0])
    if lowered.layer.codes:  # its parameters do not fit: the host requantises
        return placed(sites, context._replace(codes=False))
    depths = ", ".join(
        f"{chip.depth} {chip.name}" for chip in (context.config.inp, context.config.wgt, context.config.acc)
    )
    return f"not even its smallest tile fits the buffers ({depths} tiles)"


def _plans(sites: tuple[Site, ...], forms: tuple[Lowered, ...], context: Context) -> list[tuple[Lowered, Plan]]:
    """Return the plan of each form of a layer that fits the buffers, or only the one that the user gives.

    Raises InputError if the user's plan breaks a rule.
    """
    config, timing = context.config, context.timing
    given = context.given.get(sites[0].node.name)
    found: list[tuple[Lowered, Plan]] = []
    if given and any(least(form.layer, config, timing) < float("inf") for form in forms):
        found.append(plan_of(given, tuple(site.node.name for site in sites), forms, config, context.source))
    if not found or context.starts:
        found += [(form, plan) for form in forms if (plan := best(form.layer, config, timing))]
    return found


def chains_layers(config: Config, rounding: Rounding) -> bool:
    """Return whether layers share launches; else the host requantises almost every layer.

    Channels that are proven constant are left out only if the host lays out each layer's data.
    """
    return config.rescales or rounding.elementwise == "pow2"


def chains(
    graph: Graph, config: Config, rounding: Rounding, timing: str, schedule: Schedule, starts: bool
) -> Iterator[Chain | HostStep]:
    """Yield the graph's nodes: chains of nodes that the machine runs, and a host step for each other node.

    They are in the graph's order, but for members of several nodes, which stand where their last node does. Layers in
    the schedule get its plans, or with `starts` the faster of its plan and the search's.
    Raises InputError if one of the plans breaks a rule.
    """
    chained = chains_layers(config, rounding)
    known = None if chained else ranges(graph, rounding)
    plain, chain = Context(config, rounding, timing, known=known), Chain()
    shared = joint(graph, lambda sites: _faster(sites, plain))
    given = {layer.layer: layer for layer in schedule.layers}
    context = plain._replace(given=given, starts=starts, source=schedule.source)
    for site in graph.sites():
        sites = shared.get(site.node.name, (site,))
        if site.node.name != sites[-1].node.name:
            continue
        if chained and chain.view(site, config.block):
            continue
        lowered = lower_all(sites, context)
        joined = _joined(chain, sites, lowered, context) if chain.members else None
        found = joined or placed(sites, context, lowered)
        if joined is None and chain.members:
            yield chain if chained else chain.stores_first(config.batch)
            chain = Chain()
        if isinstance(found, str):
            yield HostStep(site.node.name, found)
        else:
            chain.add(sites, *found, batch=config.batch, given=sites[0].node.name in given and not starts)
    if chain.members:
        yield chain if chained else chain.stores_first(config.batch)


def _faster(sites: tuple[Site, ...], context: Context) -> bool:
    """Return whether the machine can run nodes together, and by the bounds of their plans faster than one by one."""
    layers = [lower_all(part, context) for part in (sites, sites[:-1], sites[-1:])]
    bounds = [
        float("inf") if isinstance(found, str) else least(found.layer, context.config, context.timing)
        for found in layers
    ]
    return bounds[0] < sum(bounds[1:]) and not isinstance(placed(sites, context), str)


def _joined(
    chain: Chain, sites: tuple[Site, ...], lowered: Lowered | str, context: Context
) -> tuple[Lowered, Plan] | None:
    """Return the layer and plan with which nodes, lowered to `lowered`, can be the chain's next member, or None.

    The form of the layer is checked before the search for its plan, and again after it, because that may change it.
    """
    for single in (False, True):
        each = context._replace(single=single)
        form = lower_all(sites, each) if single else lowered
        if not isinstance(form, str) and _follows(chain, sites, form.layer, context):
            found = placed(sites, each, form)
            if not isinstance(found, str) and _follows(chain, sites, found[0].layer, context):
                return found
        if context.known is not None:  # the form does not matter
            return None
    return None


def _follows(chain: Chain, sites: tuple[Site, ...], layer: Layer, context: Context) -> bool:
    """Return whether nodes, as the layer `layer`, can be the chain's next member."""
    own = {node.site.output.name for node in chain.nodes}
    if context.known is not None:  # the host finishes each layer
        return not own.intersection(name for site in sites for name in site.node.inputs)
    if isinstance(sites[0].node.op, MatMul) and own.intersection(sites[0].node.inputs):
        return False  # the host lays out both operands
    read = operands(sites, layer, context.config.batch)
    if own.intersection(sites[0].node.inputs).difference(name for name, _ in read):
        return False  # the host adds its residual
    return all(name in chain.made and chain.made[name][1] == layout for name, layout in read if name in own)
