"""What the operators refuse, in words; and those whose results no golden file has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.graph.operator_sites import site, tensor
from tilewright.errors import TilewrightError
from tilewright.graph.ir import Graph, Node, Op, Quant, Site, State, Tensor
from tilewright.graph.ops import (
    Add,
    AveragePool2D,
    Clamp,
    Concat,
    Conv2D,
    DepthwiseConv2D,
    Dequantize,
    FullyConnected,
    HardSwish,
    IntegerAdd,
    LeakyRelu,
    Logistic,
    MatMul,
    MaxPool2D,
    Mean,
    Pack,
    Pad,
    Quantize,
    RealAveragePool2D,
    RequantShift,
    Reshape,
    ResizeNearest,
    Slice,
    Softmax,
    Split,
    Tile,
    Transpose,
    TransposeConv2D,
    Upsample,
    Window,
)
from tilewright.graph.rounding import MODES, Rounding, Shift, rounding_mode

X = tensor("x", 1, 4, 6, 2)
ROW = tensor("x", 2, 8)
FINE = Quant((0.25,), (0,))
BIAS = tensor("b", 3, dtype="int32", constant=True)


def weights(*shape: int) -> Tensor:
    return tensor("w", *shape, constant=True)


REFUSED: list[tuple[Op, Sequence[Tensor | None], tuple[Tensor, ...], str]] = [
    (Reshape((5, 5)), [X], (), "cannot reshape [1, 4, 6, 2] to [5, 5]"),
    (Reshape((-1, -1)), [X], (), "cannot reshape"),
    (Reshape((-1, 5)), [X], (), "cannot reshape"),
    (Transpose((0, 1, 1, 2)), [X], (), "cannot permute the axes of [1, 4, 6, 2] by [0, 1, 1, 2]"),
    (Tile((1, 1, 1)), [X], (), "repeats a tensor of shape [1, 4, 6, 2] [1, 1, 1] times"),
    (Tile((1, 1, 1, 0)), [X], (), "repeats a tensor"),
    (Upsample((0, 1)), [X], (), "repeats pixels (0, 1) times"),
    (Upsample((2, 2)), [ROW], (), "input 0 has the shape [2, 8]; four axes are required"),
    (ResizeNearest((0, 4), (0,)), [X], (), "positions outside its 4x6 input"),
    (ResizeNearest((0,), ()), [X], (), "positions outside"),
    (ResizeNearest((0,), (-1,)), [X], (), "positions outside"),
    (Slice((0, 8), (2, 1), (1, 1), (2, 1)), [ROW], (), "takes a slice that is not inside its input of shape [2, 8]"),
    (Slice((0, 7), (2, 2), (1, 1), (2, 2)), [ROW], (), "not inside"),
    (Slice((0, 0), (2, 2), (1, -1), (2, 2)), [ROW], (), "not inside"),
    (Slice((0, 0), (2, 0), (1, 1), (2, 0)), [ROW], (), "not inside"),
    (Slice((0, 0), (2, 2), (1, 1), (2, 3)), [ROW], (), "not inside"),
    (Split(1, (3, 4)), [ROW], (ROW, ROW), "cannot split axis 1 of [2, 8] into [3, 4]"),
    (Split(2, (2,)), [ROW], (ROW,), "cannot split axis 2"),
    (Split(1, (8, 0)), [ROW], (ROW, ROW), "cannot split axis 1"),
    (Split(0, (2,), keep_dims=False), [ROW], (ROW,), "cannot split axis 0"),
    (Pack(3), [ROW, ROW], (), "cannot stack [[2, 8], [2, 8]] along axis 3"),
    (Pack(0), [ROW, tensor("z", 2, 7)], (), "cannot stack [[2, 8], [2, 7]]"),
    (Pack(0), [ROW, tensor("z", 2, 8, quant=FINE)], (), "stacks tensors of different scales or zero points"),
    (Pad(((0, 0),)), [ROW], (), "padding ((0, 0),) does not fit the shape [2, 8]"),
    (Pad(((0, 0), (0, -1))), [ROW], (), "does not fit"),
    (Pad(((0, 0), (0, 1)), 128), [ROW], (), "pads with 128, which is outside int8"),
    (Pad(((0, 0), (0, 1)), -129), [ROW], (), "pads with -129"),
    (Concat(2), [ROW, ROW], (), "cannot concatenate [[2, 8], [2, 8]] along axis 2"),
    (Concat(-3), [ROW, ROW], (), "cannot concatenate"),
    (Concat(1), [ROW, tensor("z", 3, 8)], (), "cannot concatenate [[2, 8], [3, 8]] along axis 1"),
    (Concat(1), [ROW, tensor("z", 2, 8, 1)], (), "cannot concatenate"),
    (Concat(0), [ROW, tensor("z", 2, 8, quant=FINE)], (), "joins tensors of different scales or zero points"),
    (Add(), [ROW, tensor("z", 3, 8)], (), "inputs [2, 8] and [3, 8] do not broadcast to one shape"),
    (LeakyRelu(2.0**31), [ROW], (), "would be scaled by 1 and 2.14748e+09; factors must be below 2**30"),
    (LeakyRelu(-(2.0**31)), [ROW], (), "factors must be below"),
    (LeakyRelu(0.5), [ROW], (tensor("y", 2, 8, quant=Quant((1e-10,), (0,))),), "factors must be below"),
    (HardSwish(), [tensor("x", 2, 8, dtype="int16")], (), "is a HARD_SWISH of int16"),
    (HardSwish(), [ROW], (tensor("y", 2, 8, quant=Quant((1e-3,), (0,))),), "output scale below 1/128 of the input's"),
    (Logistic(), [ROW], (), "has an output scale or zero point other than 0.00390625 and -128"),
    (Softmax(), [ROW], (), "has an output scale or zero point other than 1/256 and -128"),
    (Softmax(0.0), [ROW], (), "multiplies by beta = 0; positive numbers are supported"),
    (Softmax(), [tensor("x", 2, 8, dtype="int16")], (), "has an output scale or zero point other than 2**-15 and 0"),
    (MaxPool2D(), [X], (tensor("y", 1, 4, 6, 2, quant=FINE),), "scale or zero point differs from the input's"),
    (MaxPool2D(Window((5, 1))), [X], (), "has a (5, 1) window that does not fit its 4x6 input"),
    (MaxPool2D(Window((1, 1), (0, 1))), [X], (), "has an impossible window"),
    (Mean((1, 1)), [ROW], (), "cannot reduce axes (1, 1) of the shape [2, 8]"),
    (Mean((2,)), [ROW], (), "cannot reduce axes (2,)"),
    (Conv2D(window=Window((3, 3))), [X, weights(3, 1, 1, 2)], (), "weights of shape [3, 1, 1, 2] do not fit"),
    (Conv2D(), [X, weights(3, 1, 1, 2), tensor("b", 2, dtype="int32")], (), "has a int32 bias of shape [2]; int32 of"),
    (Conv2D(), [X, weights(3, 1, 1, 2), tensor("b", 3, dtype="int64")], (), "int32 of shape [3] is supported"),
    (Conv2D(), [X, weights(3, 1, 1, 2), BIAS, tensor("r", 1, 4, 6, 2)], (), "its residual has the shape [1, 4, 6, 2]"),
    (
        Conv2D(),
        [X, weights(3, 1, 1, 2), BIAS, tensor("r", 1, 4, 6, 3, quant=Quant((2.0**23,), (0,)))],
        (),
        "its residual would be shifted left by [25] bits; one shift of 0..23 is needed",
    ),
    (DepthwiseConv2D(), [X, weights(2, 1, 1, 2)], (), "weights of shape [2, 1, 1, 2] do not fit 2 input channels"),
    (DepthwiseConv2D(), [X, weights(1, 1, 1, 3)], (), "do not fit 2 input channels"),
    (TransposeConv2D(size=(0, 1)), [X, weights(3, 1, 1, 2)], (), "do not fit 2 input channels"),
    (TransposeConv2D(size=(4, 6)), [X, weights(3, 1, 1, 1)], (), "do not fit 2 input channels"),
    (FullyConnected(), [ROW, weights(3, 7)], (), "weights of shape [3, 7] do not fit the input [2, 8]"),
    (FullyConnected(keep_dims=True), [ROW, weights(3, 4)], (), "do not fit"),
    (MatMul(), [ROW, tensor("w", 7, 3)], (), "inputs of shapes [2, 8] and [7, 3] cannot be multiplied as matrices"),
    (MatMul(), [ROW, tensor("w", 1, 8, 3)], (), "cannot be multiplied"),
]


@pytest.mark.parametrize(("op", "inputs", "outputs", "reason"), REFUSED, ids=lambda v: v if isinstance(v, str) else "")
def test_shapes_that_do_not_fit(
    op: Op, inputs: Sequence[Tensor | None], outputs: tuple[Tensor, ...], reason: str
) -> None:
    with pytest.raises(TilewrightError) as caught:
        op.shapes(site(op, inputs, *outputs))
    assert reason in str(caught.value)


FITTING: list[tuple[Op, Sequence[Tensor | None], tuple[int, ...]]] = [
    (Reshape((2, -1)), [X], (2, 24)),
    (Transpose((0, 3, 1, 2)), [X], (1, 2, 4, 6)),
    (Tile((1, 2)), [ROW], (2, 16)),
    (Upsample((2, 3)), [X], (1, 8, 18, 2)),
    (ResizeNearest((0, 3, 3), (5,)), [X], (1, 3, 1, 2)),
    (Slice((1, 7), (1, 8), (1, -1), (8,)), [ROW], (8,)),
    (Pack(1), [ROW, ROW, ROW], (2, 3, 8)),
    (Pad(((0, 1), (2, 0))), [ROW], (3, 10)),
    (Concat(-1), [ROW, tensor("z", 2, 3)], (2, 11)),
    (Add(), [ROW, tensor("z", 8)], (2, 8)),
    (Mean((0,), True), [ROW], (1, 8)),
    (Mean((0,)), [ROW], (8,)),
    (AveragePool2D(Window((2, 3), (2, 1), (1, 0, 0, 0))), [X], (1, 2, 4, 2)),
    (Conv2D(window=Window((3, 3), dilation=(1, 2))), [X, weights(4, 3, 3, 1), None], (1, 2, 2, 4)),
    (DepthwiseConv2D(window=Window((2, 3))), [X, weights(1, 2, 3, 6)], (1, 3, 4, 6)),
    (TransposeConv2D(window=Window((3, 3), (2, 2)), size=(9, 13)), [X, weights(3, 3, 3, 2)], (1, 9, 13, 3)),
    (FullyConnected(), [ROW, weights(3, 4)], (4, 3)),
    (FullyConnected(keep_dims=True), [ROW, weights(3, 8)], (2, 3)),
    (MatMul(), [ROW, tensor("w", 8, 3)], (2, 3)),
]


@pytest.mark.parametrize(("op", "inputs", "shape"), FITTING)
def test_shapes_that_fit(op: Op, inputs: Sequence[Tensor | None], shape: tuple[int, ...]) -> None:
    assert op.shapes(site(op, inputs)) == (shape,)


def test_macs() -> None:
    y = tensor("y", 1, 2, 2, 4)
    convolution = Conv2D(window=Window((3, 3), dilation=(1, 2)))
    assert convolution.macs(site(convolution, [X, weights(4, 3, 3, 2)], y)) == 16 * 18
    scattering = TransposeConv2D(window=Window((3, 3), (2, 2)), size=(9, 13))
    assert scattering.macs(site(scattering, [X, weights(3, 3, 3, 2)], tensor("y", 1, 9, 13, 3))) == 48 * 27
    assert MatMul().macs(site(MatMul(), [ROW, tensor("w", 8, 3)], tensor("y", 2, 3))) == 6 * 8
    assert Add().macs(site(Add(), [ROW, ROW])) == 0


TYPES: list[tuple[Op, Sequence[Tensor | None], Tensor, str]] = [
    (Add(), [ROW, tensor("z", 2, 8, quant=None)], ROW, "tensor 'z' has no quantisation parameters"),
    (Add(), [tensor("x", 2, 8, dtype="float32"), ROW], ROW, "tensor 'x' is float32, not int8, uint8 or int16"),
    (Reshape((16,)), [ROW], tensor("y", 16, dtype="uint8"), "moves int8 into a tensor of uint8"),
    (Split(0, (1, 1)), [ROW], tensor("y", 1, 8, dtype="uint8"), "splits a tensor into parts of other types"),
    (Dequantize(), [ROW], tensor("y", 2, 8, dtype="float64"), "dequantises to float64, not float32"),
    (Quantize(), [tensor("x", 2, 8, dtype="float16")], ROW, "tensor 'x' is float16"),
    (IntegerAdd(), [ROW, ROW], ROW, "its sum is not int32"),
    (IntegerAdd(), [ROW, tensor("z", 2, 8, dtype="int16")], tensor("y", 2, 8, dtype="int32"), "adds types other than"),
    (RequantShift(), [tensor("x", 2, dtype="int16"), *[tensor("m", 1, dtype="int64")] * 2], ROW, "requantises types"),
    (RequantShift(), [ROW, tensor("m", 1, dtype="int64"), tensor("a", 1, dtype="int32")], ROW, "not int64"),
    (
        RequantShift(Shift(0)),
        [ROW, *[tensor("m", 1, dtype="int64")] * 2],
        ROW,
        "the divisor must be in 1..2**31",
    ),
]


@pytest.mark.parametrize(("op", "inputs", "output", "reason"), TYPES)
def test_types_that_do_not_fit(op: Op, inputs: Sequence[Tensor | None], output: Tensor, reason: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        op.check_types(site(op, inputs, output))
    assert reason in str(caught.value)


def evaluated(node: Site, values: Sequence[np.ndarray], mode: str = "ort") -> np.ndarray:
    rounding: Rounding = rounding_mode(mode)
    (result,) = node.node.op.evaluate(node, values, rounding)
    return result


@pytest.mark.parametrize("count_padding", [False, True])
def test_averages_of_real_numbers(count_padding: bool) -> None:
    """Mean of the real values inside the image, or of the whole window, then rounded half to even."""
    rng = np.random.default_rng(5)
    op = RealAveragePool2D(Window((2, 3), (1, 2), (1, 1, 0, 2)), count_padding)
    x = tensor("x", 1, 5, 7, 3, quant=Quant((0.5,), (3,)))
    y = tensor("y", 1, 6, 4, 3, quant=Quant((0.25,), (-7,)))
    codes = rng.integers(-128, 128, (2, *x.shape)).astype(np.int8)
    padded = np.full((2, 7, 9, 3), np.nan)
    padded[:, 1:-1, :-2] = (codes[:, 0].astype(float) - 3) / 2
    wanted = np.zeros((2, 1, 6, 4, 3))
    for row, column in np.ndindex(6, 4):
        window = padded[:, row : row + 2, 2 * column : 2 * column + 3].reshape(2, 6, 3)
        count = 6 if count_padding else (~np.isnan(window)).sum(axis=1)
        wanted[:, 0, row, column] = np.nansum(window, axis=1) / np.maximum(count, 1)
    expected = np.clip(np.rint(wanted.astype(np.float32) * 4 - 7), -128, 127)
    np.testing.assert_array_equal(evaluated(site(op, [x], y), [codes]), expected)


def test_products_of_matrices() -> None:
    rng = np.random.default_rng(6)
    a = tensor("a", 3, 2, 5, quant=Quant((0.5,), (2,)))
    b = tensor("b", 3, 5, 4, quant=Quant((0.25,), (-3,)))
    y = tensor("y", 3, 2, 4, quant=Quant((2.0,), (1,)))
    left = rng.integers(-128, 128, (4, 3, 2, 5)).astype(np.int8)
    right = rng.integers(-128, 128, (1, 3, 5, 4)).astype(np.int8)
    sums = (left.astype(int) - 2) @ (right.astype(int) + 3)
    expected = np.clip(np.rint(sums / 16) + 1, -128, 127)
    np.testing.assert_array_equal(evaluated(site(MatMul(), [a, b], y), [left, right]), expected)


def test_groups_of_channels() -> None:
    """A convolution with groups is one convolution for each group, and the results side by side."""
    rng = np.random.default_rng(8)
    op = Conv2D(window=Window((2, 2)))
    x = rng.integers(-128, 128, (2, 1, 4, 5, 6)).astype(np.int8)
    w = rng.integers(-128, 128, (9, 2, 2, 2)).astype(np.int8)

    def sums(image: np.ndarray, taps: np.ndarray) -> np.ndarray:
        out = tensor("y", 1, 3, 4, len(taps))
        ends = [tensor("x", *image.shape[1:], quant=Quant((0.5,), (3,))), tensor("w", constant=taps)]
        return op.accumulate(site(op, ends, out), image, taps)

    parts = [sums(x[..., 2 * g : 2 * g + 2], w[3 * g : 3 * g + 3]) for g in range(3)]
    np.testing.assert_array_equal(sums(x, w), np.concatenate(parts, axis=-1))


def test_several_results_a_channel() -> None:
    """Output channel o of a depthwise convolution reads input channel o // 2."""
    rng = np.random.default_rng(10)
    op = DepthwiseConv2D(window=Window((2, 3)))
    x = rng.integers(-128, 128, (2, 1, 4, 6, 3)).astype(np.int8)
    w = rng.integers(-128, 128, (1, 2, 3, 6)).astype(np.int8)
    ends = [tensor("x", 1, 4, 6, 3, quant=Quant((0.5,), (-4,))), tensor("w", constant=w)]
    sums = op.accumulate(site(op, ends, tensor("y", 1, 3, 4, 6)), x, w)
    expected = np.zeros(sums.shape, int)
    for row, column, channel in np.ndindex(3, 4, 6):
        window = x[:, 0, row : row + 2, column : column + 3, channel // 2].astype(int) + 4
        expected[:, 0, row, column, channel] = (window * w[0, ..., channel]).sum(axis=(1, 2))
    np.testing.assert_array_equal(sums, expected)


@pytest.mark.parametrize(
    ("size", "padding"), [((9, 11), (0, 0, 0, 0)), ((12, 15), (0, 0, 0, 0)), ((6, 7), (2, 0, 1, 0))]
)
def test_scattered_products(size: tuple[int, int], padding: tuple[int, int, int, int]) -> None:
    """A transposed convolution scatters products; what falls outside of the output is lost, the rest is 0."""
    rng = np.random.default_rng(11)
    op = TransposeConv2D(window=Window((3, 2), (2, 3), padding), size=size)
    x = rng.integers(-128, 128, (2, 1, 4, 3, 2)).astype(np.int8)
    w = rng.integers(-128, 128, (5, 3, 2, 2)).astype(np.int8)
    ends = [tensor("x", 1, 4, 3, 2, quant=Quant((0.5,), (7,))), tensor("w", constant=w)]
    sums = op.accumulate(site(op, ends, tensor("y", 1, *size, 5)), x, w)
    expected = np.zeros(sums.shape, int)
    for row, column, down, right in np.ndindex(4, 3, 3, 2):
        at = 2 * row + down - padding[0], 3 * column + right - padding[2]
        if 0 <= at[0] < size[0] and 0 <= at[1] < size[1]:
            expected[:, 0, at[0], at[1]] += (x[:, 0, row, column].astype(int) - 7) @ w[:, down, right].astype(int).T
    np.testing.assert_array_equal(sums, expected)


def test_products_of_many_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are made floats a few columns at a time; the sums are the same."""
    rng = np.random.default_rng(9)
    x = rng.integers(-128, 128, (2, 3, 50)).astype(np.int8)
    w = tensor("w", quant=Quant((0.5,), (2,)), constant=rng.integers(-128, 128, (4, 50)).astype(np.int8))
    op = FullyConnected()
    node = site(op, [tensor("x", 3, 50, quant=Quant((0.5,), (-5,))), w], tensor("y", 3, 4))
    monkeypatch.setattr("tilewright.graph.ops.linear.FLOATS_AT_ONCE", 30)
    assert w.data is not None
    expected = (x.astype(int) + 5) @ (w.data.astype(int).T - 2)
    np.testing.assert_array_equal(op.accumulate(node, x, w.data), expected)


def test_integers_without_scales() -> None:
    """PULP's sums, and their requantisation with a multiplier and an addend for each channel."""
    rng = np.random.default_rng(7)
    x, z = (rng.integers(-1000, 1000, (2, 3, 4)).astype(np.int32) for _ in range(2))
    like = tensor("x", 3, 4, dtype="int32")
    total = evaluated(site(IntegerAdd(), [like, tensor("z", 4, dtype="int32")], like), [x, z[:, 0]])
    np.testing.assert_array_equal(total, x + z[:, :1])
    multiplier, addend = np.arange(1, 5)[None], np.arange(4)[None] - 9
    factors = tensor("m", 4, dtype="int64"), tensor("a", 4, dtype="int64")
    op = RequantShift(Shift(8, 0, 200))
    codes = evaluated(site(op, [like, *factors], tensor("y", 3, 4, dtype="uint8")), [x, multiplier, addend])
    np.testing.assert_array_equal(codes, np.clip(np.floor((x * multiplier[0] + addend[0]) / 8 + 0.5), 0, 200))


@pytest.mark.parametrize(("mode", "halves"), [("tflm", "away"), ("xnnpack", "even"), ("ort", "even"), ("pow2", "up")])
def test_real_numbers_become_codes(mode: str, halves: str) -> None:
    values = np.array([[-1.5, -0.25, 0.25, 0.75, 1.25, 200.0, -200.0, np.nan]], np.float32)
    steps = values[0, :5] * 2
    expected = {
        "away": np.trunc(steps + np.copysign(0.5, steps)),
        "even": np.rint(steps),
        "up": np.floor(steps + 0.5),
    }[halves]
    node = site(Quantize(), [tensor("x", 8, dtype="float32", quant=None)], tensor("y", 8, quant=Quant((0.5,), (4,))))
    nan = -128 if mode == "ort" else 4
    np.testing.assert_array_equal(evaluated(node, [values], mode), [[*(expected + 4), 127, -128, nan]])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("op", [Quantize(), Clamp("relu6"), LeakyRelu(0.25), Add()])
def test_compilers_evaluate_a_table_of_codes(op: Op, mode: str) -> None:
    """Element-wise operators take values of any shape: one for each code, whatever the shape of the tensor is."""
    table = np.arange(-128, 128).astype(np.int8)
    ends = [tensor("x", 1, 3, 3, 16)] * (2 if isinstance(op, Add) else 1)
    node = site(op, ends, tensor("y", 1, 3, 3, 16, quant=Quant((1.0,), (0,))))
    single = site(op, [tensor("x", 256)] * len(ends), tensor("y", 256, quant=Quant((1.0,), (0,))))
    expected = evaluated(single, [table[None]] * len(ends), mode)
    np.testing.assert_array_equal(evaluated(node, [table] * len(ends), mode), expected[0])


def test_codes_become_real_numbers() -> None:
    node = site(Dequantize(), [tensor("x", 3, quant=Quant((0.5,), (4,)))], tensor("y", 3, dtype="float32", quant=None))
    result = evaluated(node, [np.array([[-128, 4, 127]], np.int8)])
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, [[-66.0, 0.0, 61.5]])


