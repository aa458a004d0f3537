"""How far the quantised model is from the float one: signal-to-noise ratio of each tensor, and top-1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log10, nan

import numpy as np
from onnx import ModelProto

from tilewright.array import Array
from tilewright.model.inputs import Samples
from tilewright.quantize.model import title
from tilewright.quantize.network import Network
from tilewright.quantize.samples import count_of, feeds
from tilewright.quantize.session import Tracer

Progress = Callable[[int, int, str], None]
ACTIVATIONS = ("Relu", "Clip")


@dataclass(frozen=True)
class Measured:
    """A tensor of the float model: the node that computes it, its scale, its SNR in dB (inf: equal, nan: zeros)."""

    tensor: str
    name: str
    op: str
    scale: float | None
    snr_db: float


@dataclass(frozen=True)
class Top1:
    """Shares of samples: both models give the same class; each gives the right one, where that is known."""

    agreement: float
    float_accuracy: float | None
    accuracy: float | None


@dataclass(frozen=True)
class Fidelity:
    """All of it, over so many samples."""

    layers: tuple[Measured, ...]
    outputs: tuple[Measured, ...]
    top1: Top1 | None
    samples: int


class _Power:
    """Sums of squares of a signal and of its error."""

    def __init__(self) -> None:
        self.signal = self.noise = 0.0

    def add(self, exact: Array, found: Array) -> None:
        wide = exact.astype(np.float64)
        self.signal += float(np.sum(wide * wide))
        wide -= found
        self.noise += float(np.sum(wide * wide))

    @property
    def db(self) -> float:
        if not self.noise:
            return inf if self.signal else nan
        return 10 * log10(self.signal / self.noise) if self.signal else -inf


def compare(
    original: ModelProto,
    quantised: ModelProto,
    evaluated: ModelProto,
    samples: Samples,
    progress: Progress | None = None,
) -> Fidelity:
    """Run the float model and `evaluated`, the form of `quantised` that computes its arithmetic, side by side."""
    net, counterpart = Network(original), counterparts(quantised)
    tensors = [name for node in net.nodes for name in node.output if name in counterpart or name in net.outputs]
    tensors = [name for name in tensors if net.is_float(name) or name in net.outputs]
    exact, found = Tracer(original, tensors), Tracer(evaluated, [counterpart.get(name, (name,))[0] for name in tensors])
    powers = {name: _Power() for name in tensors}
    classes: list[tuple[int, int]] = []
    for index, feed in enumerate(feeds(samples)):
        truth, got = exact.run(feed), found.run(feed)
        for name in tensors:
            powers[name].add(truth[name], got[name if name in net.outputs else counterpart[name][0]])
        first = net.outputs[0]
        if len(net.outputs) == 1 and _is_scores(truth[first]):
            classes.append((int(truth[first].argmax()), int(got[first].argmax())))
        if progress:
            progress(index + 1, count_of(samples), "comparing")

    def measured(name: str) -> Measured:
        node_name, op = _label(net, name, set(tensors))
        return Measured(name, node_name, op, counterpart[name][1] if name in counterpart else None, powers[name].db)

    layers = tuple(measured(name) for name in tensors)
    outputs = tuple(row for row in layers if row.tensor in net.outputs)
    return Fidelity(layers, outputs, _top1(classes, samples.labels), count_of(samples))


def counterparts(quantised: ModelProto) -> dict[str, tuple[str, float]]:
    """For each float tensor that is quantised: its dequantised name, and its scale."""
    net = Network(quantised)
    found = {}
    for node in net.nodes:
        if node.op_type != "QuantizeLinear":
            continue
        for reader in net.consumers.get(node.output[0], []):
            if reader.op_type == "DequantizeLinear":
                scale = float(net.constant(node.input[1]))
                result = reader.output[0]
                found[result if result in net.outputs else node.input[0]] = (result, scale)
    return found


def _label(net: Network, tensor: str, shown: set[str]) -> tuple[str, str]:
    """The node that computes a tensor; a Relu or Clip with no tensor of its own before it counts with that node."""
    node = net.producer[tensor]
    before = net.producer.get(node.input[0]) if node.op_type in ACTIVATIONS else None
    if before is not None and node.input[0] not in shown:
        return title(before), f"{before.op_type}+{node.op_type}"
    return title(node), node.op_type


def _is_scores(output: Array) -> bool:
    """Whether an output looks like one score a class: one axis longer than 1."""
    return sum(extent > 1 for extent in output.shape) == 1


def _top1(classes: list[tuple[int, int]], labels: Array | None) -> Top1 | None:
    if not classes:
        return None
    pairs = np.array(classes)
    agreement = float(np.mean(pairs[:, 0] == pairs[:, 1]))
    if labels is None:
        return Top1(agreement, None, None)
    return Top1(agreement, float(np.mean(pairs[:, 0] == labels)), float(np.mean(pairs[:, 1] == labels)))
