"""Every operator of .tflite files, on random files, against TFLite Micro and LiteRT in the three modes of TFLite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.model.tflite_answers import check
from tests.model.tflite_cases import EACH, KINDS, codes, written
from tests.model.tflite_writer import Quantised, Writer
from tilewright import targets
from tilewright.errors import UnsupportedError
from tilewright.graph import reference
from tilewright.model import load
from tilewright.program import serial


def modes_of(name: str, dtype: str) -> tuple[str, ...]:
    modes = ("litert",) if dtype in KINDS[name].unclaimed else ("litert", "xnnpack")
    return ("tflm", *modes) if KINDS[name].micro else modes


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(s, marks=pytest.mark.slow) for s in range(3, 40))])
@pytest.mark.parametrize(("name", "dtype"), EACH)
def test_operators_equal_their_frameworks(name: str, dtype: str, seed: int, tmp_path: Path) -> None:
    check(written(name, dtype, seed, tmp_path / f"{name}.tflite"), modes_of(name, dtype), seed)


@pytest.mark.parametrize("name", ["conv", "depthwise"])
def test_the_axis_of_a_bias_means_nothing(name: str, tmp_path: Path) -> None:
    """person_detect of TFLite Micro has biases of one axis whose scales are along axis 3. LiteRT refuses such files."""
    check(written(name, "int8", 5, tmp_path / "axis.tflite", bias_axis=3), ("tflm",), 5)


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(s, marks=pytest.mark.slow) for s in range(3, 20))])
@pytest.mark.parametrize("name", ["conv", "fully_connected", "transpose_conv"])
def test_int16_with_a_32_bit_bias(name: str, seed: int, tmp_path: Path) -> None:
    """TFLite Micro's TRANSPOSE_CONV reads any bias of int16 codes as int64."""
    path = written(name, "int16", seed, tmp_path / "bias.tflite", bias_kind="int32")
    check(path, ("litert",) if name == "transpose_conv" else ("tflm", "litert"), seed)


def test_int16_depthwise_with_a_32_bit_bias_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"int32 bias.*LiteRT refuses.*give it an int64 bias"):
        load(written("depthwise", "int16", 1, tmp_path / "bias.tflite", bias_kind="int32"))


@pytest.mark.parametrize(
    ("begin", "end", "masks", "form"),
    [
        ((0, 1, 0), (0, 3, 2), {"newAxisMask": 1}, (1, 2, 2, 5)),  # x[None, 1:3, 0:2]
        ((0, 0, 1), (0, 0, 4), {"ellipsisMask": 1, "newAxisMask": 2}, (3, 4, 1, 3)),  # x[..., None, 1:4]
        ((1, 0, 0), (2, 0, 3), {"ellipsisMask": 2, "shrinkAxisMask": 1}, (4, 3)),  # x[1, ..., 0:3]
        ((0, 0, -1), (0, 0, 0), {"ellipsisMask": 1, "newAxisMask": 2, "shrinkAxisMask": 4}, (3, 4, 1)),
    ],
)
def test_slices_with_new_axes_and_ellipses(
    begin: tuple[int, ...], end: tuple[int, ...], masks: dict[str, Any], form: tuple[int, ...], tmp_path: Path
) -> None:
    """TFLite Micro has neither."""
    writer, quant = Writer(), Quantised(0.1, 2)
    x, y = writer.tensor((3, 4, 5), "int8", quant), writer.tensor(form, "int8", quant)
    places = [writer.constant(np.array(numbers, np.int32)) for numbers in (begin, end, (1, 1, 1))]
    writer.op("STRIDED_SLICE", [x, *places], [y], "StridedSliceOptions", **masks)
    check(writer.written(tmp_path / "slice.tflite", [x], [y]), ("litert", "xnnpack"), 1)


@pytest.mark.parametrize(("name", "dtype"), EACH)
def test_operators_survive_a_program_file(name: str, dtype: str, tmp_path: Path) -> None:
    graph = load(written(name, dtype, 1, tmp_path / f"{name}.tflite"))
    data, arrays = serial.graph_to_data(graph)
    again = serial._graph(data, dict(arrays))
    inputs = codes(graph, 1)
    for mine, theirs in zip(reference.run(again, inputs).values(), reference.run(graph, inputs).values(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert serial.graph_to_data(again)[0] == data


@pytest.mark.parametrize("alu", ["upstream", "float"])
@pytest.mark.parametrize(("name", "dtype"), EACH)
def test_vta_runs_or_leaves_every_operator(name: str, dtype: str, alu: str, tmp_path: Path) -> None:
    graph = load(written(name, dtype, 2, tmp_path / f"{name}.tflite"))
    result = tw.compile(graph, "vta", overrides={"alu": alu}).run(codes(graph, 2))
    assert result.matches_reference and not result.findings
    assert all(layer.reason for layer in result.layers if layer.where == "host")


@pytest.mark.slow
@pytest.mark.parametrize("target", targets.names())
@pytest.mark.parametrize(("name", "dtype"), EACH)
def test_machines_run_or_leave_every_operator(name: str, dtype: str, target: str, tmp_path: Path) -> None:
    for seed in range(4):
        graph = load(written(name, dtype, seed, tmp_path / f"{name}.tflite"))
        result = tw.compile(graph, target).run(codes(graph, seed))
        assert result.matches_reference and not result.findings, f"seed {seed}"
