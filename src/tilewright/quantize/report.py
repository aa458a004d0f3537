"""The report of a quantisation: one line a tensor, what stays on the host, and the whole; as a table or as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, log2
from typing import TYPE_CHECKING, Any

from onnx import ModelProto

from tilewright.model.verification import Verification
from tilewright.quantize.measure import Fidelity, Measured, counterparts
from tilewright.quantize.model import title
from tilewright.quantize.network import Network
from tilewright.quantize.options import Options
from tilewright.quantize.pow2 import Made
from tilewright.quantize.pow2.scales import shift
from tilewright.report import text

if TYPE_CHECKING:
    from rich.console import Console

COLUMNS = ("layer", "op", "scale", "shift", "SNR dB")
NUMERIC = {"scale", "shift", "SNR dB"}


@dataclass(frozen=True)
class Left:
    """A node that is computed in float32, and why."""

    name: str
    op: str
    reason: str


@dataclass(frozen=True, eq=False)
class Report:
    """Everything that a quantisation found; `shifts` by tensor (pow2 only)."""

    model: str
    output: str
    options: Options
    calibration: str
    evaluation: str
    fidelity: Fidelity
    shifts: dict[str, int]
    left: tuple[Left, ...]
    verification: Verification | None = None

    def to_json(self) -> dict[str, Any]:
        """One JSON object; an SNR that is not finite is null, and `exact` says whether the tensors are equal."""
        found, options = self.fidelity, self.options
        settings = {"method": options.method, "activations": options.activations} if options.scheme == "affine" else {}
        top1 = found.top1
        return {
            "model": self.model,
            "output": self.output,
            "scheme": options.scheme,
            **settings,
            "calibration": self.calibration,
            "evaluation": self.evaluation,
            "samples": found.samples,
            "layers": [self._row(row) for row in found.layers],
            "outputs": [self._row(row) for row in found.outputs],
            "top1": top1 and {"agreement": top1.agreement, "float": top1.float_accuracy, "quantised": top1.accuracy},
            "host": [{"name": node.name, "op": node.op, "reason": node.reason} for node in self.left],
            "verification": self.verification and self.verification.to_json(),
        }

    def _row(self, row: Measured) -> dict[str, Any]:
        return {
            "name": row.name,
            "op": row.op,
            "tensor": row.tensor,
            "scale": row.scale,
            "shift": self.shifts.get(row.tensor),
            "snr_db": row.snr_db if isfinite(row.snr_db) else None,
            "exact": row.snr_db == float("inf"),
        }


def shifts_of(made: Made) -> dict[str, int]:
    """The right shift behind each tensor that a product, sum or average stores."""
    return {
        step.outputs[0]: shift(made.plan, step, made.scales.tensors, made.scales.weights)
        for step in made.plan.steps
        if step.role in ("product", "sum", "average")
    }


def left(original: ModelProto, quantised: ModelProto, reasons: dict[str, str] | None) -> tuple[Left, ...]:
    """The nodes in float32: those with a reason, by name; None: those whose results are not quantised."""
    net, found = Network(original), counterparts(quantised)
    if reasons is not None:
        return tuple(
            Left(title(node), node.op_type, reasons[title(node)]) for node in net.nodes if title(node) in reasons
        )
    nodes = []
    for node in net.nodes:
        reader = net.only_consumer(node.output[0])
        fused = reader is not None and reader.output[0] in found and reader.op_type in ("Relu", "Clip")
        if node.output[0] not in found and not fused:
            nodes.append(Left(title(node), node.op_type, "its result is not quantised"))
    return tuple(nodes)


def show(report: Report, to: Console | None = None) -> None:
    """Print the report."""
    from rich.text import Text

    to = to or text.console()
    columns = [name for name in COLUMNS if name != "shift" or report.shifts]
    made = text.table(to, columns, NUMERIC)
    for row in report.fidelity.layers:
        shift_ = report.shifts.get(row.tensor)
        cells = {
            "layer": row.name,
            "op": row.op,
            "scale": _scale(row.scale, report.options.scheme),
            "shift": "" if shift_ is None else str(shift_),
            "SNR dB": _db(row.snr_db),
        }
        made.add_row(*(Text(cells[name]) for name in columns))
    to.print(made)
    for topic, statement in _facts(report):
        to.print(Text.assemble((f"{topic:<13} ", "bold"), statement), soft_wrap=True)


def _facts(report: Report) -> list[tuple[str, str]]:
    found = report.fidelity
    facts = [("output", f"{row.tensor}: SNR {_db(row.snr_db)} dB") for row in found.outputs]
    if found.top1:
        facts.append(
            ("top-1", f"same class as the float model in {found.top1.agreement:.1%} of {found.samples} samples")
        )
        if found.top1.accuracy is not None:
            facts.append(("accuracy", f"{found.top1.accuracy:.1%}; float model {found.top1.float_accuracy:.1%}"))
    facts += [("in float32", f"{node.name} ({node.op}): {node.reason}") for node in report.left]
    facts.append(("calibration", report.calibration))
    if report.evaluation != report.calibration:
        facts.append(("measured on", report.evaluation))
    facts.append(("written", report.output))
    if report.verification:
        facts.append(("import", str(report.verification)))
    return facts


def _scale(scale: float | None, scheme: str) -> str:
    if scale is None:
        return ""
    return f"2^{round(log2(scale))}" if scheme == "pow2" else f"{scale:.4g}"


def _db(value: float) -> str:
    return f"{value:.1f}" if isfinite(value) else {"inf": "exact", "-inf": "-inf"}.get(str(value), "zeros")
