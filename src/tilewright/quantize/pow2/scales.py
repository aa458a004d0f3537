"""Chooses the exponents of power-of-two scales.

Each activation first gets the exponent with the least squared error over the samples. Then exponents are changed until
every rule of the arithmetic holds. Weights are not saturated, except to keep a rule. The exponent with the least
squared error of the weights, or of the results, would saturate a few large weights; this was measured to cost trained
networks up to 19 dB at the outputs (docs/quantize.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, isfinite, log2

import numpy as np

from tilewright.array import Array
from tilewright.errors import UnsupportedError, option
from tilewright.graph.rounding import mean_factor
from tilewright.quantize.model import Tracer, attribute, operand
from tilewright.quantize.pow2.plan import Plan, Step, divisor
from tilewright.quantize.samples import Task, feeds

#: Number of exponents tried for a group, from the one that saturates nothing to finer ones.
CANDIDATES = 5
#: Exponent of a tensor of zeros, for which any would do.
ZEROS = -7
#: Operators that rank or exponentiate their inputs: saturating the largest input would change the winner.
UNSATURATED = ("Softmax", "LogSoftmax", "Sigmoid")
MIN_SHIFT, MAX_SHIFT = 1, 30
#: Largest left shift of a residual: more would leave few bits of int32 for the sums.
MAX_LIFT = 20
INT32 = (1 << 31) - 1
#: Most rounds of repairs. Repairs only increase exponents of activations; more rounds mean rules that cannot all hold.
ROUNDS = 200


def covering(largest: float) -> int:
    """Return the least exponent e with largest <= 127 * 2**e."""
    return ceil(log2(largest / 127)) if largest > 0 else ZEROS


def codes(values: Array, exponent: int) -> Array:
    """Return the int8 codes of real values at the scale 2**exponent, as floats. Ties are rounded up; codes saturate."""
    scaled = np.asarray(np.ldexp(values, -exponent) + np.float32(0.5))  # of a scalar, NumPy returns no array
    return np.clip(np.floor(scaled, out=scaled), -128, 127, out=scaled)


def squared_errors(values: Array, exponents: Iterable[int]) -> Array:
    """Return the squared error of quantising `values` with each exponent (float64)."""
    found = []
    for exponent in exponents:
        difference = np.ldexp(codes(values, exponent), exponent)
        difference -= values
        found.append(np.einsum("i,i->", difference.ravel(), difference.ravel(), dtype=np.float64))
    return np.array(found)


def choose(plan: Plan, task: Task) -> dict[str, int]:
    """Return an exponent for each group of tensors that share a scale.

    One pass over the samples finds the largest magnitudes, another the errors of several exponents. Raises
    UnsupportedError if a tensor is not finite for a sample.
    """
    groups = dict.fromkeys(plan.group.values())
    computed = [name for name in plan.group if not plan.net.is_constant(name)]
    tracer = Tracer(plan.net.model, computed)
    largest = dict.fromkeys(groups, 0.0)
    errors = {root: np.zeros(CANDIDATES) for root in groups}

    def values_of(values: dict[str, Array], name: str) -> Array:
        return plan.net.constant(name) if plan.net.is_constant(name) else values[name]

    for index, feed in enumerate(feeds(task.samples, task.progress, "ranges of tensors", 0, 2)):
        values = tracer.run(feed)
        for name, root in plan.group.items():
            magnitude = float(np.abs(values_of(values, name)).max(initial=0))
            if not isfinite(magnitude):
                raise UnsupportedError(f"tensor '{name}'", f"is not finite for sample {index}", "check the samples")
            largest[root] = max(largest[root], magnitude)
    for feed in feeds(task.samples, task.progress, "errors of scales", 1, 2):
        values = tracer.run(feed)
        for name, root in plan.group.items():
            top = covering(largest[root])
            errors[root] += squared_errors(values_of(values, name), range(top, top - CANDIDATES, -1))
    fixed = {plan.group[name] for name in plan.group if _ranked(plan, name)}
    return {root: covering(largest[root]) - (0 if root in fixed else int(errors[root].argmin())) for root in groups}


def _ranked(plan: Plan, name: str) -> bool:
    readers = plan.net.consumers.get(name, [])
    return name in plan.net.outputs or any(node.op_type in UNSATURATED for node in readers)


@dataclass(frozen=True, eq=False)
class Scales:
    """The exponents of the scales: of int8 tensors (by name) and of weights (by step name)."""

    tensors: dict[str, int]
    weights: dict[str, int]


def settle(plan: Plan, chosen: dict[str, int]) -> Scales:
    """Return scales: the chosen exponents, changed until every rule holds. Raises UnsupportedError if that fails."""
    groups = dict(chosen)
    products = [step for step in plan.steps if step.role == "product"]
    weights = {step.name: _weight_exponent(plan, step, groups) for step in products if weight_of(plan, step)}
    for _ in range(ROUNDS):
        repaired = [_repair(plan, step, groups, weights) for step in plan.steps]
        if not any(repaired):
            for step in products:
                _check_range(plan, step, groups, weights)
            return Scales({name: groups[root] for name, root in plan.group.items()}, weights)
    raise UnsupportedError(
        "scheme pow2",
        "there are no scales that make every shift positive",
        f"use {option('--scheme')} affine",
    )


def weight_of(plan: Plan, step: Step) -> str:
    """Return the name of the constant weights of a Conv, Gemm or MatMul; empty if both operands are activations."""
    name = step.node.input[1]
    return name if plan.net.is_constant(name) else ""


def bias_of(plan: Plan, step: Step) -> str:
    """Return the name of the constant bias of a Conv, Gemm or MatMul; empty if it has no bias."""
    return operand(step.node, 2) if step.node.op_type != "MatMul" else ""


def accumulator(step: Step, exponents: dict[str, int], weights: dict[str, int]) -> int:
    """Return the exponent of a step's int32 sum: of its products, of an addition's finer operand, or of its input."""
    inputs = [exponents[name] for name in step.inputs]
    if step.role == "product":
        return sum(inputs) + weights.get(step.name, 0)
    return min(inputs)


def shift(plan: Plan, step: Step, exponents: dict[str, int], weights: dict[str, int]) -> int:
    """Return the number of bits by which a step shifts its int32 sum right to get int8 codes."""
    extra = mean_factor(divisor(plan.net, step.node))[1] if step.role == "average" else 0
    return exponents[step.outputs[0]] - accumulator(step, exponents, weights) + extra


def lift(step: Step, exponents: dict[str, int], weights: dict[str, int]) -> int:
    """Return the number of bits by which a step shifts its residual left, to the scale of its int32 sum."""
    return exponents[step.residual] - accumulator(step, exponents, weights)


def _weight_exponent(plan: Plan, step: Step, groups: dict[str, int]) -> int:
    """Return a step's finest weight exponent that saturates no weight and with which its int32 sum cannot overflow."""
    values = plan.net.constant(weight_of(plan, step))
    exponent = covering(float(np.abs(values).max(initial=0)))
    while _worst(plan, step, values, exponent, groups) > INT32:
        exponent += 1
    return exponent


