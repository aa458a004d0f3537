"""The scheme pow2: its files obey the rules that docs/quantize.md states, and its arithmetic is that of shifts."""

from __future__ import annotations

from math import log2
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
from onnx import ModelProto, helper, numpy_helper

import tilewright as tw
from tests.quantize.models import integers, model, residual, samples
from tests.quantize.pow2_models import make, pairs
from tilewright.graph import reference
from tilewright.quantize.model import Tracer
from tilewright.quantize.pow2.emit import exact
from tilewright.quantize.pow2.scales import MAX_LIFT, covering


@pytest.mark.parametrize("seed", range(8))
def test_the_arithmetic_is_sums_shifts_and_comparisons(tmp_path: Path, seed: int) -> None:
    """Codes of every tensor, bit for bit, against integers; the plain QDQ file differs from them on ties alone."""
    data = samples(8, seed + 100)
    made = make(tmp_path, residual(seed), data)
    assert not [step.name for step in made.plan.steps if step.role == "host"]
    found = pairs(made.model)
    names = [name for name, _ in found.values()]
    rounded_up, to_even = Tracer(exact(made.model), names), Tracer(made.model, names)
    ties = 0
    for sample in data[:4]:
        expected = integers(made.model, sample[None])
        up, even = rounded_up.run({"x": sample[None]}), to_even.run({"x": sample[None]})
        assert set(expected) == set(found)
        for name, codes in expected.items():
            result, scale = found[name]
            assert np.array_equal(up[result] / scale, codes), f"seed {seed}: {name}"
            ties += int((even[result] / scale != codes).sum())
    assert ties > 0, "no tie occurred: the test says nothing about rounding"


def test_every_scale_is_a_power_of_two_and_every_zero_point_zero(tmp_path: Path) -> None:
    made = make(tmp_path, residual(), samples()).model
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in made.graph.initializer}
    quantising = [node for node in made.graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    assert len(quantising) > 20
    for node in quantising:
        scale, zero = constants[node.input[1]], constants[node.input[2]]
        assert scale.shape == () and log2(scale).is_integer()
        assert zero.shape == () and zero == 0
        if node.input[0] in constants:
            assert constants[node.input[0]].dtype == (np.int32 if node.input[0].endswith("_bias") else np.int8)
    told = {"tilewright.rounding": "pow2", "tilewright.unrounded": "conv2"}
    assert {entry.key: entry.value for entry in made.metadata_props} == told


@pytest.mark.parametrize("gain", [1e-9, 1e-6, 1.0, 1e4])
def test_shifts_are_positive_and_sums_fit_int32(tmp_path: Path, gain: float) -> None:
    """Also where the weights are so large or small that the first choice of scales would break a rule."""
    made = make(tmp_path, scaled(2, gain, ("w0", "w2", "b2")), samples())
    shifts = {
        step.name: made.scales.shift(step) for step in made.plan.steps if step.role in ("product", "sum", "average")
    }
    for step in made.plan.steps:
        if step.name in shifts:
            assert (0 if step.role == "sum" else 1) <= shifts[step.name] <= 30, shifts
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in made.model.graph.initializer}
    for name, bias in constants.items():
        if name.endswith("_bias"):
            weight = constants[name.replace("_bias", "_weight")].astype(np.int64)
            axes = tuple(range(1, weight.ndim)) if weight.ndim > 2 else 0
            worst = 128 * np.abs(weight).sum(axes) + np.abs(bias.astype(np.int64))
            assert worst.max() + (1 << (shifts[name.removesuffix("_bias")] - 1)) < 1 << 31


def test_a_move_before_the_first_product_runs_in_integers(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], name="move", perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["t", "w"], ["y"], name="conv"),
    ]
    weight = np.random.default_rng(0).standard_normal((3, 8, 1, 1)).astype(np.float32)
    found = pairs(make(tmp_path, model(nodes, {"w": weight}, [1, 3, 8, 8], {"y": [1, 3, 3, 8]}), samples()).model)
    assert set(found) == {"x", "t", "y"}
    assert found["x"][1] == found["t"][1]


def scaled(seed: int, gain: float, names: tuple[str, ...]) -> ModelProto:
    """`residual` with some constants multiplied."""
    source = residual(seed)
    for tensor in source.graph.initializer:
        if tensor.name in names:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(gain), tensor.name))
    return source


