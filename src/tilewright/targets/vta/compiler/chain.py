"""Join consecutive layers into one launch if the host need not requantise or lay out the data between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf, prod
from typing import NamedTuple

from tilewright.graph.ir import Graph, Site, Tensor
from tilewright.graph.ops import Concat, Conv2D, DepthwiseConv2D, FullyConnected, MatMul, Reshape
from tilewright.graph.rounding import Rounding
from tilewright.program.program import HostStep
from tilewright.targets.vta.compiler.constant import ranges
from tilewright.targets.vta.compiler.joint import fused_nodes, lower_fused, with_residual
from tilewright.targets.vta.compiler.layer import Layer
from tilewright.targets.vta.compiler.legal import plan_of
from tilewright.targets.vta.compiler.lowered import Context, Lowered
from tilewright.targets.vta.compiler.plan import Plan
from tilewright.targets.vta.compiler.scores import score
from tilewright.targets.vta.compiler.search import best_plan, least
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.launch.layouts import columns_of
from tilewright.targets.vta.schedule import Schedule


class Layout(NamedTuple):
    """The layout of a tensor in DRAM: its channel tiles, and how pixels or matrix rows share tiles."""

    channels: int
    channel_tiles: int
    pixels: int  # for each channel tile, the number of tiles that hold its pixels
    fold: int  # neighbouring pixels in one tile
    columns: int  # pixels in a row if `fold` is above 1, else 0
    rows: bool  # whether several rows of a matrix share a tile
    host: bool = False  # whether only the host can write this layout


@dataclass(frozen=True, eq=False)
class Member:
    """A layer of a chain: one or more nodes (see joint.py). Only the result of the last node reaches DRAM."""

    sites: tuple[Site, ...]
    lowered: Lowered
    plan: Plan
    operands: tuple[str, ...]  # the tensors that the layer reads as input tiles
    reads: tuple[tuple[int, ...], ...]  # by operand: the members that write it; () if the host does
    fixed: bool  # whether the plan is the user's, and must stay

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(site.node.name for site in self.sites)


class ChainNode(NamedTuple):
    """A node of a launch."""

    site: Site
    members: tuple[int, ...]  # the members (indices) that write the node's result to DRAM, in order
    stored: bool = True  # False if another node of the same member writes its result instead
    view: Layout | None = None  # the layout of the result, if the node needs no instructions


@dataclass(eq=False)
class Chain:
    """The nodes of one launch, and its members, which the machine runs as layers.

    `results`: for each tensor that later members may read, the members (indices) that write it, and its layout.
    `segments`: tuples of members (indices) whose results share one DRAM segment, in order.
    """

    config: Config
    members: list[Member] = field(default_factory=list)
    nodes: list[ChainNode] = field(default_factory=list)
    results: dict[str, tuple[tuple[int, ...], Layout]] = field(default_factory=dict)
    segments: list[tuple[int, ...]] = field(default_factory=list)

    def add(self, sites: tuple[Site, ...], lowered: Lowered, plan: Plan, fixed: bool = False) -> None:
        names = tuple(name for name, _ in operands(sites, lowered.layer, self.config.batch))
        reads = tuple(self.results[name][0] if name in self.results else () for name in names)
        index = (len(self.members),)
        result = sites[-1].output
        self.members.append(Member(sites, lowered, plan, names, reads, fixed))
        self.nodes += [ChainNode(site, index, stored=site is sites[-1]) for site in sites]
        self.segments.append(index)
        # Each matrix of a MatMul begins at a whole tile, so no later layer of the launch can read the result.
        if lowered.layer.outputs_codes and not isinstance(sites[0].node.op, MatMul):
            self.results[result.name] = index, result_layout(lowered.layer, result, self.config.batch)

    def leads(self, node: ChainNode) -> bool:
        """Return whether a node is the first node of a member. The instructions of the member belong to this node."""
        return node.view is None and node.site is self.members[node.members[0]].sites[0]

    def stores_first(self) -> Chain:
        """Return the chain with its independent members sorted by the work for each byte that a member stores."""

        def work_per_byte(member: Member) -> float:
            layer = member.lowered.layer
            tiles = layer.out_tiles * layer.out_pixels
            return (layer.gemm_uops() + tiles * (layer.planes - 1)) / (tiles * layer.planes)

        ordered = Chain(self.config)
        # The last byte planes of a member are stored while the next member, which has more work per byte, computes.
        for member in sorted(self.members, key=work_per_byte):
            ordered.add(member.sites, member.lowered, member.plan, member.fixed)
        return ordered

    def view(self, site: Site) -> bool:
        """Add a node as a view if members already write its result to DRAM. Return whether the node was added."""
        op = site.node.op
        out = site.output
        tensors = [tensor for tensor in site.inputs if tensor]
        if not tensors or any(tensor.name not in self.results for tensor in tensors):
            return False
        parts, layouts = zip(*(self.results[tensor.name] for tensor in tensors), strict=True)
        # If a tile contains several pixels or rows, a reshape cannot be a view.
        if any(layout.fold > 1 or layout.rows for layout in layouts):
            return False
        # A concatenation is a view if the joined results can be made consecutive in DRAM.
        if isinstance(op, Concat):
            # A channel tile before the last that is not full would leave a gap between channels.
            if any(layout.channels % self.config.block for layout in layouts[:-1]) or not self._join(op, out, parts):
                return False
        elif not isinstance(op, Reshape) or tensors[0].shape[-1:] != out.shape[-1:]:
            return False
        members = tuple(member for part in parts for member in part)
        channels = sum(layout.channels for layout in layouts)
        tiles = sum(layout.channel_tiles for layout in layouts)
        layout = layouts[0]._replace(channels=channels, channel_tiles=tiles)
        self.results[out.name] = members, layout
        self.nodes.append(ChainNode(site, members, view=layout))
        return True

    def _join(self, op: Concat, out: Tensor, parts: tuple[tuple[int, ...], ...]) -> bool:
        """Join segments (tuples of members) for a concatenation of channels. Return False if this is not possible."""
        if op.axis % len(out.shape) != len(out.shape) - 1 or op.activation != "none":
            return False
        # Each part must be a whole segment, and occur once.
        if len(set(parts)) < len(parts) or not set(parts) <= set(self.segments):
            return False
        self.segments = [segment for segment in self.segments if segment not in parts]
        self.segments.append(tuple(member for part in parts for member in part))
        return True


def operands(sites: tuple[Site, ...], layer: Layer, batch: int) -> list[tuple[str, Layout]]:
    """Return the names and layouts of the tensors that a layer reads as input tiles. A residual comes last."""
    first = sites[0]
    layout = _input_layout(layer, first, batch)
    tensors = [(first.input(index).name, layout) for index in range(layer.operands)]
    if layer.residual is not None:
        whole = first if len(sites) == 1 else with_residual(*sites)
        tensors.append((whole.input(3).name, result_layout(layer, whole.output, batch)))
    return tensors


def _input_layout(layer: Layer, site: Site, batch: int) -> Layout:
    """Return the layout in which a layer reads its input."""
    op = site.node.op
    x = site.input(0)
    channels = site.input(1 if isinstance(op, FullyConnected) else 0).image[3]  # columns of a matrix row
    host = False
    if isinstance(op, Conv2D | DepthwiseConv2D):
        width = x.shape[2]
        window = op.window
        # The last column that any window reads. If this column is outside the image, folded rows need zeros after the
        # last pixel.
        last = (site.output.shape[2] - 1) * window.stride[1] + window.extent[1] - 1 - window.padding[2]
        # Only the host can lay out im2col patches, and only the host writes zeros after the last pixel of a row.
        host = prod(window.kernel) > 1 if layer.matrix else width % layer.fold > 0 and last >= width
    columns = columns_of(x.shape) if layer.fold > 1 else 0
    pixels = layer.size[0] * layer.size[1]
    return Layout(channels, layer.in_tiles, pixels, layer.fold, columns, layer.matrix and batch > 1, host)


def result_layout(layer: Layer, result: Tensor, batch: int) -> Layout:
    columns = columns_of(result.shape) if layer.fold > 1 else 0
    rows = layer.matrix and batch > 1
    return Layout(result.image[3], layer.out_tiles, layer.out_pixels, layer.fold, columns, rows)


def plan_layer(
    sites: tuple[Site, ...], context: Context, lowered: Lowered | str | None = None
) -> tuple[Lowered, Plan] | str:
    """Return the layer of nodes and its plan, or why the host runs the nodes. `lowered`: the layer, if known."""
    lowered = lowered or lower_fused(sites, context)
    if isinstance(lowered, str):
        return lowered
    config = context.config
    timing = context.timing
    plans = _plans(sites, (lowered, *lowered.alternatives), context)
    if plans:
        return plans[0] if len(plans) == 1 else min(plans, key=lambda form: score(form[1], config, timing)[0])
    if lowered.layer.requantisation:  # the parameters do not fit, so the host requantises
        return plan_layer(sites, context._replace(requantises=False))
    depths = ", ".join(f"{chip.depth} {chip.name}" for chip in (config.inp, config.wgt, config.acc))
    return f"not even its smallest tile fits the buffers ({depths} tiles)"


def _plans(sites: tuple[Site, ...], forms: tuple[Lowered, ...], context: Context) -> list[tuple[Lowered, Plan]]:
    """Return a plan for each form of a layer that fits the buffers, or only the plan that the user gives.

    Raises InputError if the user's plan breaks a rule.
    """
    config = context.config
    timing = context.timing
    given = context.given.get(sites[0].node.name)
    plans: list[tuple[Lowered, Plan]] = []
    if given and any(least(form.layer, config, timing) < inf for form in forms):
        plans.append(plan_of(given, tuple(site.node.name for site in sites), forms, config, context.source))
    # The user's plan replaces the search. With `starts`, the user's plan and the search's plan are compared.
    if not plans or context.starts:
        plans += [(form, plan) for form in forms if (plan := best_plan(form.layer, config, timing))]
    return plans


def chains_layers(config: Config, rounding: Rounding) -> bool:
    """Return whether layers can share a launch. A host that requantises almost every layer makes this impossible."""
    return config.rescales or rounding.elementwise == "pow2"


def chains(
    graph: Graph, config: Config, rounding: Rounding, timing: str, schedule: Schedule, starts: bool
) -> Iterator[Chain | HostStep]:
    """Yield the chains of nodes for the machine, and a host step for each of the other nodes, in graph order.

    Fused nodes come at the position of the last node. A layer in the schedule gets the plan of the schedule. With
    `starts`, such a layer gets the plan of the search if that plan is faster. Raises InputError if a plan of the
    schedule breaks a rule.
    """
    chained = chains_layers(config, rounding)
    # Constant channels are only left out if the host lays out the data of each layer.
    plain = Context(config, rounding, timing, proven=None if chained else ranges(graph, rounding))

    def faster_together(sites: tuple[Site, ...]) -> bool:
        layers = [lower_fused(part, plain) for part in (sites, sites[:-1], sites[-1:])]
        bounds = [inf if isinstance(layer, str) else least(layer.layer, config, timing) for layer in layers]
        return bounds[0] < sum(bounds[1:]) and not isinstance(plan_layer(sites, plain), str)

    # The nodes to fuse are decided first, because the layer comes at the position of the last fused node.
    shared = fused_nodes(graph, faster_together)
    given = {layer.layer: layer for layer in schedule.layers}
    context = plain._replace(given=given, starts=starts, source=schedule.source)
    chain = Chain(config)
    for site in graph.sites():
        sites = shared.get(site.node.name, (site,))
        if site.node.name != sites[-1].node.name:
            continue
        if chained and chain.view(site):
            continue
        lowered = lower_fused(sites, context)
        joined = _extension(chain, sites, lowered, context) if chain.members else None
        layer = joined or plan_layer(sites, context, lowered)
        # A host step ends the launch, and so does a layer that cannot extend the chain.
        if joined is None and chain.members:
            yield chain if chained else chain.stores_first()
            chain = Chain(config)
        if isinstance(layer, str):
            yield HostStep(site.node.name, layer)
        else:
            chain.add(sites, *layer, fixed=sites[0].node.name in given and not starts)
    if chain.members:
        yield chain if chained else chain.stores_first()


def _extension(
    chain: Chain, sites: tuple[Site, ...], lowered: Lowered | str, context: Context
) -> tuple[Lowered, Plan] | None:
    """Return the layer and plan with which the nodes `sites` extend the chain; None if they cannot extend it."""
    # If the best layout does not match the chain, lower the nodes with one pixel per tile: other layers write this
    # layout.
    for single in (False, True):
        lowering = context._replace(single=single)
        form = lower_fused(sites, lowering) if single else lowered
        # The search for a plan is slow, so the layout is checked before. The layout is checked again after the search,
        # because the search may choose another form.
        if not isinstance(form, str) and _follows(chain, sites, form.layer, context):
            layer = plan_layer(sites, lowering, form)
            if not isinstance(layer, str) and _follows(chain, sites, layer[0].layer, context):
                return layer
        if context.proven is not None:  # the host lays out all data, so no other form helps
            return None
    return None


def _follows(chain: Chain, sites: tuple[Site, ...], layer: Layer, context: Context) -> bool:
    results = {node.site.output.name for node in chain.nodes}
    if context.proven is not None:  # the host finishes each layer
        return not results.intersection(name for site in sites for name in site.node.inputs)
    if isinstance(sites[0].node.op, MatMul) and results.intersection(sites[0].node.inputs):
        return False  # the host lays out both operands
    read = operands(sites, layer, context.config.batch)
    if results.intersection(sites[0].node.inputs).difference(name for name, _ in read):
        return False  # the host adds its residual
    return all(name in chain.results and chain.results[name][1] == layout for name, layout in read if name in results)