def _worst(plan: Plan, step: Step, values: Array, exponent: int, groups: dict[str, int]) -> float:
    """Return the largest magnitude that a step's int32 sum can reach with all that is added to it.

    That is its bias, its residual, and the half that rounds it.
    """
    x = groups[plan.group[step.inputs[0]]]
    magnitudes = np.abs(codes(values, exponent))
    last = step.node.op_type == "MatMul" or (step.node.op_type == "Gemm" and not attribute(step.node, "transB", 0))
    axis = values.ndim - 2 if last else tuple(range(1, values.ndim))
    sums = 128.0 * magnitudes.sum(axis, dtype=np.float64)
    bias = bias_of(plan, step)
    with np.errstate(over="ignore"):  # an overflow of float64 is also one of int32
        reach = sums + (np.ldexp(np.abs(plan.net.constant(bias)).astype(np.float64), -exponent - x) if bias else 0)
        reach += np.ldexp(128.0, groups[plan.group[step.residual]] - exponent - x) if step.residual else 0
    return float(reach.max(initial=0)) + (1 << (MAX_SHIFT - 1))


def _check_range(plan: Plan, step: Step, groups: dict[str, int], weights: dict[str, int]) -> None:
    """Check that a step's int32 sum cannot overflow, as it may if weights were made finer or are activations.

    Raises UnsupportedError if it can.
    """
    if step.name in weights:
        values = plan.net.constant(weight_of(plan, step))
        reach = _worst(plan, step, values, weights[step.name], groups)
    else:
        reach = 128.0 * 128.0 * plan.net.shape(step.inputs[0])[-1] + (1 << (MAX_SHIFT - 1))
    if reach > INT32:
        raise UnsupportedError(
            f"node '{step.name}'",
            "could overflow int32 at every scale",
            f"use {option('--scheme')} affine",
        )


def _repair(plan: Plan, step: Step, groups: dict[str, int], weights: dict[str, int]) -> bool:
    """Change an exponent if this step's right shift is too small or too large. Return whether one was changed."""
    if step.role not in ("product", "sum", "average"):
        return False
    exponents = {name: groups[plan.group[name]] for name in (*step.reads, *step.outputs)}
    if step.residual and not 0 <= (up := lift(step, exponents, weights)) <= MAX_LIFT:
        if up < 0:
            groups[plan.group[step.residual]] -= up
        else:
            weights[step.name] += up - MAX_LIFT
        return True
    amount = shift(plan, step, exponents, weights)
    low = 0 if step.role == "sum" else MIN_SHIFT
    if amount < low:
        out = plan.group[step.outputs[0]]
        if out in {plan.group[name] for name in step.reads} and step.name in weights:
            weights[step.name] -= low - amount  # the output cannot move alone: finer weights, which may saturate
        else:
            groups[out] += low - amount
        return True
    if amount > MAX_SHIFT and step.name in weights:
        weights[step.name] += amount - MAX_SHIFT
        return True
    return False