def test_a_tensor_added_to_itself_stays_an_addition(tmp_path: Path) -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], name="conv"), helper.make_node("Add", ["c", "c"], ["y"])]
    weight = np.random.default_rng(0).standard_normal((4, 3, 1, 1)).astype(np.float32)
    made = make(tmp_path, model(nodes, {"w": weight}, [1, 3, 8, 8], {"y": [1, 4, 8, 8]}), samples())
    assert [step.role for step in made.plan.steps] == ["product", "sum"]
    assert set(pairs(made.model)) == {"x", "c", "y"}


def test_a_bias_is_within_half_a_step_of_its_sum(tmp_path: Path) -> None:
    source, made = residual(), make(tmp_path, residual(), samples()).model
    exact = {tensor.name: numpy_helper.to_array(tensor) for tensor in source.graph.initializer}
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in made.graph.initializer}
    for name, node in (("b0", "conv0"), ("b2", "conv2"), ("b5", "dense")):
        (reader,) = (item for item in made.graph.node if item.input[0] == f"{node}_bias")
        step = float(constants[reader.input[1]])
        assert np.abs(constants[f"{node}_bias"] * step - exact[name]).max() <= step / 2


def test_operands_of_add_and_concat_share_a_scale(tmp_path: Path) -> None:
    found = pairs(make(tmp_path, scaled(3, 8.0, ("w2", "b2")), samples(), rounds_residuals=True).model)
    assert found["c2"][1] == found["r0"][1]
    assert found["c3"][1] == found["c4"][1] == found["both"][1]
    assert found["moved"][1] == found["pooled"][1]


@pytest.mark.parametrize("gain", [1e-6, 1e-3, 1.0, 30.0])
def test_a_residual_is_added_to_unrounded_sums(tmp_path: Path, gain: float) -> None:
    """The convolution that an addition reads has no codes, and the residual's scale is a multiple of its sums'."""
    made = make(tmp_path, scaled(3, gain, ("w2", "b2")), samples())
    found, (step,) = pairs(made.model), (step for step in made.plan.steps if step.addition is not None)
    assert (step.name, step.residual, step.outputs) == ("conv2", "r0", ("six",))
    assert "c2" not in found and "sum" not in found
    assert 0 <= made.scales.lift(step) <= MAX_LIFT
    assert made.scales.shift(step) >= 1


def test_residuals_in_sums_are_at_least_as_accurate(tmp_path: Path) -> None:
    """One rounding less: the mean of the signal-to-noise ratios after the addition is higher, over many networks."""
    gains = []
    for seed in range(6):
        noise = []
        for rounds in (False, True):
            made, data = make(tmp_path, residual(seed), samples(), rounds), samples()
            name, truth = pairs(made.model)["six"][0], Tracer(residual(seed), ["six"])
            found = Tracer(exact(made.model), [name])
            errors = [truth.run({"x": x[None]})["six"] - found.run({"x": x[None]})[name] for x in data]
            noise.append(float(np.mean(np.square(errors))))
        gains.append(10 * np.log10(noise[1] / noise[0]))
    print(gains)
    assert np.mean(gains) > 0.1


def test_an_exponent_has_the_least_squared_error_of_all(tmp_path: Path) -> None:
    """One large outlier among many values: saturating it costs less than coarser steps for all others."""
    identity = model(
        [helper.make_node("Conv", ["x", "w"], ["y"]), helper.make_node("Conv", ["y", "w"], ["z"])],
        {"w": np.eye(3, dtype=np.float32).reshape(3, 3, 1, 1)},
        [1, 3, 64, 64],
        {"z": [1, 3, 64, 64]},
    )
    data = np.random.default_rng(5).uniform(-1, 1, (2, 3, 64, 64)).astype(np.float32)
    data[0, 0, 0, 0] = 2.1
    made = make(tmp_path, identity, data)

    def error(exponent: int) -> float:
        codes = np.clip(np.floor(data / 2.0**exponent + 0.5), -128, 127)
        return float(((codes * 2.0**exponent - data) ** 2).sum())

    best = min(range(-12, 4), key=error)
    assert best < covering(2.1)
    assert made.scales.of("x") == made.scales.of("y") == best
    assert made.scales.of("z") == covering(2.1)  # an output is never saturated


