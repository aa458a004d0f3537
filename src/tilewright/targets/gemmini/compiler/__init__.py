"""The compiler of networks: a launch for each matrix product, convolution and addition, tiled by the exact clock.

Symmetric codes with one scale for all weights stay on the machine: its stores scale, clip and pool. For others it
stores sums (matrix products only), and the host requantises them. The host computes all other operators.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple, Protocol

import numpy as np

from tilewright.graph.ir import Graph, Site
from tilewright.graph.ops import Add, Concat, DepthwiseConv2D, Linear, OnnxOp, Quantize
from tilewright.graph.rounding import Rounding, rounding_mode
from tilewright.program.launch_image import DramSegment, LaunchImage, in_a_row
from tilewright.program.program import HostStep, Launch, Program
from tilewright.sim.passes import RunOptions
from tilewright.targets.gemmini.compiler import layers
from tilewright.targets.gemmini.compiler.convolutions import Frame
from tilewright.targets.gemmini.compiler.copies import copy
from tilewright.targets.gemmini.compiler.layers import Layer
from tilewright.targets.gemmini.compiler.leaving import leaving
from tilewright.targets.gemmini.compiler.products import Addition, addition
from tilewright.targets.gemmini.compiler.streams import Stream
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.fields import raw
from tilewright.targets.gemmini.isa.macros import Commands
from tilewright.targets.gemmini.passes import Passes

#: Layers whose cycles are kept.
KEPT = 4096
#: Streams whose other orders are timed.
FINALISTS = 2
#: The search ends with tiles that take at most this share more than their lower bound.
WORTH = 0.015


class Tiled(Hashable, Protocol):
    """A layer in tiles. `has_borders`: the hardware makes zeros."""

    @property
    def has_borders(self) -> bool: ...
    def tilings(self, config: Config) -> Iterator[Tiled]: ...
    def emit(self, *places: Any) -> Commands: ...


class Timed(NamedTuple):
    """A tiled layer with its cycles, and those that no order of its commands undercuts."""

    cycles: int
    bound: int
    tiled: Tiled

    @property
    def close(self) -> bool:
        """Whether other tiles are not worth a try."""
        return self.cycles <= self.bound * (1 + WORTH)


def fastest(form: Tiled, config: Config, places: Sequence[int]) -> Timed | None:
    """Return the tiles with the fewest cycles, or the first close ones; None if none fits the memories without a race.

    `places`: DRAM addresses of inputs, weights, offsets and results.
    """
    found = list[Timed]()
    if not _search(found, form.tilings(config), config, places):
        best = [one.tiled for one in found[:FINALISTS] if isinstance(one.tiled, Stream)]
        _search(found, chain.from_iterable(tiled.variants() for tiled in best), config, places)
    for one in found:
        if not one.tiled.has_borders or is_clean(one.tiled, config, tuple(places)):
            return one
    return None


def _search(found: list[Timed], tilings: Iterator[Tiled], config: Config, places: Sequence[int]) -> bool:
    """Add timed layers to those that were found, the fastest first; return whether one is close."""
    close = False
    for tiled in tilings:
        found.append(Timed(*cycles(tiled, config, tuple(places)), tiled))
        if close := found[-1].close:
            break
    found.sort(key=lambda one: one.cycles)
    return close


@lru_cache(KEPT)
def cycles(tiled: Tiled, config: Config, places: tuple[int, ...]) -> tuple[int, int]:
    """Return the cycles of a tiled layer, and its lower bound."""
    passes = Passes(tiled.emit(config, *places).array, config)
    return passes.times.cycles, passes.bound


@lru_cache(KEPT)
def is_clean(tiled: Tiled, config: Config, places: tuple[int, ...]) -> bool:
    """Return whether a tiled layer has no race: the zeros of a border overtake data that nothing reads in between."""
    return not Passes(tiled.emit(config, *places).array, config).findings(RunOptions(None, True))


#: Where the segments of a launch begin. Address 0 stands for zeros.
BASE = 0x1000
ALIGN = 64
#: What the segments of a launch are, in the order in which they lie in DRAM: weights, offsets, results. Others, which
#: lie before them, are inputs.
KINDS = {"w": "const", "d": "const", "y": "output"}


def compile_graph(graph: Graph, config: Config, rounding: str) -> Program:
    """Compile a network; the program has a step for each node, in order, but a pooling may be part of a convolution."""
    steps: list[Launch | HostStep] = []
    pooled: set[str] = set()
    mode = rounding_mode(rounding)
    for site in graph.sites():
        if site.node.name in pooled:
            continue
        if isinstance(site.node.op, Add | Concat) or (isinstance(site.node.op, Quantize) and not OnnxOp.real(site)):
            steps.append(_moved(site, config, mode))
            continue
        able = isinstance(site.node.op, Linear) and site.input(0).dtype == "int8"
        pool = layers.pooling(graph, site, leaving(site, mode)) if able else None
        made = _launch(site, pool, config, mode)
        if pool and isinstance(made, str):  # the layer alone may fit
            made = _launch(site, None, config, mode)
        steps.append(HostStep(site.node.name, made) if isinstance(made, str) else made)
        if isinstance(made, Launch):
            pooled.update(made.nodes[1:])
    return Program("gemmini", config.to_dict(), config.digest(), mode.name, graph, tuple(steps))


def _launch(site: Site, pool: Site | None, config: Config, rounding: Rounding) -> Launch | str:
    """Return the fastest form of a node, or the reason why the host computes it."""
    forms = layers.layers(site, config, rounding, pool)
    if isinstance(forms, str):
        return forms
    made = list[tuple[Timed, LaunchImage, Frame]]()
    for form, frame in forms:
        if one := _compiled(site, pool, form, config):
            made.append((*one, frame))
            if one[0].close:
                break
    if not made:
        return "no tile fits half of the scratchpad and half of the accumulator"
    best, image, frame = min(made, key=lambda one: one[0].cycles)
    nodes = (site.node.name, pool.node.name) if pool else (site.node.name,)
    border = {"frame": list(frame)} if any(frame) else {}
    return image.launch(site.node.name, nodes, plan=str(best.tiled), **border)


def _compiled(site: Site, pool: Site | None, form: Layer, config: Config) -> tuple[Timed, LaunchImage] | None:
    """Return one form of a layer in its fastest tiles, and its launch; None if no tile fits."""
    codes = site.constant(1)
    leaves = form.leaves
    others = tuple(range(3)) if isinstance(site.node.op, DepthwiseConv2D) else tuple(range(1, codes.ndim))
    offset = -site.input(0).zero_point * codes.sum(axis=others, dtype=np.int64)
    if leaves.scale is not None and site.optional(2) is not None:
        offset = offset + site.constant(2)
    if isinstance(form, Stream):
        form = replace(form, biased=bool(offset.any()))
    data = {"w": form.weights(codes, config), "d": offset.astype("<i4")}
    sizes = {"x": form.inputs, "y": (pool or site).output.size * leaves.nbytes}
    sizes |= {name: array.nbytes for name, array in data.items()}
    segments = _placed({name: sizes[name] for name in ("x", *KINDS)})
    places = [segment.address for segment in segments]
    if (found := fastest(form, config, places)) is None:
        return None
    held = {name: np.ascontiguousarray(array).reshape(-1).view(np.uint8) for name, array in data.items()}
    return found, LaunchImage(raw(found.tiled.emit(config, *places).array), segments, held)


def _moved(site: Site, config: Config, rounding: Rounding) -> Launch | HostStep:
    """Return an addition, concatenation or conversion of codes."""
    form = addition(site, rounding, config) if isinstance(site.node.op, Add) else copy(site, rounding, config)
    if isinstance(form, str):
        return HostStep(site.node.name, form)
    sizes = {f"x{index or ''}": site.input(index).size for index in range(len(site.inputs))}
    if isinstance(form, Addition):
        sizes["x1"] = form.read(config)
    segments = _placed(sizes | {"y": site.output.size})
    places = [segment.address for segment in segments]
    found = fastest(form, config, places)
    assert found is not None, "a block fits half of each memory"
    image = LaunchImage(raw(found.tiled.emit(config, *places).array), segments, {})
    return image.launch(site.node.name, (site.node.name,), plan=str(found.tiled))


def _placed(sizes: Mapping[str, int]) -> tuple[DramSegment, ...]:
    """Return DRAM segments in this order; `sizes` are in bytes, by name."""
    parts = [(name, KINDS.get(name, "input"), size) for name, size in sizes.items()]
    return in_a_row(*parts, base=BASE, align=ALIGN)
