"""The device API by its C names: what calls compute, where operands lie without strides, what is refused."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tests.targets.bm1684x.device_calls import BANK, CONFIG, Body, run
from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.sim.findings import PORTABILITY, RACE, UNINITIALISED
from tilewright.targets.bm1684x.capi import (
    DT_FP32,
    DT_INT8,
    DT_INT16,
    DT_INT32,
    DT_UINT8,
    RM_DOWN,
    RM_HALF_UP,
    DeviceApi,
    dim2,
    dim4,
    padding_t,
)
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.runtime.kernel import Tpu, kernel
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I16, I32, U32

SEED = 11


def floats(*shape: int) -> Array:
    return np.random.default_rng(SEED).normal(size=shape).astype(np.float32)


def elementwise(name: str, *between: object) -> Body:
    def body(c: DeviceApi, y: int, *sources: int) -> None:
        shape = dim4(2, 6, 3, 5)
        for number, source in enumerate(sources):
            c.tpu_gdma_cpy_S2L(number * BANK, source, shape, None, None, DT_FP32)
        strides = [None] * (len(sources) + 1)
        locals_ = [number * BANK for number in range(len(sources))]
        getattr(c, name)(4 * BANK, *locals_, *between, shape, *strides, DT_FP32)
        c.tpu_gdma_cpy_L2S(y, 4 * BANK, shape, None, None, DT_FP32)

    return body


A, B = floats(2, 6, 3, 5), floats(2, 6, 3, 5)[::-1]


@pytest.mark.parametrize(
    ("name", "between", "expected"),
    [
        ("tpu_bdc_fp_add", (), A + B),
        ("tpu_bdc_fp_sub", (), A - B),
        ("tpu_bdc_max", (), np.maximum(A, B)),
        ("tpu_bdc_fp_sub_C", (1.5,), A - np.float32(1.5)),
        ("tpu_bdc_fp_C_sub", (1.5,), np.float32(1.5) - A),
        ("tpu_bdc_fp_mul_C", (Constant(0x4040_0000, F32),), A * 3),
        ("tpu_bdc_abs", (), np.abs(A)),
        ("tpu_bdc_fp_floor", (), np.floor(A)),
        ("tpu_bdc_cpy", (), A),
    ],
)
def test_elementwise(name: str, between: tuple[object, ...], expected: Array) -> None:
    single = bool(between) or name in ("tpu_bdc_abs", "tpu_bdc_fp_floor", "tpu_bdc_cpy")
    sources = ((A, F32),) if single else ((A, F32), (B, F32))
    y, launched = run(elementwise(name, *between), A.shape, F32, *sources)
    np.testing.assert_array_equal(y, expected)
    assert not launched.findings


def test_integers_and_casts() -> None:
    rng = np.random.default_rng(SEED)
    a, b = (rng.integers(-128, 128, (1, 5, 1, 7)).astype(np.int8) for _ in range(2))

    def body(c: DeviceApi, y: int, x0: int, x1: int) -> None:
        shape = dim4(1, 5, 1, 7)
        c.tpu_gdma_cpy_S2L(0, x0, shape, None, None, DT_INT8)
        c.tpu_gdma_cpy_S2L(BANK, x1, shape, None, None, DT_INT8)
        types = (DT_INT16, DT_INT8, DT_INT8)
        c.tpu_bdc_int_mul(2 * BANK, 0, BANK, shape, None, None, None, *types, -3, RM_HALF_UP, True)
        c.tpu_bdc_cast(3 * BANK, 2 * BANK, shape, None, None, DT_INT32, DT_INT16, RM_DOWN)
        c.tpu_gdma_cpy_L2S(y, 3 * BANK, shape, None, None, DT_INT32)

    y, _ = run(body, a.shape, I32, (a, I8), (b, I8))
    np.testing.assert_array_equal(y, (a.astype(np.int64) * b + 4) >> 3)

    def inverts(c: DeviceApi, y: int, x0: int) -> None:
        shape = dim4(1, 5, 1, 7)
        c.tpu_gdma_cpy_S2L(0, x0, shape, None, None, DT_INT8)
        c.tpu_bdc_not(BANK, 0, shape, None, None, DT_INT8)
        c.tpu_bdc_or_C(BANK, BANK, 1, shape, None, None, DT_INT8)
        c.tpu_gdma_cpy_L2S(y, BANK, shape, None, None, DT_INT8)

    np.testing.assert_array_equal(run(inverts, a.shape, I8, (a, I8))[0], ~a | 1)

    def signs(c: DeviceApi, y: int, x0: int) -> None:
        shape = dim4(1, 5, 1, 7)
        c.tpu_bdc_int_add(0, BANK, BANK, shape, None, None, None, DT_UINT8, DT_INT8, DT_INT8, 0, RM_DOWN, True)

    with pytest.raises(MachineError, match=r"tiu command 0 \(test_capi.py:\d+\), int_add: "):
        run(signs, a.shape, I8, (a, I8))


def test_convolution_product_and_pool() -> None:
    x, w = floats(1, 3, 6, 6), np.ones((2, 3, 2, 2), np.float32)

    def conv(c: DeviceApi, y: int, xs: int, ws: int) -> None:
        unit, pad = dim2(1, 1), padding_t(0, 0, 0, 0)
        c.tpu_gdma_cpy_S2L(0, xs, dim4(1, 3, 6, 6), None, None, DT_FP32)
        c.tpu_gdma_compact_S2L(BANK, ws, dim4(1, 2, 3, 4), DT_FP32)
        shape = dim4(1, 3, 6, 6)
        flags = (DT_FP32, DT_FP32, False, False)
        c.tpu_bdc_fp_conv2d(2 * BANK, 0, BANK, 0, shape, None, 2, dim2(2, 2), pad, unit, unit, *flags)
        c.tpu_bdc_fp_max_pool2d(3 * BANK, 2 * BANK, dim4(1, 2, 5, 5), dim2(5, 5), pad, unit, unit, DT_FP32, -1e30)
        c.tpu_gdma_cpy_L2S(y, 3 * BANK, dim4(1, 2, 1, 1), None, None, DT_FP32)

    y, _ = run(conv, (1, 2, 1, 1), F32, (x, F32), (w, F32))
    windows = np.lib.stride_tricks.sliding_window_view(x[0].sum(0), (2, 2)).sum((2, 3))
    np.testing.assert_allclose(y.ravel(), [windows.max()] * 2, rtol=1e-5)

    left, right = floats(1, 5, 1, 8), floats(1, 7, 1, 8)

    def product(c: DeviceApi, y: int, lefts: int, rights: int) -> None:
        c.tpu_gdma_cpy_S2L(0, lefts, dim4(1, 5, 1, 8), None, None, DT_FP32)
        c.tpu_gdma_cpy_S2L(BANK, rights, dim4(1, 7, 1, 8), None, None, DT_FP32)
        c.tpu_bdc_fp_mm_R_trans(2 * BANK, 0, BANK, 5, 8, 7, DT_FP32, DT_FP32)
        c.tpu_gdma_cpy_L2S(y, 2 * BANK, dim4(1, 5, 1, 7), None, None, DT_FP32)

    y, _ = run(product, (1, 5, 1, 7), F32, (left, F32), (right, F32))
    np.testing.assert_allclose(y[0, :, 0], left[0, :, 0] @ right[0, :, 0].T, rtol=1e-4, atol=1e-5)


def test_moves() -> None:
    x, index = floats(1, 3, 6, 4), np.array([[5, 0], [2, 9], [1, 1]], np.uint32)[None, :, :, None]

    def gathers(c: DeviceApi, y: int, xs: int, numbers: int) -> None:
        shape = dim4(1, 3, 2, 4)
        c.tpu_gdma_h_gather_S2L(0, xs, numbers, False, -1.0, shape, 6, None, None, None, DT_FP32)
        c.tpu_gdma_cpy_L2S(y, 0, shape, None, None, DT_FP32)

    y, _ = run(gathers, (1, 3, 2, 4), F32, (x, F32), (index, U32))
    expected = np.stack([[x[0, ch, i] if i < 6 else np.full(4, -1) for i in index[0, ch, :, 0]] for ch in range(3)])
    np.testing.assert_array_equal(y[0], expected)

    def scatters(c: DeviceApi, y: int, xs: int, numbers: int) -> None:
        c.tpu_gdma_h_scatter_S2S(y, xs, numbers, False, dim4(1, 3, 6, 4), 2, None, None, None, DT_FP32)

    y, _ = run(scatters, (1, 3, 6, 4), F32, (x[:, :, :2], F32), (index, U32))
    expected = np.full((3, 6, 4), 9, np.float32)  # what was there
    for channel in range(3):
        for k, row in enumerate(index[0, channel, :, 0]):
            if row < 6:
                expected[channel, row] = x[0, channel, k]
    np.testing.assert_array_equal(y[0], expected)

    def turned(c: DeviceApi, y: int, xs: int) -> None:
        c.tpu_gdma_cpy_cw_trans_S2L(0, xs, dim4(1, 4, 6, 3), None, None, DT_FP32)
        c.tpu_gdma_cpy_L2S(y, 0, dim4(1, 4, 6, 3), None, None, DT_FP32)

    np.testing.assert_array_equal(run(turned, (1, 4, 6, 3), F32, (x, F32))[0], x.transpose(0, 3, 2, 1))

    def filled(c: DeviceApi, y: int) -> None:
        c.tpu_gdma_set_C_system(y, 3, dim4(1, 1, 1, 5), None, DT_INT16)

    assert run(filled, (1, 1, 1, 8), I16)[0].ravel().tolist() == [3] * 5 + [9] * 3

    def sorts(c: DeviceApi, y: int, xs: int, numbers: int) -> None:
        c.tpu_hau_sort_natural_index(xs, y, xs, 72, 4, True, DT_FP32)
        c.tpu_hau_poll()

    y, _ = run(sorts, (1, 1, 1, 4), I32, (x, F32), (index, U32))
    np.testing.assert_array_equal(y.ravel(), np.argsort(-x.ravel(), kind="stable")[:4])


def test_the_trap_of_missing_strides_is_warned_about() -> None:
    def moved(c: DeviceApi, y: int, xs: int, lane: int, given: bool) -> None:
        shape, stride = dim4(2, 4, 1, 8), dim4()
        c.tpu_aligned_stride(stride, lane, shape, DT_FP32)
        at = lane * CONFIG.lane_bytes
        c.tpu_gdma_cpy_S2L(at, xs, shape, stride if given else None, None, DT_FP32)
        c.tpu_bdc_fp_add_C(at + BANK, at, 1.0, shape, None, None, DT_FP32)
        c.tpu_gdma_cpy_L2S(y, at + BANK, shape, None, stride, DT_FP32)

    x = floats(2, 4, 1, 8)
    for lane, given in ((0, False), (1, True), (1, False)):
        wrong = lane == 1 and not given
        y, launched = run(partial(moved, lane=lane, given=given), x.shape, F32, (x, F32))
        assert np.array_equal(y, x + 1) is not wrong
        assert {finding.kind for finding in launched.findings} == ({PORTABILITY, UNINITIALISED} if wrong else set())

    def stored(c: DeviceApi, y: int, xs: int) -> None:
        shape, stride, at = dim4(2, 4, 1, 8), dim4(), CONFIG.lane_bytes
        c.tpu_aligned_stride(stride, 1, shape, DT_FP32)
        c.tpu_gdma_cpy_S2L(at, xs, shape, stride, None, DT_FP32)
        c.tpu_gdma_cpy_L2S(y, at, shape, None, None, DT_FP32)

    y, launched = run(stored, x.shape, F32, (x, F32))
    np.testing.assert_array_equal(y[0], x[0])
    assert not np.array_equal(y[1], x[1])
    assert {finding.kind for finding in launched.findings} == {PORTABILITY, UNINITIALISED}


def test_regions() -> None:
    def body(c: DeviceApi, y: int, xs: int) -> None:
        shape = dim4(1, 4, 1, 8)
        c.tpu_parallel_start()
        c.tpu_gdma_cpy_S2L(0, xs, shape, None, None, DT_FP32)
        c.tpu_bdc_fp_add_C(BANK, 0, 1.0, shape, None, None, DT_FP32)
        c.tpu_parallel_end()

    _, launched = run(body, (1, 4, 1, 8), F32, (floats(1, 4, 1, 8), F32))
    assert [finding.kind for finding in launched.findings] == [RACE]


def test_misuse_is_said() -> None:
    cases: list[tuple[Body, type[Exception], str]] = [
        (lambda c, _: c.tpu_parallel_end(), MachineError, "no region has begun"),
        (lambda c, _: c.tpu_parallel_start(), MachineError, "the kernel ends inside a region"),
        (lambda c, _: c.tpu_bdc_fly(), AttributeError, "there is no function tpu_bdc_fly; choose one of tpu_aligned"),
        (lambda c, _: c.tpu_bdc_fp_add(0, 0), MachineError, "2 arguments are given; give dst, src0, src1, shape"),
        (
            lambda c, _: c.tpu_bdc_set_C(1 << 30, 0.0, dim4(1, 1, 1, 1), None, DT_FP32),
            MachineError,
            "0x40000000 is not a local address",
        ),
    ]
    for body, kind, reason in cases:
        with pytest.raises(kind, match=reason):
            run(body, (1, 1, 1, 1), F32)

    @kernel
    def early(tpu: Tpu) -> None:
        DeviceApi(tpu).tpu_bdc_set_C(0, 0.0, dim4(1, 1, 1, 1), None, DT_FP32)

    with pytest.raises(MachineError, match="tpu_initialize was not called"):
        Device(CONFIG).launch(early)


def test_products_and_convolutions_add_to_what_is_there() -> None:
    left, right = floats(1, 5, 1, 8), floats(1, 8, 1, 7)
    x, bias = floats(1, 2, 3, 3), np.array([1, 2, 3], np.float32).reshape(1, 3, 1, 1)

    def product(c: DeviceApi, y: int, lefts: int, rights: int) -> None:
        c.tpu_gdma_cpy_S2L(0, lefts, dim4(1, 5, 1, 8), None, None, DT_FP32)
        c.tpu_gdma_cpy_S2L(BANK, rights, dim4(1, 8, 1, 7), None, None, DT_FP32)
        for add in (False, True):
            c.tpu_bdc_fp_mm(2 * BANK, 0, BANK, 5, 8, 7, DT_FP32, DT_FP32, add)
        c.tpu_gdma_cpy_L2S(y, 2 * BANK, dim4(1, 5, 1, 7), None, None, DT_FP32)

    y, _ = run(product, (1, 5, 1, 7), F32, (left, F32), (right, F32))
    np.testing.assert_allclose(y[0, :, 0], 2 * left[0, :, 0] @ right[0, :, 0], rtol=1e-4, atol=1e-5)

    def conv(c: DeviceApi, y: int, xs: int, biases: int) -> None:
        shape, unit, pad = dim4(1, 2, 3, 3), dim2(1, 1), padding_t(0, 0, 0, 0)
        c.tpu_gdma_cpy_S2L(0, xs, shape, None, None, DT_FP32)
        c.tpu_gdma_compact_S2L(3 * BANK, biases, dim4(1, 3, 1, 1), DT_FP32)
        c.tpu_bdc_set_C(BANK, 1.0, dim4(1, 3, 1, 2), None, DT_FP32)
        flags = (DT_FP32, DT_FP32, True, False)
        c.tpu_bdc_fp_conv2d(2 * BANK, 0, BANK, 3 * BANK, shape, None, 3, unit, pad, unit, unit, *flags)
        c.tpu_bdc_fp_avg_pool2d(4 * BANK, 2 * BANK, dim4(1, 3, 3, 3), dim2(3, 3), pad, unit, unit, DT_FP32, 0.5)
        c.tpu_gdma_cpy_L2S(y, 4 * BANK, dim4(1, 3, 1, 1), None, None, DT_FP32)

    y, _ = run(conv, (1, 3, 1, 1), F32, (x, F32), (bias, F32))
    expected = 0.5 * (9 * bias.ravel() + x.sum())
    np.testing.assert_allclose(y.ravel(), expected, rtol=1e-5)
