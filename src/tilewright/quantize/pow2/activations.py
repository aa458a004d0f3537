"""Exponents of activations: for each group, the power of two with the least squared error over the samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import ceil, isfinite, log2

import numpy as np

from tilewright.array import Array
from tilewright.errors import UnsupportedError
from tilewright.model.inputs import Samples
from tilewright.quantize.pow2.plan import Plan
from tilewright.quantize.samples import count_of, feeds
from tilewright.quantize.session import Tracer

#: From the exponent that saturates nothing down to this many steps finer.
CANDIDATES = 5
#: A tensor of zeros has any scale.
ZEROS = -7
#: Their inputs are ranked or exponentiated: saturating the largest would change the winner.
UNSATURATED = ("Softmax", "LogSoftmax", "Sigmoid")
Progress = Callable[[int, int, str], None]


def covering(largest: float) -> int:
    """The least exponent e with largest <= 127 * 2**e."""
    return ceil(log2(largest / 127)) if largest > 0 else ZEROS


def codes(values: Array, exponent: int) -> Array:
    """Real values as int8 codes of scale 2**exponent, still float: ties up, saturated."""
    scaled = np.ldexp(values, -exponent) + np.float32(0.5)
    return np.clip(np.floor(scaled, out=scaled), -128, 127, out=scaled)


def squared_errors(values: Array, exponents: Iterable[int]) -> Array:
    """The squared error of quantising `values` with each exponent (float64)."""
    found = []
    for exponent in exponents:
        difference = np.ldexp(codes(values, exponent), exponent)
        difference -= values
        found.append(np.einsum("i,i->", difference.ravel(), difference.ravel(), dtype=np.float64))
    return np.array(found)


def choose(plan: Plan, samples: Samples, progress: Progress | None = None) -> dict[str, int]:
    """The exponent of each group, by two passes over the samples: the largest magnitude, then the errors."""
    groups = plan.members()
    computed = [name for name in plan.group if not plan.net.is_constant(name)]
    tracer = Tracer(plan.net.model, computed)
    largest = dict.fromkeys(groups, 0.0)
    errors = {root: np.zeros(CANDIDATES) for root in groups}
    total = 2 * count_of(samples)

    def values_of(values: dict[str, Array], name: str) -> Array:
        return plan.net.constant(name) if plan.net.is_constant(name) else values[name]

    for index, feed in enumerate(feeds(samples)):
        values = tracer.run(feed)
        for name, root in plan.group.items():
            magnitude = float(np.abs(values_of(values, name)).max(initial=0))
            if not isfinite(magnitude):
                raise UnsupportedError(f"tensor '{name}'", f"is not finite for sample {index}", "check the samples")
            largest[root] = max(largest[root], magnitude)
        if progress:
            progress(index + 1, total, "ranges of tensors")
    for index, feed in enumerate(feeds(samples)):
        values = tracer.run(feed)
        for name, root in plan.group.items():
            top = covering(largest[root])
            errors[root] += squared_errors(values_of(values, name), range(top, top - CANDIDATES, -1))
        if progress:
            progress(total // 2 + index + 1, total, "errors of scales")
    fixed = {plan.group[name] for name in plan.group if _ranked(plan, name)}
    return {root: covering(largest[root]) - (0 if root in fixed else int(errors[root].argmin())) for root in groups}


def _ranked(plan: Plan, name: str) -> bool:
    readers = plan.net.consumers.get(name, [])
    return name in plan.net.outputs or any(node.op_type in UNSATURATED for node in readers)
