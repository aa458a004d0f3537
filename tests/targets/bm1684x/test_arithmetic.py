"""Element-wise operations, iterations and the cube against plain definitions of them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.targets.bm1684x.values import elementwise
from tilewright.targets.bm1684x.values.conv import aligned, alternate, dot, float_depthwise
from tilewright.targets.bm1684x.values.dtypes import BF16, F16, F32, I32, U32, DType, Rounding
from tilewright.targets.bm1684x.values.elementwise import (
    float_binary,
    holds,
    integer_binary,
    multiply_add,
    polynomial,
)
from tilewright.targets.bm1684x.values.floats import narrow, widen
from tilewright.targets.bm1684x.values.window import Window

SEED = 11
NAN = np.float32(np.nan)


def single(x: Fraction | float) -> np.float32:
    """One rounding to float32: float64 holds sums and products of two float32 exactly enough for it."""
    return np.float32(float(x))


def test_extremes_with_nan_take_an_operand_by_position() -> None:
    a, b = np.array([NAN, 1, NAN], np.float32), np.array([2, NAN, NAN], np.float32)
    np.testing.assert_array_equal(float_binary("max", a, b, F32), np.array([2, NAN, NAN], np.float32))
    np.testing.assert_array_equal(float_binary("min", a, b, F32), np.array([NAN, 1, NAN], np.float32))


def test_less_is_neither_greater_nor_equal() -> None:
    a, b = np.array([NAN, 1, NAN, -0.0], np.float32), np.array([1, 2, NAN, 0.0], np.float32)
    relations = {name: holds(name, a, b, F32).tolist() for name in ("greater", "less", "equal", "greater_equal")}
    assert relations == {
        "greater": [False, False, False, False],
        "less": [True, True, False, False],
        "equal": [False, False, True, False],
        "greater_equal": [False, False, True, True],
    }


def test_subnormals_are_zero_but_in_f16() -> None:
    tiny = np.array([1], np.uint32).view(np.float32)
    assert float_binary("add", tiny, tiny, F32).tolist() == [0.0]
    half = np.array([1], np.uint16).view(np.float16)
    assert float_binary("add", half, half, F16).view(np.uint16).tolist() == [2]
    assert float_binary("add", np.array([1], np.uint16), np.array([1], np.uint16), BF16).tolist() == [0]


def test_multiply_add_rounds_twice() -> None:
    a = np.array([1 + 2**-12], np.float32)
    acc = -(a * a)
    assert multiply_add(a, a, acc, F32).tolist() == [0.0]
    assert Fraction(float(a[0])) ** 2 + Fraction(float(acc[0])) != 0  # what one rounding would keep


def test_products_of_u32_use_all_64_bits() -> None:
    big = np.array([2**32 - 1], np.uint32)
    assert integer_binary("mul", big, big, U32, -32, Rounding.DOWN, True).tolist() == [2**32 - 2]
    assert integer_binary("mul", big, big, U32, -1, Rounding.HALF_UP, True).tolist() == [2**32 - 1]
    assert integer_binary("mul", big, big, U32, 0, Rounding.DOWN, False).tolist() == [1]


def test_left_shifts_clamp_before_they_lose_bits() -> None:
    x = np.array([2**30, -(2**30), 3], np.int32)
    products = integer_binary("mul", x, x, I32, 16, Rounding.DOWN, True)
    assert products.tolist() == [2**31 - 1, 2**31 - 1, 9 << 16]
    assert integer_binary("mul", x, -x, I32, 16, Rounding.DOWN, True).tolist() == [-(2**31), -(2**31), -9 << 16]


@pytest.mark.parametrize("dtype", [F32, F16, BF16])
def test_polynomials_round_after_every_operation(dtype: DType) -> None:
    rng = np.random.default_rng(SEED)
    x = narrow(rng.normal(size=50).astype(np.float32), dtype)
    terms = narrow(rng.normal(size=(4, 1)).astype(np.float32), dtype)
    result = np.broadcast_to(terms[3], x.shape)
    for k in (2, 1, 0):
        product = float_binary("mul", result, x, dtype)
        result = float_binary("add", product, np.broadcast_to(terms[k], x.shape), dtype)
    np.testing.assert_array_equal(polynomial(x, terms, dtype), result)


def ulps(computed: Array, true: Array) -> Array:
    return np.abs(computed.astype(np.float64) - true) / np.spacing(true.astype(np.float32)).astype(np.float64)


def test_iterations_are_near_the_true_value() -> None:
    rng = np.random.default_rng(SEED)
    a, b = (np.exp(rng.uniform(-20, 20, 4000)).astype(np.float32) for _ in range(2))
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    assert ulps(elementwise.divide(a, b), wide_a / wide_b).max() <= 5
    assert ulps(elementwise.square_root(a), np.sqrt(wide_a)).max() <= 3
    assert ulps(elementwise.inverse_root(a), 1 / np.sqrt(wide_a)).max() <= 3
    small = rng.uniform(-8, 8, 4000).astype(np.float32)
    assert np.abs(elementwise.exponential(small) / np.exp(small.astype(np.float64)) - 1).max() < 1e-6
    steps = [ulps(elementwise.divide(a, b, n), wide_a / wide_b).max() for n in (1, 2, 3)]
    assert steps[0] > steps[1] > steps[2]


def test_divisions_at_the_edges() -> None:
    b = np.array([0, -0.0, np.inf, 2.0**-126], np.float32)
    quotients = elementwise.divide(np.ones(4, np.float32), b)
    assert quotients.tolist() == [np.inf, -np.inf, np.inf, np.inf]  # what the iteration gives, not what IEEE 754 does


@pytest.mark.parametrize("before", [0, 1, 2])
def test_f32_adds_in_turn_to_two_accumulators(before: int) -> None:
    rng = np.random.default_rng(SEED)
    rows, columns = rng.normal(size=(3, 7)).astype(np.float32), rng.normal(size=(7, 2)).astype(np.float32)
    first = rng.normal(size=(before, 3, 2)).astype(np.float32)
    expected = np.zeros((3, 2), np.float32)
    for p in range(3):
        for o in range(2):
            sums = [np.float32(0), np.float32(0)]
            terms = [*first[:, p, o], *(rows[p, k] * columns[k, o] for k in range(7))]
            for index, term in enumerate(terms):
                sums[index % 2] = np.float32(sums[index % 2] + term)
            expected[p, o] = sums[0] + sums[1]
    for function in (alternate.python, alternate):
        result = np.full((3, 2), np.nan, np.float32)
        function(rows, columns, first, np.full((2, 2), np.nan, np.float32), result)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_short_floats_are_aligned_and_cut(dtype: DType) -> None:
    """Against rational arithmetic, as section 6.3 of the specification says."""
    rng = np.random.default_rng(SEED)
    scale = np.exp2(rng.integers(-6, 6, (2, 2, 32)))
    rows = narrow((rng.normal(size=(2, 2, 32)) * scale).astype(np.float32), dtype)
    columns = narrow(rng.normal(size=(2, 32, 3)).astype(np.float32), dtype)
    bias = rng.normal(size=(2, 3)).astype(np.float32)
    left, right = widen(rows, dtype), widen(columns, dtype)
    expected = np.zeros((2, 3), np.float32)
    for p in range(2):
        for o in range(3):
            total = bias[p, o]
            for g in range(2):
                products = [Fraction(float(left[p, g, i])) * Fraction(float(right[g, i, o])) for i in range(32)]
                largest = max(map(abs, products))
                exponent = math.frexp(float(largest))[1] - 1
                step = Fraction(2) ** (exponent - 24)
                total = single(
                    Fraction(float(total)) + Fraction(float(single(sum(math.trunc(x / step) for x in products) * step)))
                )
            expected[p, o] = total
    np.testing.assert_array_equal(dot(rows, columns, dtype, [bias]), expected)
    for function in (aligned.python, aligned):
        sums, scratch = bias.copy(), np.full((4, 3), np.nan)
        function(left.astype(np.float64), right.astype(np.float64), scratch, scratch.view(np.int64), sums)
        np.testing.assert_array_equal(sums, expected)


def test_products_of_zeros_and_infinities_are_not_cut() -> None:
    rows = narrow(np.array([[[0, 0]], [[0, np.inf]], [[np.inf, 1]]], np.float32), F16)
    columns = narrow(np.array([[[0], [1]]], np.float32), F16)
    with np.errstate(all="ignore"):
        sums = dot(rows, columns, F16, [np.ones((3, 1), np.float32)])
    np.testing.assert_array_equal(sums, np.array([[1], [np.inf], [np.nan]], np.float32))


@pytest.mark.parametrize("before", [0, 1])
def test_depthwise_sums_round_to_the_type_in_turn(before: int) -> None:
    rng = np.random.default_rng(SEED)
    taps = narrow(rng.normal(size=(1, 2, 3, 1, 1, 1)).astype(np.float32), BF16)
    weights = narrow(rng.normal(size=(2, 3, 1)).astype(np.float32), BF16)
    bias = [widen(narrow(rng.normal(size=(1, 2, 1, 1)).astype(np.float32), BF16), BF16)] * before
    for channel in range(2):
        sums = [np.zeros(1, np.uint16), np.zeros(1, np.uint16)]
        terms = [narrow(term[0, channel, 0], BF16) for term in bias]
        terms += [float_binary("mul", taps[0, channel, i, 0, 0], weights[channel, i], BF16) for i in range(3)]
        for index, term in enumerate(terms):
            sums[index % 2] = float_binary("add", sums[index % 2], term, BF16)
        computed = float_depthwise(taps, weights, BF16, bias)
        assert computed[0, channel, 0, 0] == float_binary("add", sums[0], sums[1], BF16)[0]


def test_infinities_come_through_the_cube() -> None:
    rows = np.zeros((1, 1, 32), np.float16)
    columns = np.ones((1, 32, 2), np.float16)
    rows[0, 0, :2] = np.inf
    columns[0, 1, 1] = -1
    sums = dot(rows, columns, F16, [])
    assert sums[0, 0] == np.inf
    assert np.isnan(sums[0, 1])


def test_windows_see_padding_and_inserted_zeros() -> None:
    x = np.arange(1, 5, dtype=np.int8).reshape(1, 1, 2, 2)
    window = Window((2, 2), (1, 0, 1, 0), (1, 1), (1, 1))
    assert window.out(2, 2) == (2, 2)
    taps = window.taps(x, 9)
    assert taps[0, 0, :, :, 0, 0].tolist() == [[9, 9], [9, 1]]
    assert taps[0, 0, :, :, 1, 1].tolist() == [[1, 2], [3, 4]]
    between = Window((1, 3), inserted=(0, 1)).taps(x, 9)
    assert between[0, 0, 0, :, 0, 0].tolist() == [1, 0, 2]
    dilated = Window((1, 2), dilation=(1, 2), pads=(0, 0, 0, 1)).taps(x, 9)
    assert dilated[0, 0, 0, :, 0, 0].tolist() == [1, 9]
