"""Functions of one code, on all codes and many input scales, against TFLite Micro and LiteRT."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.model.tflite_writer import Quantised, Writer, run_litert, run_tflm
from tilewright.graph import reference
from tilewright.model import load

MODES = ("tflm", "litert", "xnnpack")
ZEROS = (-128, 0, 5)
#: Operators in one file.
MOST = 300


class Function(NamedTuple):
    """An operator: the quantisation of its result for an input's scale and zero point, and its options."""

    code: str
    result: Callable[[float, int], Quantised]
    options: str = ""
    values: Mapping[str, Any] = MappingProxyType({})
    modes: tuple[str, ...] = MODES


def rescaled(ratio: float) -> Callable[[float, int], Quantised]:
    return lambda scale, zero: Quantised(float(np.float32(scale * ratio)), zero // 2 + 3)


def fixed(scale: float, zero: int) -> Callable[[float, int], Quantised]:
    return lambda *_: Quantised(scale, zero)


LEAKY = "LeakyReluOptions", {"alpha": 0.3}
FUNCTIONS = {
    "logistic": Function("LOGISTIC", fixed(2.0**-8, -128)),
    "tanh": Function("TANH", fixed(2.0**-7, 0)),
    "softmax": Function("SOFTMAX", fixed(2.0**-8, -128), "SoftmaxOptions", {"beta": 0.7}),
    **{
        f"{name}_{ratio:g}": Function(name.upper(), rescaled(ratio), *options)
        for name, options in (("hard_swish", ("HardSwishOptions",)), ("leaky_relu", LEAKY), ("relu6", ()))
        for ratio in (0.01, 0.7, 1000.0)
    },
    "relu_n1_to_1": Function("RELU_N1_TO_1", rescaled(0.7), modes=MODES[1:]),  # TFLite Micro lacks it
}
WIDE = {
    "logistic": Function("LOGISTIC", fixed(2.0**-15, 0)),
    "tanh": Function("TANH", fixed(2.0**-15, 0)),
    "leaky_relu": Function("LEAKY_RELU", lambda scale, _: Quantised(float(np.float32(scale * 0.7))), *LEAKY),
}


def scales(count: int, low: float = 2.0**-10, high: float = 2.0**8) -> list[float]:
    """Powers of two with their neighbours, and other scales, log-spaced; `count` in total."""
    powers = np.float32(2.0) ** np.arange(np.log2(low), np.log2(high) + 1, dtype=np.float32)
    near = [np.nextafter(powers, np.float32(end)) for end in (0, np.inf)]
    spaced = np.geomspace(low, high, count - 3 * len(powers))
    return sorted({float(x) for x in np.concatenate([powers, *near, spaced]).astype(np.float32)})


def differences(function: Function, inputs: Sequence[tuple[float, int]], dtype: str, path: Path) -> list[str]:
    """The scales, zero points and codes at which a mode differs from its framework, in one file of all `inputs`."""
    info = np.iinfo(dtype)
    codes = np.arange(info.min, info.max + 1).astype(dtype)[None, None]
    writer, ends = Writer(), []
    for scale, zero in inputs:
        x = writer.tensor(codes.shape[1:], dtype, Quantised(scale, zero))
        y = writer.tensor(codes.shape[1:], dtype, function.result(scale, zero))
        writer.op(function.code, [x], [y], function.options, **function.values)
        ends.append((x, y))
    graph = load(writer.written(path, *(list(side) for side in zip(*ends, strict=True))))
    placed, different = dict.fromkeys(range(len(inputs)), codes), []
    for mode in function.modes:
        ours = reference.run(graph, dict.fromkeys(graph.inputs, codes), mode)
        theirs = run_tflm(path, placed) if mode == "tflm" else run_litert(path, placed, mode)
        for (scale, zero), name, golden in zip(inputs, graph.outputs, theirs, strict=True):
            wrong = codes[0, 0][(ours[name].reshape(golden.shape) != golden).reshape(-1)]
            if wrong.size:
                different.append(f"{mode}: scale {scale!r}, zero point {zero}: codes {wrong[:4].tolist()}")
    return different


@pytest.mark.parametrize("name", FUNCTIONS)
def test_codes_equal_their_frameworks(name: str, tmp_path: Path) -> None:
    """Coarse scales too: TFLite Micro gives the lowest code for 0.0 if the scale is 8 or more."""
    chosen = [2.0**-10, 0.05, 1.0, *np.random.default_rng(46).uniform(3, 20, 5).astype(np.float32).tolist(), 8.0, 256.0]
    different = differences(FUNCTIONS[name], list(product(chosen, ZEROS)), "int8", tmp_path / "codes.tflite")
    assert not different, different[:5]


@pytest.mark.parametrize("name", WIDE)
def test_int16_codes_equal_their_frameworks(name: str, tmp_path: Path) -> None:
    inputs = [(scale, 0) for scale in (2.0**-12, 0.0003, 0.01, 5.3, 5.5, 100.0)]
    different = differences(WIDE[name], inputs, "int16", tmp_path / "codes.tflite")
    assert not different, different[:5]


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_600_scales(name: str, tmp_path: Path) -> None:
    inputs = list(product(scales(600), ZEROS))
    for at in range(0, len(inputs), MOST):
        different = differences(FUNCTIONS[name], inputs[at : at + MOST], "int8", tmp_path / "codes.tflite")
        assert not different, different[:5]


@pytest.mark.slow
@pytest.mark.parametrize("name", WIDE)
def test_600_scales_of_int16(name: str, tmp_path: Path) -> None:
    inputs = [(scale, 0) for scale in scales(600, 2.0**-18)]
    for at in range(0, len(inputs), MOST // 10):
        different = differences(WIDE[name], inputs[at : at + MOST // 10], "int16", tmp_path / "codes.tflite")
        assert not different, different[:5]
