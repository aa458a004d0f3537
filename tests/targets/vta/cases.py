"""Random layers and random machines as hypothesis strategies: sizes are drawn and shrink, values are seeded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st

from tests.targets.vta.networks import ACTIVATIONS, HOST_KINDS, MACHINE_KINDS, Builder
from tests.targets.vta.random_graphs import in_powers, unsigned
from tilewright.array import Array
from tilewright.errors import ConfigError
from tilewright.graph.ir import Graph, Tensor
from tilewright.graph.ops import (
    Add,
    AveragePool2D,
    Conv2D,
    DepthwiseConv2D,
    FullyConnected,
    Linear,
    MaxPool2D,
    RealAveragePool2D,
    Window,
)
from tilewright.graph.rounding import Shift
from tilewright.report.explain import graph_text
from tilewright.targets.vta.config import PRESETS, Config

Draw = Callable[[st.SearchStrategy[Any]], Any]
ROUNDINGS = ("tflm", "tflm", "ort", "ort", "pow2", "litert", "xnnpack")
KINDS = ("conv", "conv", "grouped", "depthwise", "fc", "add", "max", "average", "real average")
EVEN = st.sampled_from([16, 32, 64])


@dataclass(frozen=True, eq=False)
class Case:
    """A network of int8 or uint8 codes with the rounding mode that it is run under, and samples of its inputs."""

    graph: Graph
    rounding: str
    inputs: dict[str, Array]

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Hypothesis prints this, without the values."""
        printer.text(f"{self.rounding}, {graph_text(self.graph)}")


@st.composite
def machines(draw: Draw) -> Config:
    """Any legal machine from a few tiles a memory to the usual; most can run networks, some only refuse them."""
    alu = draw(st.sampled_from(["upstream", "upstream", "fused", "rounding", "float"]))
    stages = 3 if alu == "rounding" else draw(st.sampled_from([3, 4]))
    plain = alu == "upstream" and stages == 3
    batch, block = draw(st.sampled_from([0, 0, 0, 1, 2])), draw(st.sampled_from([4, 4, 4, 3, 5, 2, 6]))
    width = draw(st.sampled_from([3] * 15 + [2, 4]))  # else every layer is the host's
    wide = 4 if plain and draw(st.integers(0, 9)) == 9 else 5
    uop = draw(st.integers(1, 13))
    bits = {name: draw(st.integers(1, 12)) for name in ("inp", "wgt", "acc")}
    par, ports = draw(st.integers(1, 9)), st.sampled_from([None, None, None, 64, 256])
    keys: dict[str, Any] = {
        "LOG_BATCH": batch,
        "LOG_BLOCK": block,
        "LOG_INP_WIDTH": width,
        "LOG_ACC_WIDTH": wide,
        "LOG_UOP_BUFF_SIZE": uop + 2,
        "LOG_INP_BUFF_SIZE": bits["inp"] + batch + block + width - 3,
        "LOG_WGT_BUFF_SIZE": bits["wgt"] + 2 * block,
        "LOG_ACC_BUFF_SIZE": bits["acc"] + batch + block + wide - 3,
        "LOG_PAR_BUFF_SIZE": par + 2 + block,
        "LOG_ALU_UOP_BUFF_SIZE": 2 + draw(st.integers(1, uop)),
        "LOG_BUS_WIDTH": draw(st.sampled_from([None, 6, 7, 9])),
        "TARGET": draw(st.sampled_from(["pynq", "ultra96"])),
        "semantics": draw(st.sampled_from(["hls", "hls", "fsim", "chisel"])) if plain else "hls",
        "stages": stages,
        "alu": alu,
        "acc_banks": 1 << draw(st.integers(0, min(4, bits["acc"]))),
        "token_depth": draw(st.sampled_from([1024, 100, 16, 8, 4, 3, 2, 1])),
        "queue_depth": draw(st.sampled_from([512, 8, 2, 1])),
        "dram_latency": draw(st.sampled_from([16, 0, 100])),
        "alu_lanes": draw(st.sampled_from([None, None, 4])),
    } | {key: draw(ports) for key in ("inp_read_bits", "wgt_read_bits", "acc_read_bits", "acc_write_bits")}
    try:
        return replace(PRESETS["pynq"], **keys)
    except ConfigError:
        reject()


@st.composite
def windows(draw: Draw, kernels: int = 7) -> tuple[Window, tuple[int, int]]:
    """A window, and an image that holds one position of it or more; now and then one lies wholly in the padding."""
    parts = []
    for _ in "hw":
        kernel, stride = draw(st.integers(1, kernels)), draw(st.integers(1, 3))
        dilation = draw(st.integers(1, 3)) if kernel > 1 else 1
        extent = (kernel - 1) * dilation + 1
        most = extent if draw(st.integers(0, 19)) == 19 else extent - 1
        before, after = draw(st.integers(0, most)), draw(st.integers(0, most))
        least = max(1, extent - before - after)
        parts.append((kernel, stride, dilation, (before, after), draw(st.integers(least, least + 11))))
    (kh, sh, dh, rows, height), (kw, sw, dw, columns, width) = parts
    return Window((kh, kw), (sh, sw), (*rows, *columns), (dh, dw)), (height, width)


