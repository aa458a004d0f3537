"""Compile a network to launches, one per layer. A node becomes a descriptor, or runs on the host for a stated reason.

`explain` repeats the network analysis of the engine's document (tables 1, 2 and 4; see README.md), and adds the blocks
and cycles of each layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Graph, Site, Tensor
from tilewright.graph.ops import Conv2D, FullyConnected, Linear, MaxPool2D, OnnxOp, Window
from tilewright.graph.rounding import Requant, Rounding, clamp_range, rounding_mode
from tilewright.graph.takes import Takes
from tilewright.program.program import HostStep, Launch, Program
from tilewright.program.stages import Stage, Stages, Table
from tilewright.targets.zynq import placement
from tilewright.targets.zynq.config import GROUP, Config
from tilewright.targets.zynq.isa.image import LayerImage
from tilewright.targets.zynq.isa.layer import DESCRIPTORS, LAYOUT, RULES, Kind, Layer
from tilewright.targets.zynq.timing import walk
from tilewright.targets.zynq.timing.service import PAGED, schedule

NAME = "zynq"
_CONV = Window((3, 3), (1, 1), (1, 1, 1, 1))
_POOL = Window((2, 2), (2, 2))
_TAKES = Takes(("int8", "uint8"), ("int8", "uint8"), weight_zero_point=True)


def plan(site: Site, config: Config, mode: Rounding) -> Layer | str:
    """Return the layer that computes a node, or the reason why the host runs the node."""
    op = site.node.op
    if isinstance(op, MaxPool2D):
        fields = _pool(site, op, mode)
    elif isinstance(op, Conv2D | FullyConnected):
        fields = _sum(site, op, mode)
    else:
        return OnnxOp.real(site) or f"the engine has no state machine for {op.label}"
    if isinstance(fields, str):
        return fields
    for name, value in fields.items():
        field = LAYOUT.by_name[name]
        if not field.low <= value <= field.high:
            return f"{name}={value} is outside {field.low}..{field.high}, the range of the descriptor's field"
    # The sizes fit the descriptor. walk.refusal checks whether they also fit the blocks and stores.
    layer = Layer(config, {**dict.fromkeys(LAYOUT.by_name, 0), **fields})
    return walk.refusal(layer) or layer


def _pool(site: Site, op: MaxPool2D, mode: Rounding) -> dict[str, int] | str:
    x = site.input(0)
    out = site.output
    if op.window != _POOL:
        return f"a pool of {_differs(op.window, _POOL)} is not supported; pools must be 2x2, stride 2, without padding"
    if reason := op.refusal(site, _TAKES):
        return reason
    low, high = clamp_range(op.activation, out.scale, out.zero_point, out.dtype, mode.delegated)
    return {**_image(Kind.POOL, x), **_words(x, out), "low": low, "high": high}


def _sum(site: Site, op: Conv2D | FullyConnected, mode: Rounding) -> dict[str, int] | str:
    x = site.input(0)
    w = site.input(1)
    out = site.output
    if reason := op.refusal(site, _TAKES):
        return reason
    if op.shift is not None or any(tensor.quant is None for tensor in (x, w, out)):
        return "requantisation by a shift alone is not supported; input, weights and output need scales"
    if isinstance(op, Conv2D):
        if op.window != _CONV:
            return f"a convolution of {_differs(op.window, _CONV)} is not supported; use 3x3, stride 1, padding 1"
        kind = Kind.CONV_1_1 if x.shape[3] < GROUP else Kind.CONV_OTHER
        fields = {**_image(kind, x), "oc": w.shape[0]}
    else:
        if x.size != w.shape[1]:
            return f"a batch of {x.size // w.shape[1]} rows is not supported; use one row"
        fields = {"kind": int(Kind.FC), "r": w.shape[1], "l": w.shape[0]}
    requant = _requant(site, op, mode)
    relu = requant.low == requant.zero_point  # clipping to `low` includes ReLU
    return {
        **fields,
        **_words(x, out),
        **{"relu": int(relu), "rule": RULES.index(op.rule(mode)), "w_signed": int(w.dtype == "int8")},
        **{"zx": x.zero_point, "zw": w.quant.zero_point[0] if w.quant else 0},
        **{"zy": requant.zero_point, "low": requant.low, "high": requant.high},
    }


def _image(kind: Kind, x: Tensor) -> dict[str, int]:
    return {"kind": int(kind), "ic": x.shape[3], "rows": x.shape[1], "cols": x.shape[2]}


def _words(x: Tensor, out: Tensor) -> dict[str, int]:
    return {"x_signed": int(x.dtype == "int8"), "y_signed": int(out.dtype == "int8")}


def _requant(site: Site, op: Linear, mode: Rounding) -> Requant:
    return Requant.of_product(site.input(0), site.input(1), site.output, op.activation, mode.delegated)


def _differs(window: Window, only: Window) -> str:
    """Return text with the attributes of a window that differ from the supported window, `only`."""
    marks = {"kernel": "x", "stride": "x", "padding": "/", "dilation": "x"}
    pairs = {name: (getattr(window, name), getattr(only, name)) for name in marks}
    return ", ".join(f"{name} {marks[name].join(map(str, a))}" for name, (a, b) in pairs.items() if a != b)


def compile_graph(graph: Graph, config: Config, rounding: str) -> Program:
    """Compile a network to one step per node, in order. The blocks of constants are contiguous in DDR."""
    mode = rounding_mode(rounding)
    steps: list[Launch | HostStep] = []
    weight_base = bias_base = 0
    for site in graph.sites():
        layer = plan(site, config, mode)
        if isinstance(layer, str):
            steps.append(HostStep(site.node.name, layer))
            continue
        if layer.channels:
            layer = replace(layer, fields={**layer.fields, "weight_base": weight_base, "bias_base": bias_base})
            weight_base += placement.weight_blocks(layer)
            bias_base += -(-layer.channels // config.block_words("bias"))
        steps.append(_launch(site, layer, mode))
    return Program(NAME, config.to_dict(), config.digest(), mode.name, graph, tuple(steps))


def _launch(site: Site, layer: Layer, mode: Rounding) -> Launch:
    op = site.node.op
    weight = np.zeros(0, np.uint8)
    bias = np.zeros(0, np.int32)
    factor = np.zeros(0, np.float64)
    if isinstance(op, Linear):
        weight = np.ascontiguousarray(site.constant(1)).view(np.uint8).ravel()
        bias = site.constant(2) if site.optional(2) else np.zeros(layer.channels, np.int32)
        requant = _requant(site, op, mode)
        factor = np.atleast_1d(requant.real32 if op.rule(mode) == "float" else requant.real).astype(np.float64)
    arrays: dict[str, Array] = {"weight": weight, "bias": bias, "factor": factor}
    insns = LAYOUT.encode_rows([layer.fields])
    return Launch(site.node.name, (site.node.name,), {}, {"insns": insns, **arrays})


def explain(program: Program, config: Config, timing: str) -> Stages:
    """Return the tables of the command `explain`. A program without a network has no tables 1, 2 and 4."""
    layers = [(launch.name, LayerImage.of(launch, config).layer) for launch in program.launches]
    analysis = _analysis(program.graph) if program.graph else ()
    code = [f"{name}: {DESCRIPTORS.notation.show(layer.fields)}" for name, layer in layers]
    return [*analysis, *_engine(layers, config, timing), Stage("descriptors", code)]


def _analysis(graph: Graph) -> Iterator[Table]:
    sites = list(graph.sites())
    convolutions = []
    for site in (site for site in sites if isinstance(site.node.op, Conv2D)):
        channels, *kernel = (str(size) for size in site.input(1).shape)
        convolutions.append((site.node.name, "*".join(kernel), channels, "*".join(map(str, site.output.shape[1:3]))))
    yield Table("table 1: convolutions", ("layer", "kernel", "channels (OC)", "positions (S)"), convolutions)
    products = [
        (site.node.name, str(site.input(1).shape[1]), str(site.input(1).shape[0]))
        for site in sites
        if isinstance(site.node.op, FullyConnected)
    ]
    yield Table("table 2: fully connected", ("layer", "products of a sum (R)", "sums (L)"), products)
    inputs = [("input", _product(graph.tensors[name].shape[1:]), "0") for name in graph.inputs]
    volumes = [_volumes(site) for site in sites if isinstance(site.node.op, Conv2D | FullyConnected)]
    yield Table("table 4: words", ("layer", "results", "weights"), [*inputs, *volumes])


def _volumes(site: Site) -> tuple[str, ...]:
    channels, *kernel = site.input(1).shape
    weights = f"({'*'.join(map(str, kernel))})*{channels} = {channels * prod(kernel)}"
    return site.node.name, _product(site.output.shape[1:]), weights


def _product(shape: Sequence[int]) -> str:
    return f"{'*'.join(map(str, shape))} = {prod(shape)}" if len(shape) > 1 else str(prod(shape))


def _engine(layers: list[tuple[str, Layer]], config: Config, timing: str) -> Iterator[Table]:
    rows = []
    for name, layer in layers:
        timed = schedule(layer, paged=timing == PAGED)
        loads = ", ".join(f"{store} {count}" for store, count in timed.loads().items())
        straddling = walk.straddling(layer) if layer.conv else "-"
        blocks = (placement.data_blocks(layer), placement.weight_blocks(layer) if layer.channels else 0, straddling)
        cells = (layer.iterations, f"{layer.utilization:.4f}", *blocks, timed.engine // layer.samples, loads)
        rows.append((name, *map(str, cells), str(-(-timed.cycles // layer.samples))))
    columns = "layer, iterations, utilization, data blocks, weight blocks, straddle if packed, engine cycles"
    header = (*columns.split(", "), "block services", "cycles")
    yield Table(f"engine: layout {config.layout}, timing model {timing}", header, rows)
    bill = [(part, str(count)) for part, count in config.bill.items()]
    whole = f"{config.dsp} of {config.dsp_budget} DSP48, {config.bram36} of {config.bram_budget} BRAM36"
    yield Table(f"bill: {whole}", ("part", "takes"), bill)
