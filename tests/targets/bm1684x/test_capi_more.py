"""The device API by its C names: integers, comparisons, quantisation, products, tables, selections, sorting."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tests.targets.bm1684x.device_calls import BANK, CONFIG, Body, run
from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.targets.bm1684x.capi import (
    DT_FP32,
    DT_INT8,
    DT_INT16,
    DT_INT32,
    DT_UINT8,
    DT_UINT16,
    DT_UINT32,
    RM_DOWN,
    RM_HALF_TO_EVEN,
    RM_HALF_UP,
    SCALAR,
    TENSOR,
    VECTOR,
    DeviceApi,
    dim2,
    dim4,
    padding_t,
    variable_t,
)
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I16, I32, U8, U16, U32, DType
from tilewright.targets.bm1684x.values.elementwise import exponential, inverse_root, sigmoid

SHAPE = dim4(2, 6, 3, 5)
SIZES = (2, 6, 3, 5)
RNG = np.random.default_rng(5)
X, Y = (RNG.integers(-100, 100, SIZES).astype(np.int8) for _ in range(2))
NONE = (None, None, None)


def load(c: DeviceApi, *sources: int, dtype: object = DT_INT8) -> None:
    """Each source to a bank of its own."""
    for number, source in enumerate(sources):
        c.tpu_gdma_cpy_S2L(number * BANK, source, SHAPE, None, None, dtype)


def store(c: DeviceApi, y: int, bank: int, dtype: object = DT_INT8, shape: dim4 = SHAPE) -> None:
    c.tpu_gdma_cpy_L2S(y, bank * BANK, shape, None, None, dtype)


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        ("greater", X > Y),
        ("less", X < Y),
        ("equal", X == Y),
        ("greater_equal", X >= Y),
        ("less_equal", X <= Y),
        ("not_equal", X != Y),
    ],
)
def test_comparisons(name: str, holds: Array) -> None:
    def tensors(c: DeviceApi, y: int, a: int, b: int) -> None:
        load(c, a, b)
        getattr(c, f"tpu_bdc_{name}")(3 * BANK, 0, BANK, 200, SHAPE, *NONE, DT_UINT8, DT_INT8)
        store(c, y, 3, DT_UINT8)

    np.testing.assert_array_equal(run(tensors, SIZES, U8, (X, I8), (Y, I8))[0], np.where(holds, 200, 0))

    def with_constant(c: DeviceApi, y: int, a: int) -> None:
        load(c, a)
        getattr(c, f"tpu_bdc_{name}_C")(3 * BANK, 0, -7, 100, SHAPE, None, None, DT_INT8, DT_INT8)
        store(c, y, 3, DT_INT8)

    expected = getattr(np, name)(X, -7) if name != "equal" else X == -7
    np.testing.assert_array_equal(run(with_constant, SIZES, I8, (X, I8))[0], np.where(expected, 100, 0))

    def wide(c: DeviceApi, y: int, a: int) -> None:
        load(c, a)
        getattr(c, f"tpu_bdc_{name}_C")(3 * BANK, 0, -7, 300, SHAPE, None, None, DT_INT16, DT_INT8)

    with pytest.raises(MachineError, match="compares 8-bit operands, but its result has 16 bits"):
        run(wide, SIZES, I16, (X, I8))


def test_selects_take_tensors_numbers_and_channels() -> None:
    channels = np.arange(6, dtype=np.int8).reshape(1, 6, 1, 1)

    def body(c: DeviceApi, y: int, a: int, b: int, v: int) -> None:
        load(c, a, b)
        c.tpu_gdma_compact_S2L(5 * BANK, v, dim4(1, 6, 1, 1), DT_INT8)
        sources = [variable_t(TENSOR, 0), variable_t(VECTOR, 5 * BANK), variable_t(SCALAR, 3), variable_t(TENSOR, BANK)]
        c.tpu_bdc_greater_select(3 * BANK, *sources, SHAPE, DT_INT8, DT_INT8)
        c.tpu_bdc_minimum_less_select(
            4 * BANK,
            6 * BANK,
            variable_t(TENSOR, 3 * BANK),
            variable_t(SCALAR, 2),
            *sources[2:],
            SHAPE,
            DT_INT8,
            DT_INT8,
        )
        c.tpu_bdc_int_add(7 * BANK, 4 * BANK, 6 * BANK, SHAPE, *NONE, *[DT_INT8] * 3, 0, RM_DOWN, True)
        store(c, y, 7)

    first = np.where(channels < X, 3, Y)
    lowest, chosen = np.minimum(first, 2), np.where(first < 2, 3, Y)
    expected = np.clip(lowest.astype(int) + chosen, -128, 127)
    np.testing.assert_array_equal(run(body, SIZES, I8, (X, I8), (Y, I8), (channels, I8))[0], expected)


def test_integers_with_constants_and_shifts_by_channel() -> None:
    counts = np.array([-1, 0, 1, -2, -3, 2], np.int8).reshape(1, 6, 1, 1)

    def body(c: DeviceApi, y: int, a: int, b: int, shifts: int) -> None:
        load(c, a, b)
        c.tpu_gdma_compact_S2L(5 * BANK, shifts, dim4(1, 6, 1, 1), DT_INT8)
        c.tpu_bdc_int_C_sub(2 * BANK, 0, 5, SHAPE, None, None, DT_INT16, DT_INT8, DT_INT8, 1, RM_DOWN, True)
        types = (DT_INT16, DT_INT16, DT_INT8)
        c.tpu_bdc_int_pcs_add(3 * BANK, 2 * BANK, BANK, 5 * BANK, SHAPE, *NONE, *types, RM_HALF_UP, True)
        c.tpu_bdc_int8_mac_C(3 * BANK, 0, 3, SHAPE, None, None, DT_INT8, DT_INT8, 1, 1, RM_HALF_UP)
        c.tpu_bdc_arithmetic_shift_C(4 * BANK, 3 * BANK, -1, SHAPE, None, None, DT_INT16, DT_INT16, RM_DOWN)
        store(c, y, 4, DT_INT16)

    total = (5 - X.astype(int)) * 2 + Y
    right, left = np.maximum(-counts.astype(int), 0), np.maximum(counts.astype(int), 0)
    total = (total + np.where(right > 0, 1 << np.maximum(right - 1, 0), 0) >> right) << left
    expected = (2 * total + 3 * X.astype(int) + 1 >> 1) >> 1
    np.testing.assert_array_equal(run(body, SIZES, I16, (X, I8), (Y, I8), (counts, I8))[0], expected)


def test_quantisation_for_all_and_by_channel() -> None:
    wide = RNG.integers(-(10**6), 10**6, SIZES).astype(np.int32)
    table = np.stack([RNG.integers(1 << 8, 1 << 12, 6), np.full(6, -22), np.arange(6)], 1).astype(np.int32)
    reals = np.stack([np.linspace(1e-5, 1e-4, 6), np.arange(6)], 1).astype(np.float32)

    def integer(c: DeviceApi, y: int, x: int, t: int) -> None:
        load(c, x, dtype=DT_INT32)
        c.tpu_gdma_cpy_S2L(2 * BANK, t, dim4(1, 6, 1, 3), None, None, DT_INT32)
        c.tpu_bdc_int_pc_requant(BANK, 0, 2 * BANK, SHAPE, DT_INT8, DT_INT32, RM_HALF_UP)
        c.tpu_bdc_int_dequant(3 * BANK, BANK, SHAPE, 4, 100, -2, DT_INT16, DT_INT8, RM_HALF_UP)
        store(c, y, 3, DT_INT16)

    column = [table[:, i].reshape(1, 6, 1, 1).astype(np.int64) for i in range(3)]
    small = np.clip((wide * column[0] + (1 << 21) >> 22) + column[2], -128, 127)
    expected = np.clip((small - 4) * 100 + 2 >> 2, -(1 << 15), (1 << 15) - 1)
    np.testing.assert_array_equal(run(integer, SIZES, I16, (wide, I32), (table[None, :, None], I32))[0], expected)

    def real(c: DeviceApi, y: int, x: int, t: int) -> None:
        load(c, x, dtype=DT_INT32)
        c.tpu_gdma_cpy_S2L(2 * BANK, t, dim4(1, 6, 1, 2), None, None, DT_FP32)
        c.tpu_bdc_fp32_pc_requant(BANK, 0, 2 * BANK, SHAPE, DT_INT8, DT_INT32, RM_HALF_TO_EVEN, RM_HALF_TO_EVEN)
        c.tpu_bdc_fp32_dequant(3 * BANK, BANK, SHAPE, -2, 0.25, DT_INT8, RM_HALF_TO_EVEN)
        store(c, y, 3, DT_FP32)

    scale, offset = (reals[:, i].reshape(1, 6, 1, 1) for i in range(2))
    small = np.clip(np.rint(wide.astype(np.float32) * scale + offset), -128, 127)
    result = run(real, SIZES, F32, (wide, I32), (reals[None, :, None], F32))[0]
    np.testing.assert_array_equal(result, (small + 2) * 0.25)


def test_integer_convolutions_and_pools() -> None:
    x, w = RNG.integers(0, 9, (1, 3, 4, 4)).astype(np.uint8), RNG.integers(-9, 9, (5, 3, 1, 1)).astype(np.int8)
    sums = np.einsum("ihw,oi->ohw", x[0].astype(int), w[:, :, 0, 0].astype(int))
    bias = np.arange(5, dtype=np.int16).reshape(1, 5, 1, 1)
    packed = np.zeros((1, 5, 1, 64), np.int8)
    packed[0, :, 0, :3] = w[:, :, 0, 0]
    unit, none, both = dim2(1, 1), padding_t(0, 0, 0, 0), dim2(2, 2)
    window = (unit, none, unit, unit)
    shape = dim4(1, 3, 4, 4)

    def body(c: DeviceApi, y: int, xs: int, ws: int, bs: int) -> None:
        c.tpu_gdma_cpy_S2L(0, xs, shape, None, None, DT_UINT8)
        c.tpu_gdma_compact_S2L(BANK, ws, dim4(1, 5, 1, 64), DT_INT8)
        c.tpu_gdma_compact_S2L(2 * BANK, bs, dim4(1, 5, 1, 1), DT_INT16)
        types = (DT_INT8, DT_UINT8, DT_INT8, DT_INT16)
        c.tpu_bdc_int8_sym_quant_conv2d(3 * BANK, 0, BANK, 2 * BANK, shape, None, 5, *window, *types, 2, True, False)
        c.tpu_bdc_int8_max_pool2d(4 * BANK, 3 * BANK, dim4(1, 5, 4, 4), both, none, both, unit, DT_INT8, -128)
        c.tpu_bdc_int8_avg_pool2d(5 * BANK, 4 * BANK, dim4(1, 5, 2, 2), both, none, unit, unit, DT_INT8, DT_INT8, 64, 8)
        store(c, y, 5, DT_INT8, dim4(1, 5, 1, 1))

    small = np.clip((sums + bias[0] + 2) >> 2, -128, 127)
    pooled = small.reshape(5, 2, 2, 2, 2).max((2, 4))
    expected = (pooled.sum((1, 2)) * 64 + 128) >> 8
    sources = ((x, U8), (packed, I8), (bias, I16))
    np.testing.assert_array_equal(run(body, (1, 5, 1, 1), I8, *sources)[0].ravel(), expected)

    def rectified(c: DeviceApi, y: int, xs: int, ws: int, bs: int, out: DType = DT_UINT8) -> None:
        c.tpu_gdma_cpy_S2L(0, xs, shape, None, None, DT_UINT8)
        c.tpu_gdma_compact_S2L(BANK, ws, dim4(1, 5, 1, 64), DT_INT8)
        c.tpu_gdma_compact_S2L(2 * BANK, bs, dim4(1, 5, 1, 1), DT_INT16)
        types = (out, DT_UINT8, DT_INT8, DT_INT16)
        c.tpu_bdc_int8_sym_quant_conv2d(3 * BANK, 0, BANK, 2 * BANK, shape, None, 5, *window, *types, 2, True, True)
        store(c, y, 3, DT_UINT8, dim4(1, 5, 4, 4))

    result = run(rectified, (1, 5, 4, 4), U8, *sources)[0][0]
    np.testing.assert_array_equal(result, np.clip((sums + bias[0] + 2) >> 2, 0, 255))
    with pytest.raises(MachineError, match="the result of a ReLU is unsigned, not i8"):
        run(partial(rectified, out=DT_INT8), (1, 5, 4, 4), U8, *sources)

    def wide(c: DeviceApi, y: int, xs: int, ws: int, _: int) -> None:
        c.tpu_gdma_cpy_S2L(0, xs, shape, None, None, DT_UINT8)
        c.tpu_gdma_compact_S2L(BANK, ws, dim4(1, 5, 1, 64), DT_INT8)
        types = (DT_INT32, DT_UINT8, DT_INT8, DT_INT8)
        for add in (False, True):
            c.tpu_bdc_int8_asym_quant_conv2d(3 * BANK, 0, BANK, 2, 0, shape, None, 5, *window, *types, add)
        store(c, y, 3, DT_INT32, dim4(1, 5, 4, 4))

    expected = 2 * (sums - 2 * x[0].astype(int).sum(0))
    np.testing.assert_array_equal(run(wide, (1, 5, 4, 4), I32, *sources)[0][0], expected)

    def depthwise(c: DeviceApi, y: int, xs: int, _: int, __: int) -> None:
        c.tpu_gdma_cpy_S2L(0, xs, shape, None, None, DT_UINT8)
        c.tpu_bdc_set_C(BANK, 3, dim4(1, 3, 1, 64), None, DT_INT8)
        types = (DT_INT16, DT_UINT8, DT_INT8, DT_INT32, 0, False, False, RM_DOWN)
        c.tpu_bdc_int8_depthwise2d(
            2 * BANK, 0, BANK, 0, 1, shape, dim2(3, 3), padding_t(1, 1, 1, 1), unit, unit, *types
        )
        store(c, y, 2, DT_INT16, shape)

    padded = np.pad(x[0].astype(int), ((0, 0), (1, 1), (1, 1)), constant_values=1)
    expected = 3 * np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2)).sum((3, 4))
    np.testing.assert_array_equal(run(depthwise, (1, 3, 4, 4), I16, *sources)[0][0], expected)


@pytest.mark.parametrize("transposed", [False, True])
def test_products_spread_over_lanes(transposed: bool) -> None:
    left, right = RNG.integers(-9, 9, (5, 8)).astype(np.int8), RNG.integers(-9, 9, (8, 11)).astype(np.int8)
    stored = np.ascontiguousarray(left.T) if transposed else left
    bias = np.arange(11, dtype=np.int16)[None]
    name = f"tpu_bdc_int8_mm{'_L_trans' * transposed}"

    def body(c: DeviceApi, y: int, ls: int, rs: int, bs: int) -> None:
        rows, columns = stored.shape
        c.tpu_gdma_matrix_S2L(0, ls, rows, columns, 3, columns, DT_INT8)
        c.tpu_gdma_matrix_S2L(BANK, rs, 8, 11, 4, 11, DT_INT8)
        c.tpu_gdma_vector_S2L(2 * BANK, bs, 11, 4, DT_INT16)
        types = (DT_INT16, DT_INT8, DT_INT8, DT_INT16)
        getattr(c, name)(3 * BANK, 0, BANK, 2 * BANK, rows, columns, 11, 3, 4, *types, 0, 1, True, False, False)
        c.tpu_gdma_matrix_trans_L2S(y, 3 * BANK, 5, 11, 4, 5, DT_INT16)

    sources = ((stored, I8), (right, I8), (bias, I16))
    expected = (left.astype(int) @ right + bias + 1) >> 1
    np.testing.assert_array_equal(run(body, (1, 1, 11, 5), I16, *sources)[0][0, 0], expected.T)

    def adds(c: DeviceApi, _: int) -> None:
        c.tpu_bdc_int8_mm(0, 0, 0, 0, 1, 1, 1, 1, 1, *[DT_INT8] * 4, 0, 0, False, True, False)

    with pytest.raises(MachineError, match="tpu_bdc_int8_mm: result_add is not supported"):
        run(adds, (1, 1, 1, 1), I8)


def test_matrices_are_transposed_on_their_way_in() -> None:
    x = RNG.integers(-99, 99, (5, 11)).astype(np.int16)

    def body(c: DeviceApi, y: int, xs: int) -> None:
        c.tpu_gdma_matrix_trans_S2L(0, xs, 5, 11, 2, 11, DT_INT16)
        c.tpu_gdma_matrix_L2S(y, 0, 11, 5, 2, 5, DT_INT16)

    np.testing.assert_array_equal(run(body, (1, 1, 11, 5), I16, (x, I16))[0][0, 0], x.T)


def test_products_by_rows_of_integers() -> None:
    left, right = RNG.integers(-9, 9, (5, 8)).astype(np.int8), RNG.integers(-9, 9, (7, 8)).astype(np.int8)

    def body(c: DeviceApi, y: int, ls: int, rs: int) -> None:
        c.tpu_gdma_cpy_S2L(0, ls, dim4(1, 5, 1, 8), None, None, DT_INT8)
        c.tpu_gdma_cpy_S2L(BANK, rs, dim4(1, 7, 1, 8), None, None, DT_INT8)
        c.tpu_bdc_int8_zp_mm_R_trans(2 * BANK, 0, BANK, 3, 5, 8, 7, DT_INT8, DT_INT8)
        c.tpu_gdma_cpy_L2S(y, 2 * BANK, dim4(1, 5, 1, 7), None, None, DT_INT32)

    expected = left.astype(int) @ (right.astype(int) - 3).T
    np.testing.assert_array_equal(run(body, (1, 5, 1, 7), I32, (left, I8), (right, I8))[0][0, :, 0], expected)


def test_tables_series_and_sequences() -> None:
    x = RNG.normal(size=SIZES).astype(np.float32)

    def body(name: str) -> Body:
        def calls(c: DeviceApi, y: int, xs: int) -> None:
            load(c, xs, dtype=DT_FP32)
            c.tpu_bdc_load_fp32_exp_coeff(4 * BANK)
            c.tpu_bdc_load_fp32_exp_table(5 * BANK)
            if name == "taylor":
                c.tpu_bdc_fp_taylor(BANK, 0, 4 * BANK, SHAPE, 3, DT_FP32)
            elif name == "rsqrt":
                c.tpu_bdc_abs(0, 0, SHAPE, None, None, DT_FP32)
                c.tpu_bdc_fp32_rsqrt(BANK, 0, SHAPE)
            else:
                getattr(c, f"tpu_bdc_fp32_{name}")(BANK, 0, 2 * BANK, 3 * BANK, 4 * BANK, 5 * BANK, SHAPE)
            store(c, y, 1, DT_FP32)

        return calls

    half = np.float32(0.5)
    for name, expected in (
        ("exp", exponential(x)),
        ("sigmoid", sigmoid(x)),
        ("rsqrt", inverse_root(np.abs(x))),
        ("taylor", (half * x + np.float32(1)) * x + np.float32(1)),
    ):
        np.testing.assert_array_equal(run(body(name), SIZES, F32, (x, F32))[0], expected, name)


def test_lookups_and_gathers_in_lanes() -> None:
    index, table = RNG.integers(0, 16, SIZES).astype(np.uint8), np.arange(16, dtype=np.int16) * 7
    tables = np.broadcast_to(table, (1, CONFIG.lanes, 1, 16)).copy()

    def looks(c: DeviceApi, y: int, xs: int, t: int) -> None:
        load(c, xs, dtype=DT_UINT8)
        c.tpu_gdma_compact_S2L(BANK, t, dim4(1, CONFIG.lanes, 1, 16), DT_INT16)
        c.tpu_bdc_table_lookup(2 * BANK, 0, BANK, SHAPE, 16, DT_INT16, DT_UINT8)
        store(c, y, 2, DT_INT16)

    np.testing.assert_array_equal(run(looks, SIZES, I16, (index, U8), (tables, I16))[0], index.astype(int) * 7)
    with pytest.raises(MachineError, match="an index is 16, but there are 16 elements"):
        run(looks, SIZES, I16, (np.full_like(index, 16), U8), (tables, I16))

    rows, places = (
        RNG.integers(0, 99, (1, 6, 1, 9)).astype(np.uint16),
        RNG.choice([0, 3, 8, 255], (2, 6, 1, 4)).astype(np.uint8),
    )

    def gathers(c: DeviceApi, y: int, xs: int, numbers: int) -> None:
        c.tpu_gdma_cpy_S2L(0, xs, dim4(1, 6, 1, 9), None, None, DT_UINT16)
        c.tpu_gdma_cpy_S2L(BANK, numbers, dim4(2, 6, 1, 4), None, None, DT_UINT8)
        shape = dim4(2, 6, 1, 4)
        c.tpu_bdc_batch_bcast_w_gather_exception(2 * BANK, 0, BANK, 77, shape, 9, DT_UINT16, DT_UINT8, False, True)
        store(c, y, 2, DT_UINT16, shape)

    taken = np.take_along_axis(np.broadcast_to(rows, (2, 6, 1, 9)), np.minimum(places, 8).astype(int), 3)
    result = run(gathers, (2, 6, 1, 4), U16, (rows, U16), (places, U8))[0]
    np.testing.assert_array_equal(result, np.where(places < 255, taken, 77))


def test_selections_say_how_many() -> None:
    x, mask = np.arange(1, 25, dtype=np.uint16).reshape(1, 2, 3, 4), RNG.integers(0, 2, (1, 2, 3, 4)).astype(np.uint8)
    counts: list[int] = []
    shape = dim4(1, 2, 3, 4)

    def selects(c: DeviceApi, y: int, xs: int, ms: int) -> None:
        c.tpu_gdma_cpy_S2L(0, ms, shape, None, None, DT_UINT8)
        c.tpu_gdma_mask_select_S2S(y, xs, 0, True, shape, DT_UINT16, DT_UINT8)
        c.tpu_poll()
        counts.append(c.tpu_gdma_get_filter_num())

    kept = x[mask != 0]
    result = run(selects, (1, 1, 1, 24), U16, (x, U16), (mask, U8))[0].ravel()
    np.testing.assert_array_equal(result, [*kept, *[9] * (24 - kept.size)])

    def finds(c: DeviceApi, y: int, _: int, ms: int) -> None:
        c.tpu_gdma_nonzero_S2S(y, ms, shape, DT_UINT8, 100)
        c.tpu_poll()
        counts.append(c.tpu_gdma_get_filter_num())

    result = run(finds, (1, 1, 1, 24), U32, (x, U16), (mask, U8))[0].ravel()
    np.testing.assert_array_equal(result[: kept.size], np.flatnonzero(mask) + 100)
    assert counts == [kept.size, kept.size]


def test_whole_lines_and_transposes_of_channels() -> None:
    x = np.arange(24, dtype=np.uint32).reshape(2, 3, 1, 4)

    def body(c: DeviceApi, y: int, xs: int) -> None:
        c.tpu_gdma_system_cpy(y, xs, 3, DT_UINT32)
        c.tpu_gdma_compact_nc_trans_S2L(0, xs, dim4(3, 2, 1, 4), DT_UINT32)
        c.tpu_gdma_compact_L2S(y + 12, 0, dim4(3, 2, 1, 4), DT_UINT32)

    result = run(body, (1, 1, 1, 27), U32, (x, U32))[0].ravel()
    np.testing.assert_array_equal(result, [0, 1, 2, *x.transpose(1, 0, 2, 3).ravel()])
