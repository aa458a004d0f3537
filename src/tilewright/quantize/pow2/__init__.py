"""Scheme `pow2`: int8 with power-of-two scales, so that requantisation is a rounding shift. See docs/quantize.md."""

from __future__ import annotations

from dataclasses import dataclass

from onnx import ModelProto

from tilewright.errors import UnsupportedError
from tilewright.quantize.model import Network
from tilewright.quantize.pow2.emit import Writer
from tilewright.quantize.pow2.plan import Plan, plan
from tilewright.quantize.pow2.scales import Scales, choose
from tilewright.quantize.samples import Task


@dataclass(frozen=True, eq=False)
class Pow2Result:
    """The quantised model (QDQ), its plan and its scales."""

    model: ModelProto
    plan: Plan
    scales: Scales


def quantize(task: Task) -> Pow2Result:
    """Quantise a task to QDQ. Raises UnsupportedError if no scales satisfy the rules of the scheme.

    If the option `residuals` is "rounded", each addition is a separate step, and its operands are rounded to int8.
    """
    net = Network(task.model, task.unbounded)
    joins = (False,) if task.options.residuals == "rounded" else (True, False)
    # A plan may have no scales that satisfy the rules of the scheme. Each further try gives up one property of the
    # plan: first equal scales for both operands of an addition, then residuals inside of sums.
    tries = [(residuals, equal) for residuals in joins for equal in (True, False)]
    while True:
        decided = plan(net, *tries.pop(0))
        try:
            scales = Scales(decided, choose(decided, task))
            scales.settle()
            return Pow2Result(Writer(scales).model(), decided, scales)
        except UnsupportedError:  # for example, one scale cannot cover a residual path with a large gain
            if not tries:
                raise
