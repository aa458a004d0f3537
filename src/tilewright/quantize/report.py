"""Compares the quantised model with the float model: SNR per tensor, top-1 accuracy, and nodes in float32."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import inf, isfinite, log2, log10, nan
from typing import Any

import numpy as np
from onnx import ModelProto

from tilewright.array import Array
from tilewright.model.inputs import Samples
from tilewright.model.onnx_values import ACTIVATIONS, JOINED
from tilewright.model.verification import Verification
from tilewright.quantize.model import Network, Tracer, title
from tilewright.quantize.pow2 import Pow2Result
from tilewright.quantize.samples import Options, Progress, feeds
from tilewright.report.render import console
from tilewright.report.table import Grid

COLUMNS = ("layer", "op", "scale", "shift", "SNR dB")
NUMERIC = {"scale", "shift", "SNR dB"}


@dataclass(frozen=True)
class Measurement:
    """The SNR, in dB, of a tensor after quantisation (inf: no error, nan: only zeros in both models)."""

    name: str
    op: str
    tensor: str
    scale: float | None
    snr_db: float


@dataclass(frozen=True)
class Top1:
    """The fraction of samples with equal classes, and the accuracy of each model (None: no labels)."""

    agreement: float
    float_accuracy: float | None
    accuracy: float | None


@dataclass(frozen=True)
class Fidelity:
    """All measurements of a quantised model."""

    layers: tuple[Measurement, ...]
    outputs: tuple[Measurement, ...]
    top1: Top1 | None
    samples: int


def _squares(exact: Array, actual: Array) -> tuple[float, float]:
    wide = exact.astype(np.float64)
    signal = float(np.sum(wide * wide))
    wide -= actual
    return signal, float(np.sum(wide * wide))


def _ratio(signal: float, noise: float) -> float:
    if not noise:
        return inf if signal else nan
    return 10 * log10(signal / noise) if signal else -inf


def compare(
    original: ModelProto,
    quantised: ModelProto,
    evaluated: ModelProto,
    samples: Samples,
    progress: Progress | None = None,
) -> Fidelity:
    """Compare a quantised model with the float model on the same samples.

    onnxruntime runs `evaluated` in place of `quantised`, so that it reproduces the exact arithmetic (see emit.exact).
    """
    net = Network(original)
    counterpart = counterparts(quantised)
    tensors = [name for node in net.nodes for name in node.output if name in counterpart or name in net.outputs]
    tensors = [name for name in tensors if net.is_float(name) or name in net.outputs]
    float_values = Tracer(original, tensors)
    quantised_values = Tracer(evaluated, [counterpart.get(name, (name,))[0] for name in tensors])
    powers = {name: np.zeros(2) for name in tensors}
    classes: list[tuple[int, int]] = []
    for feed in feeds(samples, progress, "comparing"):
        truth = float_values.run(feed)
        got = quantised_values.run(feed)
        for name in tensors:
            powers[name] += _squares(truth[name], got[name if name in net.outputs else counterpart[name][0]])
        # If the only output is a vector of scores, compare the classes of the two models.
        first = net.outputs[0]
        scores = sum(extent > 1 for extent in truth[first].shape) == 1  # only one axis has several elements
        if len(net.outputs) == 1 and scores:
            classes.append((int(truth[first].argmax()), int(got[first].argmax())))

    def measured(name: str) -> Measurement:
        scale = counterpart[name][1] if name in counterpart else None
        return Measurement(*_label(net, name, set(tensors)), name, scale, _ratio(*powers[name].tolist()))

    layers = tuple(measured(name) for name in tensors)
    outputs = tuple(row for row in layers if row.tensor in net.outputs)
    return Fidelity(layers, outputs, _top1(classes, samples.labels), samples.count)


def counterparts(quantised: ModelProto) -> dict[str, tuple[str, float]]:
    """Return {quantised float tensor: (name of its dequantised tensor, scale)}."""
    net = Network(quantised)
    results = {}
    for node in net.nodes:
        for reader in net.consumers.get(node.output[0], []) if node.op_type == "QuantizeLinear" else ():
            if reader.op_type == "DequantizeLinear":
                result = reader.output[0]
                name = result if result in net.outputs else node.input[0]
                results[name] = result, float(net.constant(node.input[1]))
    return results


def _label(net: Network, tensor: str, shown: set[str]) -> tuple[str, str]:
    """Return the name and the operators of the layer that computes a tensor."""
    node = net.producer[tensor]
    kinds = [node.op_type]
    # A Relu, a Clip or an addition belongs to the layer of the node before it, unless the tensor between them is shown.
    while node.op_type in (*ACTIVATIONS, "Add"):
        read = node.input if node.op_type == "Add" else node.input[:1]
        before = [net.producer[name] for name in read if name in net.producer and name not in shown]
        if len(before) != 1 or (node.op_type == "Add" and before[0].op_type not in JOINED):
            break
        node = before[0]
        kinds.insert(0, node.op_type)
    return title(node), "+".join(kinds)


def _top1(classes: list[tuple[int, int]], labels: Array | None) -> Top1 | None:
    if not classes:
        return None
    before, after = np.array(classes).T
    agreement = float(np.mean(before == after))
    if labels is None:
        return Top1(agreement, None, None)
    return Top1(agreement, float(np.mean(before == labels)), float(np.mean(after == labels)))


@dataclass(frozen=True)
class FloatNode:
    """A node that the quantised model computes in float32, and the reason."""

    name: str
    op: str
    reason: str


@dataclass(frozen=True, eq=False)
class Report:
    """The report of a quantisation. `shifts` maps tensors to their right shifts (only for pow2)."""

    model: str
    output: str
    options: Options
    calibration: str
    evaluation: str
    fidelity: Fidelity
    shifts: dict[str, int]
    left: tuple[FloatNode, ...]
    verification: Verification | None = None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object. An infinite or undefined SNR is null; `exact` is true if the tensors are equal."""
        fidelity = self.fidelity
        options = self.options
        settings = {"method": options.method, "activations": options.activations}
        settings = {"residuals": options.residuals} if options.scheme == "pow2" else settings
        top1 = fidelity.top1
        return {
            "model": self.model,
            "output": self.output,
            "scheme": options.scheme,
            **settings,
            "calibration": self.calibration,
            "evaluation": self.evaluation,
            "samples": fidelity.samples,
            "layers": [self._row(row) for row in fidelity.layers],
            "outputs": [self._row(row) for row in fidelity.outputs],
            "top1": top1 and {"agreement": top1.agreement, "float": top1.float_accuracy, "quantised": top1.accuracy},
            "host": [asdict(node) for node in self.left],
            "verification": self.verification and self.verification.to_json(),
        }

    def _row(self, row: Measurement) -> dict[str, Any]:
        ratio = row.snr_db if isfinite(row.snr_db) else None
        return {**asdict(row), "shift": self.shifts.get(row.tensor), "snr_db": ratio, "exact": row.snr_db == inf}