WRONG_TENSORS = [
    (Tensor("t", (2,), "complex64"), "has the unknown element type complex64"),
    (Tensor("t", (0,), "int8"), "extents must be positive, with at most 16777216 elements"),
    (Tensor("t", ((1 << 24) + 1,), "int8"), "extents must be positive"),
    (tensor("t", 3, constant=np.zeros(2, np.int8)), None),
    (Tensor("t", (3,), "int8", None, np.zeros(2, np.int8)), "is declared as int8[3], but its data is int8[2]"),
    (Tensor("t", (2,), "int8", None, np.zeros(2, np.uint8)), "is declared as int8[2], but its data is uint8[2]"),
    (tensor("t", 2, quant=Quant((), ())), "has a quantisation scale that is not a positive number"),
    (tensor("t", 2, quant=Quant((0.0,), (0,))), "not a positive number"),
    (tensor("t", 2, quant=Quant((float("inf"),), (0,))), "not a positive number"),
    (tensor("t", 2, quant=Quant((1.0,), (0, 0))), "has 1 scales but 2 zero points"),
    (tensor("t", 2, quant=Quant((1.0,), (128,))), "has a zero point outside the range of int8"),
    (tensor("t", 2, quant=Quant((1.0,), (-129,))), "outside the range of int8"),
    (tensor("t", 2, quant=Quant((1.0, 1.0, 1.0), (0, 0, 0))), "has 3 scales for axis 0 of shape [2]"),
    (tensor("t", 2, quant=Quant((1.0, 1.0), (0, 0), 1)), "has 2 scales for axis 1 of shape [2]"),
    (tensor("t", 2, quant=Quant((1.0, 1.0), (0, 0))), None),
]


