"""Networks with codes of 4 bits on machines with inputs or weights of 4 bits, and on the usual machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import tilewright as tw
from tests.model.onnx_int4 import Network, by_onnxruntime, network
from tilewright.array import in_nibbles, nibbles
from tilewright.model import load
from tilewright.model.inputs import random
from tilewright.program.placement import Placement
from tilewright.report.metrics import Result
from tilewright.targets.vta import TARGET
from tilewright.targets.vta.isa.fields import Opcode
from tilewright.targets.vta.isa.stream import decode

WEIGHTS = {"LOG_WGT_WIDTH": "2", "LOG_WGT_BUFF_SIZE": "17"}
BOTH = {**WEIGHTS, "LOG_INP_WIDTH": "2", "LOG_INP_BUFF_SIZE": "14"}
MACHINES: dict[str, dict[str, str]] = {
    "usual": {},
    "weights": WEIGHTS,
    "both": BOTH,
    "acc16": {**BOTH, "LOG_ACC_WIDTH": "4", "LOG_ACC_BUFF_SIZE": "16"},
    "batch": {**BOTH, "LOG_BATCH": "1", "LOG_BLOCK": "3", "LOG_WGT_BUFF_SIZE": "14"},
    "rounding": {**BOTH, "alu": "rounding"},
    "fused": {**BOTH, "alu": "fused", "stages": "4"},
    "float": {**BOTH, "alu": "float"},
}


def ran(path: Path, **overrides: str) -> tuple[Any, Result]:
    program = tw.compile(path, "vta", overrides=overrides)
    result = program.run(random(load(path), 1, 3).values)
    assert result.matches_reference is True
    assert not result.findings
    return program, result


def hosted(result: Result) -> dict[str, str]:
    return {layer.name: layer.reason for layer in result.layers if layer.where == "host"}


@pytest.mark.parametrize(
    ("name", "seed"),
    [("weights", 0), ("both", 1), ("acc16", 2), ("float", 3)]
    + [pytest.param(name, seed, marks=pytest.mark.slow) for name in MACHINES for seed in range(4, 12)],
)
def test_a_network_of_int4_equals_the_reference(name: str, seed: int, tmp_path: Path) -> None:
    path = network(tmp_path / "n.onnx", seed, channels=5 + 7 * (seed + 2), side=8 + 4 * (seed % 2))
    _, result = ran(path, **MACHINES[name])
    assert not {"Conv_4", "Conv_10", "MaxPool_13", "Gemm_21"} & hosted(result).keys()


@pytest.mark.parametrize("alu", ["upstream", "float"])
def test_the_outputs_are_those_of_onnxruntime(alu: str, tmp_path: Path) -> None:
    path = network(tmp_path / "n.onnx", 3)
    samples = np.random.default_rng(3).normal(size=(8, 1, 3, 8, 8)).astype(np.float32)
    outputs = tw.compile(path, "vta", overrides={**BOTH, "alu": alu}).run(samples).outputs
    assert np.array_equal(next(iter(outputs.values())).reshape(8, 1, 10), by_onnxruntime(path, samples))


def test_wider_codes_are_finished_by_the_host(tmp_path: Path) -> None:
    """The host requantises the last sums to int8; layers that read int8 run on the host."""
    _, result = ran(network(tmp_path / "n.onnx", 1, last=TensorProto.INT8), **BOTH)
    assert "Gemm_21" not in hosted(result)
    _, result = ran(network(tmp_path / "m.onnx", 1, activations=TensorProto.INT8), **BOTH)
    assert hosted(result)["Conv_10"] == "'d:codes:nhwc' has int8 codes, but the machine has 4-bit inputs"


def test_shifts_of_pow2_and_residuals_are_requantised_on_the_chip(tmp_path: Path) -> None:
    """In the mode pow2, upstream's ALU requantises, clamps to 4 bits and adds a residual: one plane for each result."""
    made = Network(2)
    made.notes = {"tilewright.rounding": "pow2"}
    x, scale = made.quantised("x", "a", -3)
    first, scale = made.quantised(made.node("Relu", [made.conv(x, scale, "c", (16, 3, 1, 1))], "r"), "d", -1)
    sums = made.conv(first, scale, "e", (16, 16, 3, 3), pads=[1, 1, 1, 1])
    y, scale = made.quantised(made.node("Relu", [made.node("Add", [sums, first], "s")], "t"), "f", 0)
    y, _ = made.quantised(made.conv(y, scale, "g", (16, 16, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2]), "h", 1)
    program, result = ran(made.save(tmp_path / "n.onnx", y, (1, 16, 4, 4), (1, 3, 8, 8)), **BOTH)
    assert not [name for name in hosted(result) if name.startswith(("Conv", "Add"))]
    (launch,) = program.launches
    assert all(form.get("planes", 1) == 1 and form["bits"] == 4 for form in launch.meta["layers"])
    config = TARGET.config_of(program)
    stores = decode(launch.arrays["insns"], config)
    assert (stores.opcode == Opcode.STORE).any()


def test_tiles_take_half_of_the_bytes(tmp_path: Path) -> None:
    path = network(tmp_path / "n.onnx", 1, channels=16)
    sizes = []
    for overrides in ({}, BOTH):
        program, _ = ran(path, **overrides)
        launch = next(step for step in program.launches if step.name == "Conv_10")
        sizes.append({name: data.size for name, data in launch.arrays.items() if name == "dram.wgt"})
        sizes[-1] |= {segment["name"]: segment["size"] for segment in launch.meta["segments"] if segment["name"] == "x"}
    assert len(sizes[0]) == 2
    assert {name: 2 * size for name, size in sizes[1].items()} == sizes[0]


@pytest.mark.gxx
@pytest.mark.slow
def test_the_gateware_computes_the_same(tmp_path: Path) -> None:
    from tilewright.conform import cosim

    path = network(tmp_path / "n.onnx", 2, channels=16)
    program, _ = ran(path, **BOTH)
    cases = list(cosim(program, random(load(path)).values, "verilator"))
    assert len(cases) == 4
    assert not [case for case in cases if case.differences]


def test_nibbles_round_trip() -> None:
    values = np.random.default_rng(0).integers(-8, 8, (3, 10)).astype(np.int8)
    assert np.array_equal(nibbles(in_nibbles(values)), values)
    assert in_nibbles(np.array([[1, -1]], np.int8)).tolist() == [[0xF1]]  # the first value is in the low half


@pytest.mark.parametrize("planes", [0, 1, 3, 5, 8])
def test_a_placement_of_4_bits_is_read_back(planes: int) -> None:
    rng = np.random.default_rng(planes)
    place = Placement.of((3, 5), "int32" if planes else "int8", planes, 4).split(1, 4).transpose(1, 0, 2)
    limit = 1 << 4 * (planes or 1) - 1
    values = rng.integers(-limit, limit, (2, 3, 5)).astype(place.dtype)
    memory = place.pack(values)
    assert memory.shape == (2, place.nbytes) == (2, 12 * (planes or 1))
    assert np.array_equal(place.unpack(memory), values)
    assert place.where.shape == (3, 5, planes or 1)
    changed = memory.copy()
    changed[:, place.where[2, 4]] ^= 255
    assert (place.unpack(changed) != values)[:, 2, 4].all()