def shifts_of(result: Pow2Result) -> dict[str, int]:
    """Return {output: right shift from int32 to int8} of all products, sums and averages."""
    return {
        step.outputs[0]: result.scales.shift(step)
        for step in result.plan.steps
        if step.role in ("product", "sum", "average")
    }


def float_nodes(original: ModelProto, quantised: ModelProto, result: Pow2Result | None) -> tuple[FloatNode, ...]:
    """Return the nodes that run in float32: for pow2 by the plan, else all with unquantised results."""
    net = Network(original)
    quantised_tensors = counterparts(quantised)
    # Only pow2 has a plan with reasons.
    reasons = {step.name: step.reason for step in result.plan.steps if step.role == "host"} if result else {}
    # If only the result of a following ReLU is quantised, the node is also computed in codes, together with the ReLU.
    for node in net.nodes if result is None else ():
        reader = net.only_consumer(node.output[0])
        fused = reader is not None and reader.output[0] in quantised_tensors and reader.op_type in ACTIVATIONS
        if node.output[0] not in quantised_tensors and not fused:
            reasons[title(node)] = "its result is not quantised"
    return tuple(
        FloatNode(title(node), node.op_type, reasons[title(node)]) for node in net.nodes if title(node) in reasons
    )


def show(report: Report) -> None:
    from rich.text import Text

    terminal = console()
    columns = [name for name in COLUMNS if name != "shift" or report.shifts]
    grid = Grid(columns, NUMERIC, ("shift", "scale", "op"))
    for row in report.fidelity.layers:
        scale = _scale(row.scale, report.options.scheme)
        shifted = str(report.shifts.get(row.tensor, ""))
        cells = zip(COLUMNS, (row.name, row.op, scale, shifted, _db(row.snr_db)), strict=True)
        grid.add_row(*(cell for name, cell in cells if name in columns))
    terminal.print(grid)
    for topic, statement in _facts(report):
        terminal.print(Text.assemble((f"{topic:<13} ", "bold"), statement), soft_wrap=True)


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    fidelity = report.fidelity
    for row in fidelity.outputs:
        yield "output", f"{row.tensor}: SNR {_db(row.snr_db)} dB"
    if fidelity.top1:
        yield "top-1", f"same class as the float model in {fidelity.top1.agreement:.1%} of {fidelity.samples} samples"
        if fidelity.top1.accuracy is not None:
            yield "accuracy", f"{fidelity.top1.accuracy:.1%}; float model {fidelity.top1.float_accuracy:.1%}"
    for node in report.left:
        yield "in float32", f"{node.name} ({node.op}): {node.reason}"
    yield "calibration", report.calibration
    if report.evaluation != report.calibration:
        yield "measured on", report.evaluation
    yield "written", report.output
    if report.verification:
        yield "import", str(report.verification)


def _scale(scale: float | None, scheme: str) -> str:
    if scale is None:
        return ""
    return f"2^{round(log2(scale))}" if scheme == "pow2" and scale < inf else f"{scale:.4g}"


def _db(value: float) -> str:
    return f"{value:.1f}" if isfinite(value) else {"inf": "exact", "-inf": "-inf"}.get(str(value), "zeros")
