"""The result of a comparison between an imported network and the framework of its file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.graph.reference import blocks, count_of


@dataclass(frozen=True)
class Difference:
    """A tensor with different values in the import and in the framework.

    The tensor has `size` values, of which `count` are different, by at most `largest` steps. A step is one code in a
    quantised tensor, and the tensor's largest magnitude in a real tensor.
    """

    tensor: str
    count: int
    size: int
    largest: float

    def __str__(self) -> str:
        return f"'{self.tensor}' differs in {self.count:,} of {self.size:,} values, by up to {self.largest:.3g} steps"


@dataclass(frozen=True)
class Verification:
    """The result of a comparison: the numbers of compared samples, tensors and values, and the differences.

    If nothing was compared, `reason` explains this; otherwise it is empty.
    """

    framework: str
    samples: int = 0
    tensors: int = 0
    values: int = 0
    differences: tuple[Difference, ...] = ()
    reason: str = ""

    @property
    def passed(self) -> bool | None:
        """Whether the import agrees with the framework in every value; None if nothing was compared."""
        return None if self.reason else not self.differences

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "passed": self.passed}

    def __str__(self) -> str:
        if self.reason:
            return f"not compared with the file: {self.reason}"
        if not self.differences:
            return f"equals the file under {self.framework}: {self.tensors} tensors, {self.samples} samples"
        more = len(self.differences) - 1
        text = f"MISMATCH: the import differs from the file under {self.framework}: {self.differences[0]}"
        return f"{text}, and so do {more} more tensors" if more else text


class Comparison:
    """Collects the wrong values of all samples, counted for each tensor."""

    def __init__(self) -> None:
        self.rows: dict[str, Difference] = {}

    def add(self, tensor: str, wrong: Array, steps: Array) -> None:
        """Record one sample of a tensor: which values are wrong (bool), and the differences of all values in steps."""
        before = self.rows.get(tensor, Difference(tensor, 0, 0, 0.0))
        largest = max(before.largest, float(np.abs(steps[wrong]).max(initial=0)))
        self.rows[tensor] = Difference(tensor, before.count + int(wrong.sum()), before.size + wrong.size, largest)

    def add_equal(self, tensor: str, ours: Array, theirs: Array) -> None:
        steps = ours.astype(np.float64) - theirs
        self.add(tensor, steps != 0, steps)

    def add_real(self, tensor: str, ours: Array, theirs: Array, accuracy: float) -> None:
        """Record one sample of a real tensor, which may differ by `accuracy` times its largest magnitude."""
        finite = np.isfinite(theirs)
        largest = max(1e-30, float(np.abs(theirs.astype(np.float64)[finite]).max(initial=0)))
        steps = np.where(finite, ours.astype(np.float64) - np.where(finite, theirs, 0), 0) / largest
        self.add(tensor, (np.abs(steps) > accuracy) | (finite != np.isfinite(ours)), steps)


def compared(
    framework: str, samples: Mapping[str, Array], compare: Callable[[Mapping[str, Array], Comparison], None]
) -> Verification:
    """Run `compare` on each sample, and return the result. Tensors are in the order in which `compare` records them."""
    comparison = Comparison()
    for sample in blocks(samples, 1):
        compare(sample, comparison)
    rows = comparison.rows.values()
    differences = tuple(row for row in rows if row.count)
    return Verification(framework, count_of(samples), len(rows), sum(row.size for row in rows), differences)
