"""Layers on every ALU and both roundings, with signed and unsigned codes, against the integer reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.vta.random_graphs import random_graph, unsigned
from tilewright.graph.ir import Tensor
from tilewright.run import run
from tilewright.targets.vta.compiler.compiler import compile_graph
from tilewright.targets.vta.config import PRESETS
from tilewright.targets.vta.launch.layouts import given_back, held_codes

pytestmark = pytest.mark.usefixtures("brief_search")

MACHINES: tuple[tuple[dict[str, str], str], ...] = (
    ({}, "tflm"),
    ({}, "xnnpack"),
    ({"alu": "rounding"}, "tflm"),
    ({"alu": "fused"}, "tflm"),
    ({"alu": "fused"}, "xnnpack"),  # finished by the host: REQ rounds otherwise
    ({"alu": "float"}, "xnnpack"),
    ({"alu": "float", "stages": "4"}, "xnnpack"),
    ({"alu": "fused", "stages": "4", "acc_banks": "2"}, "tflm"),
)


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.slow] * (seed > 3)) for seed in range(6)])
@pytest.mark.parametrize(("keys", "rounding"), MACHINES, ids=str)
def test_random_layers_of_signed_and_unsigned_codes(keys: dict[str, str], rounding: str, seed: int) -> None:
    config = PRESETS["pynq"].with_overrides(keys)
    for part in range(3):
        rng = np.random.default_rng([seed, part])
        graph = random_graph(rng)
        x = rng.integers(-128, 128, (2, *graph.tensors["x"].shape)).astype(np.int8)
        print(seed, part, [str(node.op) for node in graph.nodes])
        for version, inputs in ((graph, x), (unsigned(graph), x.view(np.uint8) ^ np.uint8(128))):
            result = run(compile_graph(version, config, rounding), inputs)
            assert result.matches_reference
            assert not result.findings


def test_codes_are_held_as_int8() -> None:
    tensor = Tensor("x", (256,), "uint8")
    values = np.arange(256, dtype=np.uint8)
    assert held_codes(values).tolist() == list(range(-128, 128))
    assert np.array_equal(given_back(held_codes(values), tensor), values)
