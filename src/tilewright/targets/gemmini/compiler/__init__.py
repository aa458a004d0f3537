"""The compiler of networks: a launch for each matrix product, convolution, addition and copy.

`layers.py` lists the forms in which the machine can compute a node, or gives the reason why the host computes it. A
form is a class with several tilings. The forms of `products.py` and `convolutions.py` use hardware loops, `streams/`
uses explicit commands, and `copies.py` uses only loads and stores. `fastest` simulates the tilings of each form with
the exact clock (timing/) and keeps the fastest tiling.

`requantise.py` describes how results leave the accumulator. If codes are symmetric and all weights have one scale, the
stores scale, clip and pool. Otherwise, the machine stores int32 sums of matrix products, and the host requantises them.
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
from tilewright.targets.gemmini.compiler.products import Addition, addition
from tilewright.targets.gemmini.compiler.requantise import requantising_store
from tilewright.targets.gemmini.compiler.streams import Stream
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.fields import raw
from tilewright.targets.gemmini.isa.macros import Commands
from tilewright.targets.gemmini.passes import Passes

#: The cycles of this number of tiled layers are cached, because networks repeat layers of the same shape.
MAX_CACHED = 4096
#: Other orders of the commands are simulated for this number of the fastest streams.
FINALISTS = 2
#: The search ends at a tiling whose cycles exceed their lower bound by at most this fraction.
CLOSE_ENOUGH = 0.015


class TiledLayer(Hashable, Protocol):
    """A layer in tiles. With `has_borders`, the hardware generates zeros around the image, which may cause races."""

    @property
    def has_borders(self) -> bool: ...
    def tilings(self, config: Config) -> Iterator[TiledLayer]: ...
    def emit(self, *places: Any) -> Commands: ...


class TimedLayer(NamedTuple):
    """A tiled layer, its number of cycles, and a lower bound of the cycles for every order of its commands."""

    cycles: int
    bound: int
    tiled: TiledLayer

    @property
    def close(self) -> bool:
        """Whether the search for tilings can end, because the cycles are close to the lower bound."""
        return self.cycles <= self.bound * (1 + CLOSE_ENOUGH)


def fastest(form: TiledLayer, config: Config, places: Sequence[int]) -> TimedLayer | None:
    """Return the tiling with the fewest cycles, or the first tiling whose cycles are close to their bound.

    `places` are the DRAM addresses of inputs, weights, offsets and results. Returns None if every tiling is too large
    for the memories or has a race.
    """
    timed = list[TimedLayer]()
    if not _search(timed, form.tilings(config), config, places):
        best = [candidate.tiled for candidate in timed[:FINALISTS] if isinstance(candidate.tiled, Stream)]
        _search(timed, chain.from_iterable(tiled.variants() for tiled in best), config, places)
    # A race check takes as long as a simulation. So check the tilings from the fastest on, and stop at the first tiling
    # without a race.
    for candidate in timed:
        if not candidate.tiled.has_borders or is_clean(candidate.tiled, config, tuple(places)):
            return candidate
    return None


def _search(timed: list[TimedLayer], tilings: Iterator[TiledLayer], config: Config, places: Sequence[int]) -> bool:
    """Simulate tilings, and add them to `timed`, sorted by cycles. Return whether the search ended early."""
    close = False
    for tiled in tilings:
        timed.append(TimedLayer(*cycles(tiled, config, tuple(places)), tiled))
        if close := timed[-1].close:
            break
    timed.sort(key=lambda candidate: candidate.cycles)
    return close


@lru_cache(MAX_CACHED)
def cycles(tiled: TiledLayer, config: Config, places: tuple[int, ...]) -> tuple[int, int]:
    passes = Passes(tiled.emit(config, *places).array, config)
    return passes.times.cycles, passes.bound


@lru_cache(MAX_CACHED)
def is_clean(tiled: TiledLayer, config: Config, places: tuple[int, ...]) -> bool:
    """Return whether a tiled layer has no race: zeros of a border may overtake the data of earlier loads."""
    return not Passes(tiled.emit(config, *places).array, config).findings(RunOptions(None, True))


#: The DRAM address of a launch's first segment. The address 0 is reserved: loads from address 0 give zeros.
BASE = 0x1000
ALIGN = 64
#: The kinds of a launch's segments: weights, offsets and results. In DRAM, these segments follow the inputs.
KINDS = {"w": "const", "d": "const", "y": "output"}


def compile_graph(graph: Graph, config: Config, rounding: str) -> Program:
    """Compile a network to one step per node, in order. The step of a convolution may include a max pooling."""
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
        pool = layers.pooling(graph, site, requantising_store(site, mode)) if able else None
        launch = _launch(site, pool, config, mode)
        if pool and isinstance(launch, str):  # the layer may fit the machine without the pooling
            launch = _launch(site, None, config, mode)
        steps.append(HostStep(site.node.name, launch) if isinstance(launch, str) else launch)
        if isinstance(launch, Launch):
            pooled.update(launch.nodes[1:])
    return Program("gemmini", config.to_dict(), config.digest(), mode.name, graph, tuple(steps))


def _launch(site: Site, pool: Site | None, config: Config, rounding: Rounding) -> Launch | str:
    forms = layers.layers(site, config, rounding, pool)
    if isinstance(forms, str):
        return forms
    compiled = list[tuple[TimedLayer, LaunchImage, Frame]]()
    for form, frame in forms:
        if candidate := _compiled(site, pool, form, config):
            compiled.append((*candidate, frame))
            if candidate[0].close:
                break
    if not compiled:
        return "no tile fits half of the scratchpad and half of the accumulator"
    best, image, frame = min(compiled, key=lambda candidate: candidate[0].cycles)
    nodes = (site.node.name, pool.node.name) if pool else (site.node.name,)
    border = {"frame": list(frame)} if any(frame) else {}
    return image.launch(site.node.name, nodes, plan=str(best.tiled), **border)


def _compiled(site: Site, pool: Site | None, form: Layer, config: Config) -> tuple[TimedLayer, LaunchImage] | None:
    """Return the fastest tiling of a form, and its launch. None if no tiling fits the memories."""
    # The array multiplies codes without subtracting the input's zero point, which adds sum(w) * zero to each output.
    # The offsets cancel this constant.
    codes = site.constant(1)
    store = form.store
    others = tuple(range(3)) if isinstance(site.node.op, DepthwiseConv2D) else tuple(range(1, codes.ndim))
    offset = -site.input(0).zero_point * codes.sum(axis=others, dtype=np.int64)
    if store.scale is not None and site.optional(2) is not None:
        offset = offset + site.constant(2)
    if isinstance(form, Stream):
        form = replace(form, biased=bool(offset.any()))
    data = {"w": form.weights(codes, config), "d": offset.astype("<i4")}
    sizes = {"x": form.inputs, "y": (pool or site).output.size * store.nbytes}
    sizes |= {name: array.nbytes for name, array in data.items()}
    segments = _placed({name: sizes[name] for name in ("x", *KINDS)})
    places = [segment.address for segment in segments]
    if (timed := fastest(form, config, places)) is None:
        return None
    held = {name: np.ascontiguousarray(array).reshape(-1).view(np.uint8) for name, array in data.items()}
    return timed, LaunchImage(raw(timed.tiled.emit(config, *places).array), segments, held)


def _moved(site: Site, config: Config, rounding: Rounding) -> Launch | HostStep:
    """Return a launch that adds, concatenates or converts codes, or the step by which the host computes the node."""
    form = addition(site, rounding, config) if isinstance(site.node.op, Add) else copy(site, rounding, config)
    if isinstance(form, str):
        return HostStep(site.node.name, form)
    sizes = {f"x{index or ''}": site.input(index).size for index in range(len(site.inputs))}
    if isinstance(form, Addition):
        sizes["x1"] = form.read(config)
    segments = _placed(sizes | {"y": site.output.size})
    places = [segment.address for segment in segments]
    timed = fastest(form, config, places)
    assert timed is not None, "a block fits half of each memory"
    image = LaunchImage(raw(timed.tiled.emit(config, *places).array), segments, {})
    return image.launch(site.node.name, (site.node.name,), plan=str(timed.tiled))


def _placed(sizes: Mapping[str, int]) -> tuple[DramSegment, ...]:
    """Return DRAM segments in the order of `sizes`, which maps a segment's name to its size in bytes."""
    parts = [(name, KINDS.get(name, "input"), size) for name, size in sizes.items()]
    return in_a_row(*parts, base=BASE, align=ALIGN)
