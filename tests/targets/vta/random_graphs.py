"""Random networks, and machines to compile them for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.graph.ir import Graph, Node, Quant, Site, Tensor
from tilewright.graph.ops import AveragePool2D, Conv2D, DepthwiseConv2D, FullyConnected, MaxPool2D, Op, Window
from tilewright.graph.rounding import Activation
from tilewright.sim.steps import Trace
from tilewright.targets.vta.config import PRESETS, Config


def config(**overrides: Any) -> Config:
    return replace(PRESETS["pynq"], **overrides)


def buffers(uop: int, inp: int, wgt: int, acc: int, **overrides: Any) -> Config:
    sizes = {"LOG_UOP_BUFF_SIZE": uop, "LOG_INP_BUFF_SIZE": inp, "LOG_WGT_BUFF_SIZE": wgt, "LOG_ACC_BUFF_SIZE": acc}
    return config(**sizes, **overrides)


#: As in shared/vta_vectors; `shallow` has the smallest command and token queues that upstream ever had.
CONFIGS = {
    "pynq": config(),
    "ultra96": PRESETS["ultra96"],
    "block32": config(LOG_BLOCK=5),
    "batch2": config(LOG_BATCH=1),
    "batch4b8": buffers(13, 13, 15, 15, LOG_BATCH=2, LOG_BLOCK=3),
    "small": buffers(12, 13, 15, 14),
    "tiny": buffers(11, 11, 14, 13),
    "asym": buffers(15, 14, 18, 17, TARGET="sim"),
    "acc16": buffers(15, 15, 18, 16, LOG_ACC_WIDTH=4),
    "shallow": buffers(12, 13, 15, 14, queue_depth=1, token_depth=8),
    "few_uops": buffers(6, 13, 15, 14),
}


def quant(rng: np.random.Generator, zero_point: int, channels: int = 1) -> Quant:
    scale = tuple(float(np.float32(s)) for s in rng.uniform(0.002, 0.02, channels))
    return Quant(scale, (zero_point,) * channels, 0)


def graph_of(op: Op, x: Tensor, constants: list[Tensor], out: Tensor) -> Graph:
    node = Node("layer", op, (x.name, *(t.name for t in constants)), (out.name,))
    (shape,) = op.shapes(Site(node, (x, *constants), (out,)))
    out = replace(out, shape=shape)
    tensors = {tensor.name: tensor for tensor in (x, *constants, out)}
    return Graph("random", tensors, (node,), (x.name,), (out.name,)).validate()


def random_graph(rng: np.random.Generator) -> Graph:
    """One convolution, depthwise or grouped convolution, product or pool of odd sizes."""
    kind = rng.choice(["conv", "conv", "conv", "depthwise", "grouped", "fc", "average", "max"])
    channels = int(rng.choice([1, 2, 3, 5, 8, 16, 17, 24, 33, 48, 64]))
    outputs = int(rng.choice([1, 4, 10, 16, 20, 33, 64]))
    zero = int(rng.choice([-128, 0, 7, 127, int(rng.integers(-128, 128))]))
    if kind == "fc":
        depth, rows = int(rng.integers(1, 300)), int(rng.choice([1, 1, 3, 20]))
        x = Tensor("x", (rows, depth), "int8", quant(rng, zero))
        return graph_of(FullyConnected(), x, weights(rng, (outputs, depth), outputs, 0), output(rng))
    kernel = int(rng.integers(1, 6)), int(rng.integers(1, 6))
    stride = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    dilation = int(rng.integers(1, 3)), int(rng.integers(1, 3))
    size = tuple(int(rng.integers((k - 1) * d + 1, 16)) for k, d in zip(kernel, dilation, strict=True))
    padding = [int(rng.integers(0, (k - 1) * d + 1)) for k, d in zip(kernel, dilation, strict=True) for _ in "ab"]
    window = Window(kernel, stride, (padding[0], padding[1], padding[2], padding[3]), dilation)
    if kind in ("average", "max"):
        x = Tensor("x", (1, *size, channels), "int8", quant(rng, zero))
        activation: Activation = ("none", "relu", "relu6")[int(rng.integers(3))]
        pool = AveragePool2D if kind == "average" else MaxPool2D
        return graph_of(pool(window, activation), x, [], replace(output(rng), quant=x.quant))
    if kind == "depthwise":
        channels, multiplier = min(channels, 48), int(rng.choice([1, 1, 1, 2, 3]))
        outputs = channels * multiplier
        parts = weights(rng, (1, *kernel, outputs), outputs, 3)
        op: Op = DepthwiseConv2D(window=window)
    else:
        groups = int(rng.choice([2, 3])) if kind == "grouped" else 1
        channels, outputs = channels * groups, outputs * groups
        parts = weights(rng, (outputs, *kernel, channels // groups), outputs, 0)
        op = Conv2D(window=window)
    x = Tensor("x", (1, *size, channels), "int8", quant(rng, zero))
    return graph_of(op, x, parts, output(rng))


def weights(rng: np.random.Generator, shape: tuple[int, ...], outputs: int, axis: int) -> list[Tensor]:
    """Weights and bias; now and then all extreme, so that byte planes are full."""
    data = rng.integers(-128, 128, shape) if rng.random() < 0.8 else np.full(shape, rng.choice([-128, 127]))
    bias = rng.integers(-5000, 5000, outputs).astype(np.int32)
    return [
        Tensor("w", shape, "int8", replace(quant(rng, 0, outputs), axis=axis), data.astype(np.int8)),
        Tensor("b", (outputs,), "int32", None, bias),
    ]


def output(rng: np.random.Generator) -> Tensor:
    return Tensor("y", (), "int8", Quant((float(np.float32(rng.uniform(0.5, 4.0))),), (int(rng.integers(-128, 128)),)))


def check_queues(trace: Trace) -> None:
    """No token queue ever holds more than its depth. A pop may make room for a push in the same cycle."""
    for index, queue in enumerate(trace.table.queues):
        pushed = np.sort(trace.end[trace.table.pushes >> index & 1 == 1])
        popped = np.sort(trace.start[trace.table.pops >> index & 1 == 1])
        held = np.arange(1, pushed.size + 1) - np.searchsorted(popped, pushed, side="right")
        assert held.max(initial=0) <= queue.depth


def unsigned(graph: Graph) -> Graph:
    """The same network with uint8 activations: zero points and codes 128 more."""

    def shifted(tensor: Tensor) -> Tensor:
        if tensor.dtype != "int8" or tensor.data is not None or tensor.quant is None:
            return tensor
        quant = replace(tensor.quant, zero_point=tuple(z + 128 for z in tensor.quant.zero_point))
        return replace(tensor, dtype="uint8", quant=quant)

    return replace(graph, tensors={name: shifted(tensor) for name, tensor in graph.tensors.items()})


def in_powers(graph: Graph, shift: int, halved: set[str]) -> Graph:
    """The same network with power-of-two scales and zero points 0: products shifted right by about `shift`.

    `halved` tensors have the scale 2, others 1.
    """

    def of(name: str, tensor: Tensor) -> Tensor:
        if tensor.quant is None:
            return tensor
        exponent = -shift if tensor.data is not None else int(name in halved)
        return replace(tensor, quant=Quant((2.0**exponent,), (0,), 0))

    return replace(graph, tensors={name: of(name, tensor) for name, tensor in graph.tensors.items()})