@st.composite
def layers(draw: Draw) -> Case:
    """One layer of any kind that VTA knows."""
    builder = Builder(np.random.default_rng(draw(st.integers(0, 1 << 16))))
    kind, rounding = draw(st.sampled_from(KINDS)), draw(st.sampled_from(ROUNDINGS))
    activation = draw(st.sampled_from(ACTIVATIONS))
    channels, outputs = draw(st.integers(1, 100) | EVEN), draw(st.integers(1, 100) | EVEN)
    if kind == "fc":
        x = builder.given((draw(st.sampled_from([1, 1, 1, 3, 20])), draw(st.integers(1, 300))))
        builder.linear(FullyConnected(activation), x, (outputs, builder.tensors[x].shape[1]), 0)
    elif kind == "add":
        shape = (1, draw(st.integers(1, 12)), draw(st.integers(1, 12)), channels)
        x = builder.given(shape)
        other = x if draw(st.integers(0, 9)) == 9 else builder.given(shape)
        builder.layer(Add(activation), x, other)
    else:
        window, size = draw(windows())
        groups = draw(st.integers(2, 5)) if kind == "grouped" else 1
        x = builder.given((1, *size, -(-channels // groups) * groups))
        channels = builder.tensors[x].shape[3]
        same = builder.tensors[x].quant
        if kind in ("conv", "grouped"):
            shape = (-(-outputs // groups) * groups, *window.kernel, channels // groups)
            builder.linear(Conv2D(activation, window), x, shape, 0)
        elif kind == "depthwise":
            shape = (1, *window.kernel, channels * draw(st.sampled_from([1, 1, 1, 2, 3])))
            builder.linear(DepthwiseConv2D(activation, window), x, shape, 3)
        elif kind == "max":
            builder.layer(MaxPool2D(window, activation), x, quant=same)
        elif kind == "average":
            builder.layer(AveragePool2D(window, activation), x, quant=same)
        else:
            builder.layer(RealAveragePool2D(window, draw(st.booleans())), x)
    case = case_of(draw, builder, rounding)
    product = isinstance(case.graph.nodes[0].op, Linear) and rounding != "pow2"
    return replace(case, graph=shifted(case.graph, builder.rng)) if product and draw(st.integers(0, 9)) == 9 else case


@st.composite
def networks(draw: Draw) -> Case:
    """A few layers that read each other's results, some of them the host's; perhaps several outputs."""
    builder = Builder(np.random.default_rng(draw(st.integers(0, 1 << 16))))
    rounding = draw(st.sampled_from(ROUNDINGS))
    builder.given((1, draw(st.integers(1, 14)), draw(st.integers(1, 14)), draw(st.integers(1, 40) | EVEN)))
    kinds = [st.sampled_from(MACHINE_KINDS), st.sampled_from(MACHINE_KINDS), st.sampled_from(HOST_KINDS)]
    for kind in draw(st.lists(st.one_of(kinds), min_size=1, max_size=9)):
        builder.grow(kind)
    if not builder.nodes:
        reject()
    return case_of(draw, builder, rounding)


def shifted(graph: Graph, rng: np.random.Generator) -> Graph:
    """The same product with PULP's requantisation: integers of its own in the place of scales."""
    (node,) = graph.nodes
    out = graph.tensors[node.outputs[0]]
    info, count = np.iinfo(out.dtype), int(rng.choice([1, out.shape[-1]]))
    factors = [
        Tensor(name, (count,), "int64", None, rng.integers(low, high, count))
        for name, low, high in (("multiplier", 1, 1 << 12), ("addend", -(1 << 20), 1 << 20))
    ]
    assert isinstance(node.op, Linear)
    op = replace(node.op, shift=Shift(1 << int(rng.integers(8, 24)), int(info.min), int(info.max)))
    inputs = (*node.inputs[:2], node.inputs[2] if len(node.inputs) > 2 else "", *(tensor.name for tensor in factors))
    tensors = {**graph.tensors, **{tensor.name: tensor for tensor in factors}}
    return replace(graph, tensors=tensors, nodes=(replace(node, op=op, inputs=inputs),)).validate()


def case_of(draw: Draw, builder: Builder, rounding: str) -> Case:
    """The network under its rounding: with powers of two as scales, or perhaps unsigned; samples, at times extreme."""
    rng, graph = builder.rng, builder.graph()
    if rounding == "pow2":
        halved = set(graph.outputs) if len(graph.nodes) == 1 and graph.nodes[0].op.kind == "add" else set()
        graph = in_powers(graph, draw(st.integers(1, 20)), halved if draw(st.booleans()) else set())
    elif draw(st.booleans()):
        graph = unsigned(graph)
    inputs = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        info, shape = np.iinfo(tensor.dtype), (draw(st.integers(1, 3)), *tensor.shape)
        fill = draw(st.sampled_from([None, None, None, info.min, info.max]))
        values = rng.integers(info.min, info.max, shape, endpoint=True) if fill is None else np.full(shape, fill)
        inputs[name] = values.astype(tensor.dtype)
    count = min(len(values) for values in inputs.values())
    return Case(graph, rounding, {name: values[:count] for name, values in inputs.items()})