AVERAGES: dict[str, dict[str, Any]] = {
    "GlobalAveragePool": {},
    "AveragePool": {"kernel_shape": [3, 2], "strides": [3, 2]},
    "ReduceMean": {"axes": [2, 3], "keepdims": 0},
    "ReduceMean, kept": {"axes": [-1, 2]},
}


def averaging(kind: str, size: tuple[int, int]) -> ModelProto:
    attributes = AVERAGES[kind]
    flat = attributes.get("keepdims") == 0
    kernel = attributes.get("kernel_shape", size)
    shape = [1, 3] if flat else [1, 3, size[0] // kernel[0], size[1] // kernel[1]]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node(kind.split(",", maxsplit=1)[0], ["c"], ["m"], name="mean", **attributes),
    ]
    weight = np.random.default_rng(0).standard_normal((3, 3, 1, 1)).astype(np.float32)
    return model(nodes, {"w": weight}, [1, 3, *size], {"m": shape})


@pytest.mark.parametrize("size", [(6, 4), (7, 7), (8, 8), (13, 13), (3, 43)], ids=str)
@pytest.mark.parametrize("kind", AVERAGES)
def test_an_average_is_a_sum_times_a_factor_and_a_shift(tmp_path: Path, kind: str, size: tuple[int, int]) -> None:
    if kind == "AveragePool":
        size = size[0] // 3 * 3, size[1] // 2 * 2
    data = np.random.default_rng(7).standard_normal((4, 3, *size)).astype(np.float32)
    made = make(tmp_path, averaging(kind, size), data)
    assert not [step.name for step in made.plan.steps if step.role == "host"]
    name, scale = pairs(made.model)["m"]
    onnx.save(made.model, tmp_path / "pow2.onnx")
    program = tw.compile(tmp_path / "pow2.onnx", "vta")
    assert program.graph
    for sample in data:
        codes = integers(made.model, sample[None])["m"]
        got = Tracer(exact(made.model), [name]).run({"x": sample[None]})[name]
        assert np.array_equal(got / scale, codes)
        (scores,) = reference.run(program.graph, sample[None]).values()
        assert np.array_equal(scores[0] / scale, codes)
    result = program.run(data[:, None])
    assert result.matches_reference
    assert not result.findings
    moves = {"quantize", "dequantize", "transpose", "reshape"}
    assert {layer.op for layer in result.layers if layer.where == "host"} <= moves


def test_an_average_over_too_much_is_the_hosts(tmp_path: Path) -> None:
    size = (257, 256)
    data = np.random.default_rng(7).standard_normal((1, 3, *size)).astype(np.float32)
    made = make(tmp_path, averaging("GlobalAveragePool", size), data)
    left = {step.name: step.reason for step in made.plan.steps if step.role == "host"}
    assert left["mean"] == "GlobalAveragePool over 65792 elements could overflow int32"


def test_a_product_of_two_activations_is_a_product(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "wa"], ["a"], name="a"),
        helper.make_node("MatMul", ["x", "wb"], ["b"], name="b"),
        helper.make_node("MatMul", ["a", "b"], ["y"], name="both"),
    ]
    draw = np.random.default_rng(0).standard_normal
    constants = {"wa": draw((4, 4)).astype(np.float32), "wb": draw((4, 4)).astype(np.float32)}
    data = draw((6, 4, 4)).astype(np.float32)
    made = make(tmp_path, model(nodes, constants, [1, 4, 4], {"y": [1, 4, 4]}), data)
    assert [step.role for step in made.plan.steps] == ["product"] * 3
    name, scale = pairs(made.model)["y"]
    got = Tracer(exact(made.model), [name]).run({"x": data[:1]})[name]
    codes = integers(made.model, data[:1])["y"]
    assert np.array_equal(got / scale, codes)
    onnx.save(made.model, tmp_path / "pow2.onnx")
    result = tw.compile(tmp_path / "pow2.onnx", "vta").run(data[:1])
    assert np.array_equal(next(iter(result.outputs.values()))[0] / scale, codes)
    assert result.matches_reference
    assert not result.findings
    assert {layer.where for layer in result.layers if layer.op == "matmul"} == {"vta"}
