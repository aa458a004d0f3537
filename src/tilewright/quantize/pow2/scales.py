"""Chooses the exponents of power-of-two scales.

Each activation first gets the exponent with the least squared error over the samples. Then exponents are changed until
they satisfy every rule of the arithmetic. Weights saturate only if a rule requires it.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, isfinite, log2

import numpy as np

from tilewright.array import Array
from tilewright.errors import UnsupportedError, option
from tilewright.graph.rounding import mean_factor
from tilewright.quantize.model import Tracer, attribute
from tilewright.quantize.pow2.plan import Plan, Step, divisor
from tilewright.quantize.samples import Task, feeds

#: The number of exponents tried for a group: the exponent without saturation, and then finer exponents.
CANDIDATES = 5
#: The exponent of a tensor of zeros, which is arbitrary.
ZEROS = -7
#: Operators that rank or exponentiate their inputs: saturating the largest input would change the winner.
UNSATURATED = ("Softmax", "LogSoftmax", "Sigmoid")
MIN_SHIFT, MAX_SHIFT = 1, 30
#: The largest left shift of a residual; a larger shift would leave few bits of int32 for the sums.
MAX_LIFT = 20
INT32 = (1 << 31) - 1
#: The largest number of rounds of repairs. Repairs only increase exponents of activations; if more rounds are needed,
#: the rules contradict each other.
ROUNDS = 200


def covering(largest: float) -> int:
    """Return the least exponent e with largest <= 127 * 2**e."""
    return ceil(log2(largest / 127)) if largest > 0 else ZEROS


def codes(values: Array, exponent: int) -> Array:
    """Return the int8 codes of real values at the scale 2**exponent, as floats. Ties are rounded up; codes saturate."""
    scaled = np.asarray(np.ldexp(values, -exponent) + np.float32(0.5))  # NumPy returns no array for a scalar
    return np.clip(np.floor(scaled, out=scaled), -128, 127, out=scaled)


def squared_errors(values: Array, exponents: Iterable[int]) -> Array:
    """Return the squared error of quantising `values` with each exponent (float64)."""
    errors = []
    for exponent in exponents:
        difference = np.ldexp(codes(values, exponent), exponent)
        difference -= values
        errors.append(np.einsum("i,i->", difference.ravel(), difference.ravel(), dtype=np.float64))
    return np.array(errors)


def choose(plan: Plan, task: Task) -> dict[str, int]:
    """Return an exponent for each group of tensors that share a scale.

    The first pass over the samples finds the largest magnitudes; the second pass finds the errors of several exponents.
    Raises UnsupportedError if a tensor is not finite for a sample.
    """
    constants = {name: plan.net.constant(name) for name in plan.group if plan.net.is_constant(name)}
    tracer = Tracer(plan.net.model, [name for name in plan.group if name not in constants])
    largest = dict.fromkeys(plan.group.values(), 0.0)
    errors = {root: np.zeros(CANDIDATES) for root in largest}
    for index, feed in enumerate(feeds(task.samples, task.progress, "ranges of tensors", 0, 2)):
        values = tracer.run(feed) | constants
        for name, root in plan.group.items():
            magnitude = float(np.abs(values[name]).max(initial=0))
            if not isfinite(magnitude):
                raise UnsupportedError(f"tensor '{name}'", f"is not finite for sample {index}", "check the samples")
            largest[root] = max(largest[root], magnitude)
    for feed in feeds(task.samples, task.progress, "errors of scales", 1, 2):
        values = tracer.run(feed) | constants
        for name, root in plan.group.items():
            top = covering(largest[root])
            errors[root] += squared_errors(values[name], range(top, top - CANDIDATES, -1))
    # Model outputs and inputs of UNSATURATED keep the exponent without saturation.
    finer = {root: int(squares.argmin()) for root, squares in errors.items()}
    for name, root in plan.group.items():
        readers = {node.op_type for node in plan.net.consumers.get(name, [])}
        if name in plan.net.outputs or not readers.isdisjoint(UNSATURATED):
            finer[root] = 0
    return {root: covering(magnitude) - finer[root] for root, magnitude in largest.items()}


class Scales:
    """The exponents of the scales: `groups` of int8 tensors, at first as `chosen`, and the `weights` of each step."""

    def __init__(self, plan: Plan, chosen: dict[str, int]) -> None:
        self.plan = plan
        self.groups = dict(chosen)
        self.weights: dict[str, int] = {}
        for step in plan.steps:
            if step.weights:
                # Use the finest exponent without a saturated weight and without overflow of the int32 sum. The exponent
                # with the least squared error would saturate a few large weights, with a measured loss of up to 19 dB
                # at the outputs of trained networks (docs/quantize.md).
                exponent = covering(float(np.abs(plan.net.constant(step.weights)).max(initial=0)))
                while self._reach(step, exponent) > INT32:
                    exponent += 1
                self.weights[step.name] = exponent

    def settle(self) -> None:
        """Change exponents until every rule is satisfied. Raises UnsupportedError if a rule stays broken."""
        remedy = f"use {option('--scheme')} affine"
        # A repair of one step may break a rule of another step, for example of a step with the same scale.
        for _ in range(ROUNDS):
            repaired = [self._repair(step) for step in self.plan.steps]
            if not any(repaired):
                break
        else:
            raise UnsupportedError("scheme pow2", "there are no scales that make every shift positive", remedy)
        for step in self.plan.steps:
            # The sum may overflow if a repair has made the weights finer, or if both operands are activations.
            if step.role == "product" and self._reach(step, self.weights.get(step.name, 0)) > INT32:
                raise UnsupportedError(f"node '{step.name}'", "could overflow int32 at every scale", remedy)

    def of(self, name: str) -> int:
        return self.groups[self.plan.group[name]]

    def accumulator(self, step: Step) -> int:
        """Return the exponent of a step's int32 sum: from its products, an addition's finer operand, or its input."""
        inputs = [self.of(name) for name in step.inputs]
        return sum(inputs) + self.weights.get(step.name, 0) if step.role == "product" else min(inputs)

    def shift(self, step: Step) -> int:
        """Return the number of bits by which a step shifts its int32 sum right to get int8 codes."""
        extra = mean_factor(divisor(self.plan.net, step.node))[1] if step.role == "average" else 0
        return self.of(step.outputs[0]) - self.accumulator(step) + extra

    def lift(self, step: Step) -> int:
        """Return the number of bits by which a step shifts its residual left, to the scale of its int32 sum."""
        return self.of(step.residual) - self.accumulator(step)

    def _reach(self, step: Step, exponent: int) -> float:
        """Return the largest possible magnitude of a step's int32 sum, including all added terms.

        These terms are the bias, the residual, and the half for rounding. `exponent` is the exponent of the weights.
        """
        net = self.plan.net
        half = 1 << (MAX_SHIFT - 1)
        if not step.weights:
            return 128.0 * 128.0 * net.shape(step.inputs[0])[-1] + half
        # The worst case of each output channel: all inputs are 128 in magnitude, with the signs of the weights.
        magnitudes = np.abs(codes(net.constant(step.weights), exponent))
        last = step.node.op_type == "MatMul" or (step.node.op_type == "Gemm" and not attribute(step.node, "transB", 0))
        axis = magnitudes.ndim - 2 if last else tuple(range(1, magnitudes.ndim))
        sums = 128.0 * magnitudes.sum(axis, dtype=np.float64)
        unit = exponent + self.of(step.inputs[0])
        with np.errstate(over="ignore"):  # an overflow of float64 exceeds int32, too
            sums = sums + (np.ldexp(np.abs(net.constant(step.bias)).astype(np.float64), -unit) if step.bias else 0)
            sums += np.ldexp(128.0, self.of(step.residual) - unit) if step.residual else 0
        return float(sums.max(initial=0)) + half

    def _repair(self, step: Step) -> bool:
        group = self.plan.group
        if step.role not in ("product", "sum", "average"):
            return False
        # A residual is shifted left to the scale of the sums: its scale must be at least the scale of the sums.
        if step.residual and not 0 <= (up := self.lift(step)) <= MAX_LIFT:
            if up < 0:
                self.groups[group[step.residual]] -= up
            else:
                self.weights[step.name] += up - MAX_LIFT
            return True
        # The shift to codes must round at least one bit, except for sums of codes. A coarser result makes the shift
        # larger.
        amount = self.shift(step)
        less = (0 if step.role == "sum" else MIN_SHIFT) - amount
        if less > 0:
            out = group[step.outputs[0]]
            if out in {group[name] for name in step.reads} and step.name in self.weights:
                self.weights[step.name] -= less  # the output's scale is bound: use finer weights, which may saturate
            else:
                self.groups[out] += less
            return True
        if amount > MAX_SHIFT and step.name in self.weights:
            self.weights[step.name] += amount - MAX_SHIFT
            return True
        return False
