"""The compiler of networks: a launch for each matrix product, convolution and addition, tiled by the exact clock.

Symmetric codes with one scale for all weights stay on the machine: its stores scale, clip and pool. For others it
stores sums (matrix products only), and the host requantises them. The host computes all other operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tilewright.graph.ir import Graph, Site
from tilewright.graph.ops import Add, Concat, DepthwiseConv2D, Linear, OnnxOp, Quantize
from tilewright.graph.rounding import Rounding, rounding_mode
from tilewright.program.launch_image import DramSegment, LaunchImage, in_a_row
from tilewright.program.program import HostStep, Launch, Program
from tilewright.targets.gemmini.compiler import layers
from tilewright.targets.gemmini.compiler.additions import Addition, addition
from tilewright.targets.gemmini.compiler.convolutions import Frame
from tilewright.targets.gemmini.compiler.copies import copy
from tilewright.targets.gemmini.compiler.layers import Layer
from tilewright.targets.gemmini.compiler.leaving import leaving
from tilewright.targets.gemmini.compiler.search import Timed, fastest
from tilewright.targets.gemmini.compiler.streams import Stream
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.fields import raw

#: Where the segments of a launch begin. Address 0 stands for zeros.
BASE, ALIGN = 0x1000, 64
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
    codes, leaves = site.constant(1), form.leaves
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
