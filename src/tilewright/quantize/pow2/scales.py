"""Chooses the exponents of power-of-two scales.

At first, each activation has the exponent with the smallest squared error over the samples. Then exponents are changed
until all rules of the arithmetic are satisfied. Weights saturate only if a rule requires this.
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

#: The number of exponents to try for a group: the exponent without saturation, and the next smaller ones.
CANDIDATES = 5
#: The exponent of tensors that only contain zeros (arbitrary).
ZEROS = -7
#: Inputs of these operators do not saturate, because saturating the largest scores could change the best class.
UNSATURATED = ("Softmax", "LogSoftmax", "Sigmoid")
MIN_SHIFT, MAX_SHIFT = 1, 30
#: The largest left shift of a residual. A larger shift would leave too few bits of int32 for the sums.
MAX_LIFT = 20
INT32 = (1 << 31) - 1
#: The largest number of rounds of repairs. Repairs only increase the exponents of activations. If repairs are still
#: needed after this number, the rules contradict each other.
ROUNDS = 200


def covering(largest: float) -> int:
    """Return the smallest exponent e with largest <= 127 * 2**e."""
    return ceil(log2(largest / 127)) if largest > 0 else ZEROS


def codes(values: Array, exponent: int) -> Array:
    """Quantise real values at the scale 2**exponent to int8 codes, as floats. Ties go upwards, and codes saturate."""
    scaled = np.asarray(np.ldexp(values, -exponent) + np.float32(0.5))  # for a scalar, NumPy returns no array
    return np.clip(np.floor(scaled, out=scaled), -128, 127, out=scaled)


def squared_errors(values: Array, exponents: Iterable[int]) -> Array:
    """Return the squared error of the quantised `values` for each exponent, float64."""
    errors = []
    for exponent in exponents:
        difference = np.ldexp(codes(values, exponent), exponent)
        difference -= values
        errors.append(np.einsum("i,i->", difference.ravel(), difference.ravel(), dtype=np.float64))
    return np.array(errors)


def choose(plan: Plan, task: Task) -> dict[str, int]:
    """Return an exponent for each group of tensors that share a scale.

    The first pass over the samples finds the largest magnitudes. The second pass computes the total error for each of
    several exponents. Raises UnsupportedError if a tensor is not finite for some sample.
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
    # Outputs of the model, and inputs of UNSATURATED, keep the exponent without saturation.
    finer = {root: int(squares.argmin()) for root, squares in errors.items()}
    for name, root in plan.group.items():
        readers = {node.op_type for node in plan.net.consumers.get(name, [])}
        if name in plan.net.outputs or not readers.isdisjoint(UNSATURATED):
            finer[root] = 0
    return {root: covering(magnitude) - finer[root] for root, magnitude in largest.items()}


class Scales:
    """The exponents of all scales: of groups of int8 tensors (`groups`), and of the weights of steps (`weights`)."""

    def __init__(self, plan: Plan, chosen: dict[str, int]) -> None:
        self.plan = plan
        self.groups = dict(chosen)
        self.weights: dict[str, int] = {}
        for step in plan.steps:
            if step.weights:
                # Use the smallest exponent at which no weight saturates and the int32 sum cannot overflow. The exponent
                # with the smallest squared error would saturate a few large weights. At the outputs of trained
                # networks, this costs up to 19 dB (docs/quantize.md).
                exponent = covering(float(np.abs(plan.net.constant(step.weights)).max(initial=0)))
                while self._reach(step, exponent) > INT32:
                    exponent += 1
                self.weights[step.name] = exponent

    def settle(self) -> None:
        """Change exponents until all rules are satisfied. Raises UnsupportedError if this does not succeed."""
        remedy = f"use {option('--scheme')} affine"
        # Repairing one step may break a rule of another step that shares a scale, so repeat until nothing changes.
        for _ in range(ROUNDS):
            repaired = [self._repair(step) for step in self.plan.steps]
            if not any(repaired):
                break
        else:
            raise UnsupportedError("scheme pow2", "there are no scales that make every shift positive", remedy)
        for step in self.plan.steps:
            # A repair may have made the weights finer, so that the sum may overflow. Products of two activations may
            # overflow in any case.
            if step.role == "product" and self._reach(step, self.weights.get(step.name, 0)) > INT32:
                raise UnsupportedError(f"node '{step.name}'", "could overflow int32 at every scale", remedy)

    def of(self, name: str) -> int:
        return self.groups[self.plan.group[name]]

    def accumulator(self, step: Step) -> int:
        """Return the exponent of the int32 sum of a step (of a product, or of the operand with the finer scale)."""
        inputs = [self.of(name) for name in step.inputs]
        return sum(inputs) + self.weights.get(step.name, 0) if step.role == "product" else min(inputs)

    def shift(self, step: Step) -> int:
        """Return the right shift from the int32 sum of a step to int8 codes."""
        extra = mean_factor(divisor(self.plan.net, step.node))[1] if step.role == "average" else 0
        return self.of(step.outputs[0]) - self.accumulator(step) + extra

    def lift(self, step: Step) -> int:
        """Return by how many bits a residual is shifted left, to get the scale of the int32 sum."""
        return self.of(step.residual) - self.accumulator(step)

    def _reach(self, step: Step, exponent: int) -> float:
        """Return the largest possible magnitude of a step's int32 sum, if its weights have the exponent `exponent`."""
        net = self.plan.net
        half = 1 << (MAX_SHIFT - 1)  # at most this is added for rounding
        if not step.weights:
            return 128.0 * 128.0 * net.shape(step.inputs[0])[-1] + half
        # The worst case for an output channel: all inputs have the magnitude 128 and the signs of their weights.
        magnitudes = np.abs(codes(net.constant(step.weights), exponent))
        last = step.node.op_type == "MatMul" or (step.node.op_type == "Gemm" and not attribute(step.node, "transB", 0))
        axis = magnitudes.ndim - 2 if last else tuple(range(1, magnitudes.ndim))
        sums = 128.0 * magnitudes.sum(axis, dtype=np.float64)
        unit = exponent + self.of(step.inputs[0])
        with np.errstate(over="ignore"):  # infinity also exceeds int32
            sums = sums + (np.ldexp(np.abs(net.constant(step.bias)).astype(np.float64), -unit) if step.bias else 0)
            sums += np.ldexp(128.0, self.of(step.residual) - unit) if step.residual else 0
        return float(sums.max(initial=0)) + half

    def _repair(self, step: Step) -> bool:
        group = self.plan.group
        if step.role not in ("product", "sum", "average"):
            return False
        # A residual can only be shifted left, so its scale must not be finer than the scale of the sums.
        if step.residual and not 0 <= (up := self.lift(step)) <= MAX_LIFT:
            if up < 0:
                self.groups[group[step.residual]] -= up
            else:
                self.weights[step.name] += up - MAX_LIFT
            return True
        # The right shift to codes must be at least 1, except for sums of codes. A coarser scale of the result increases
        # the shift.
        amount = self.shift(step)
        less = (0 if step.role == "sum" else MIN_SHIFT) - amount
        if less > 0:
            out = group[step.outputs[0]]
            if out in {group[name] for name in step.reads} and step.name in self.weights:
                self.weights[step.name] -= less  # the output shares its scale with an input: use finer weights
            else:
                self.groups[out] += less
            return True
        if amount > MAX_SHIFT and step.name in self.weights:
            self.weights[step.name] += amount - MAX_SHIFT
            return True
        return False
