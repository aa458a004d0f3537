"""The codes of every operator in every rounding mode, as check sums in a golden file.

tests/model compares the same operators with the frameworks, on more cases and for longer. Here, a changed bit shows in
seconds, also in modes that no framework computes for a file.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert")  # its schema writes the files

from tests.model.tflite_cases import EACH, codes, written
from tilewright.array import Array
from tilewright.errors import TilewrightError
from tilewright.graph import reference
from tilewright.graph.ir import Graph, Quant
from tilewright.graph.rounding import MODES
from tilewright.model import load

SEEDS = range(3)
#: Seeds of the samples, three each.
MORE = range(6)
#: Operators that take exponentials in float64: their last bit may depend on the computer's mathematical library.
TRANSCENDENTAL = ("logistic", "tanh", "softmax", "lstm")
IN_INTEGERS = ("tflm",)


def power_of_two_scales(graph: Graph) -> Graph:
    """The graph with each scale replaced by a power of two near it, as the mode pow2 requires."""

    def rounded(quant: Quant | None) -> Quant | None:
        return quant and replace(quant, scale=tuple(2.0 ** round(np.log2(scale)) for scale in quant.scale))

    return replace(graph, tensors={name: replace(t, quant=rounded(t.quant)) for name, t in graph.tensors.items()})


def check_sum(graph: Graph, samples: Mapping[str, Array], mode: str) -> str:
    """The check sum of the outputs, or why there are none."""
    try:
        outputs = reference.run(graph, samples, mode)
    except TilewrightError as error:
        return error.reason
    content = b"".join(np.ascontiguousarray(values).tobytes() for values in outputs.values())
    return f"{zlib.crc32(content):08x}"


def test_codes_of_every_operator(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    """With the scales of a file, and with powers of two: then many results are ties, which the modes round apart."""
    lines = []
    for name, dtype in EACH:
        for seed in SEEDS:
            graph = load(written(name, dtype, 80 + seed, tmp_path / "one.tflite"))
            tied = power_of_two_scales(graph)
            samples = {key: np.concatenate([codes(graph, more)[key] for more in MORE]) for key in graph.inputs}
            for mode in IN_INTEGERS if name in TRANSCENDENTAL else MODES:
                sums = [check_sum(tied, samples, mode)]
                if mode != "pow2":
                    sums.append(check_sum(graph, samples, mode))
                lines.append(f"{name} {dtype} {seed} {mode}: {' '.join(sums)}")
    golden("operator_codes.txt", "\n".join(lines) + "\n")