@pytest.mark.parametrize(("wrong", "reason"), WRONG_TENSORS)
def test_tensors_are_checked(wrong: Tensor, reason: str | None) -> None:
    if reason is None:
        wrong.check()
        return
    with pytest.raises(TilewrightError) as caught:
        wrong.check()
    assert reason in str(caught.value) and "tensor 't'" in str(caught.value)


def graph(**changed: object) -> Graph:
    """A network of one reshape, with a state, and some fields changed."""
    tensors = {name: tensor(name, 2, 8) for name in ("x", "s")} | {"y": tensor("y", 16)}
    tensors |= {"i": tensor("i", 2, 8, constant=True), "u": tensor("u", 2, 8)}
    nodes = (Node("n", Reshape((16,)), ("x",), ("y",)), Node("m", Reshape((2, 8)), ("s",), ("u",)))
    fields: dict[str, object] = {
        "name": "g",
        "tensors": tensors,
        "nodes": nodes,
        "inputs": ("x",),
        "outputs": ("y",),
        "states": (State("s", "u", "i"),),
    }
    return Graph(**{**fields, **changed})  # type: ignore[arg-type]


BASE = graph()
WRONG_GRAPHS = [
    ({"tensors": {**BASE.tensors, "z": tensor("q", 2)}}, "tensor 'q' is listed under the name 'z'"),
    ({"nodes": (BASE.nodes[0], BASE.nodes[0])}, "has two nodes with the same name"),
    ({"outputs": ()}, "has no outputs"),
    ({"inputs": ("z",)}, "input, output or state 'z' is not a tensor of the graph"),
    ({"states": (State("s", "u", "x"),)}, "state 's': has no constant initial value"),
    ({"states": (State("s", "y", "i"),)}, "state 's': is int8[16] in 'y', but int8[2,8] in 'i'"),
    ({"states": (State("x", "u", "i"),)}, "is a constant, an input, or the source of another state too"),
    ({"states": (State("i", "u", "i"),)}, "is a constant, an input"),
    ({"nodes": BASE.nodes[:1]}, "output or state 'u' is never written"),
    ({"nodes": (BASE.nodes[0], Node("m", Reshape((2, 8)), ("u",), ("u",)))}, "reads tensor 'u' before anything has"),
    ({"nodes": (*BASE.nodes, Node("k", Reshape((16,)), ("x",), ("y",)))}, "writes tensor 'y', which does not exist or"),
    ({"nodes": (Node("n", Split(0, (1, 1)), ("x",), ("y",)), BASE.nodes[1])}, "is declared with 1 outputs; its oper"),
    ({"nodes": (Node("n", Reshape((8, 2)), ("x",), ("y",)), BASE.nodes[1])}, "is declared as [16]; its inputs give"),
]


def test_a_graph_that_is_sound() -> None:
    assert graph().validate().node("n") == BASE.nodes[0]
    assert graph().readers["x"] == (BASE.nodes[0],)
    assert "z" not in graph(tensors={**BASE.tensors, "z": tensor("z", 2)}).pruned().tensors


@pytest.mark.parametrize(("changed", "reason"), WRONG_GRAPHS)
def test_graphs_are_checked(changed: dict[str, object], reason: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        graph(**changed).validate()
    assert reason in str(caught.value)
