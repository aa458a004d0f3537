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
    """The result of the scheme: the QDQ model, with its plan and scales."""

    model: ModelProto
    plan: Plan
    scales: Scales


def quantize(task: Task) -> Pow2Result:
    """Quantise a task to QDQ. Raises UnsupportedError if no scales obey the rules of the scheme.

    If the option `residuals` is "rounded", each addition is a separate step, with both operands rounded to int8.
    """
    net = Network(task.model, task.unbounded)
    joins = (False,) if task.options.residuals == "rounded" else (True, False)
    # The rules of the scheme may have no solution for a plan. So later tries drop preferences: first equal scales of
    # the operands of an addition, then residuals inside the sums.
    tries = [(residuals, equal) for residuals in joins for equal in (True, False)]
    while True:
        decided = plan(net, *tries.pop(0))
        try:
            scales = Scales(decided, choose(decided, task))
            scales.settle()
            return Pow2Result(Writer(scales).model(), decided, scales)
        except UnsupportedError:  # such as a residual path whose gain is too large for one scale
            if not tries:
                raise
