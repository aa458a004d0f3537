"""Functions of the device API that are sequences of commands, tables, and operations on pairs of vectors."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from docs.device_api import PAGE, page
from tests.targets.bm1684x.device_calls import BANK, run
from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.targets.bm1684x.capi import DT_BFP16, DT_FP16, DT_FP32, DT_INT32, DeviceApi, dim2, dim4, padding_t
from tilewright.targets.bm1684x.values.dtypes import BF16, F32, I32
from tilewright.targets.bm1684x.values.elementwise import float_binary
from tilewright.targets.bm1684x.values.memory import OFFSETS, tables

X = np.linspace(-3, 3, 4 * 20, dtype=np.float32).reshape(1, 4, 1, 20)
SHAPE = dim4(1, 4, 1, 20)


def applied(name: str, *tables_: str, work: int = 1, more: tuple[object, ...] = (), x: Array = X) -> Array:
    """Apply a function of f32 to x. `tables_` are the names of its tables."""

    def body(c: DeviceApi, y: int, xs: int) -> None:
        places = [number * BANK for number in range(3 + work + len(tables_))]
        c.tpu_gdma_cpy_S2L(places[0], xs, SHAPE, None, None, DT_FP32)
        for place, table in zip(places[2 + work :], tables_, strict=False):
            getattr(c, f"tpu_bdc_load_fp32_{table}")(place)
        getattr(c, name)(places[1], places[0], *places[2 : 2 + work + len(tables_)], *more, SHAPE)
        c.tpu_gdma_cpy_L2S(y, places[1], SHAPE, None, None, DT_FP32)

    y, launched = run(body, x.shape, F32, (x, F32))
    assert not launched.findings
    return y


@pytest.mark.parametrize(
    ("name", "tables_", "work", "expected"),
    [
        ("tpu_bdc_fp32_sin", ("sin_coeff",), 1, np.sin(X)),
        ("tpu_bdc_fp32_cos", ("cos_coeff",), 1, np.cos(X)),
        ("tpu_bdc_fp32_tanh", ("exp_coeff", "exp_table"), 2, np.tanh(X)),
        ("tpu_bdc_fp32_silu", ("exp_coeff", "exp_table"), 2, X / (1 + np.exp(-X))),
        ("tpu_bdc_fp32_erf", ("exp_coeff", "erf_coeff", "exp_table"), 3, np.vectorize(math.erf)(X)),
    ],
)
def test_functions_are_close_to_exact_ones(name: str, tables_: tuple[str, ...], work: int, expected: Array) -> None:
    np.testing.assert_allclose(applied(name, *tables_, work=work), expected, rtol=2e-5, atol=2e-6)


def test_logarithms_and_roots() -> None:
    x = np.abs(X) + np.float32(0.1)
    np.testing.assert_allclose(applied("tpu_bdc_fp32_log", "log_coeff", x=x), np.log(x), rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(applied("tpu_bdc_fp32_sqrt", work=0, x=x), np.sqrt(x), rtol=1e-5)


def test_the_tables_of_static_memory_do_not_overlap() -> None:
    ends = sorted((offset, offset + values.nbytes) for offset, values in tables().items())
    assert all(end <= begin for (_, end), (begin, _) in pairwise(ends))
    sines = tables()[OFFSETS["sin", F32][0]]
    assert np.polynomial.polynomial.polyval(np.float64(1 / 16), sines) * 0.25 == pytest.approx(1.0, rel=1e-6)


def test_all_pairs_of_vectors() -> None:
    def body(c: DeviceApi, y: int) -> None:
        c.tpu_bdc_set_C(0, 2, dim4(1, 4, 1, 16), None, DT_INT32)
        c.tpu_bdc_set_C(BANK, 3, dim4(1, 4, 1, 16), None, DT_INT32)
        c.tpu_bdc_int_vc_mul(2 * BANK, 0, BANK, 5, 7, 3, 4, DT_INT32, DT_INT32, DT_INT32, False)
        c.tpu_gdma_matrix_L2S(y, 2 * BANK, 5, 7, 4, 7, DT_INT32)

    np.testing.assert_array_equal(run(body, (1, 1, 5, 7), I32)[0], np.full((1, 1, 5, 7), 6))


def test_a_transposed_convolution_spreads_its_input() -> None:
    x, w = np.array([[1, 2], [3, 4]], np.float32).reshape(1, 1, 2, 2), np.array([1, 10], np.float32)

    def body(c: DeviceApi, y: int, xs: int, ws: int) -> None:
        c.tpu_gdma_cpy_S2L(0, xs, dim4(1, 1, 2, 2), None, None, DT_FP32)
        c.tpu_gdma_compact_S2L(BANK, ws, dim4(1, 1, 1, 2), DT_FP32)
        shape, kernel, insert, pad, unit = dim4(1, 1, 2, 2), dim2(1, 2), dim2(0, 1), padding_t(0, 0, 1, 1), dim2(1, 1)
        flags = (DT_FP32, DT_FP32, False, False)
        c.tpu_bdc_fp_conv2d_for_deconv2d(2 * BANK, 0, BANK, 0, shape, None, 1, kernel, insert, pad, unit, *flags)
        c.tpu_gdma_cpy_L2S(y, 2 * BANK, dim4(1, 1, 2, 4), None, None, DT_FP32)

    y, _ = run(body, (1, 1, 2, 4), F32, (x, F32), (w.reshape(1, 1, 1, 2), F32))
    np.testing.assert_array_equal(y[0, 0], [[1, 10, 2, 20], [3, 30, 4, 40]])


def test_types_and_chips_are_refused() -> None:
    def wrong(c: DeviceApi, y: int) -> None:
        c.tpu_bdc_fp_sqrt(0, BANK, SHAPE, DT_FP16)

    with pytest.raises(MachineError, match="no such function for f16; give f32"):
        run(wrong, (1, 1, 1, 1), F32)

    def later(c: DeviceApi, y: int) -> None:
        c.tpu_gdma_reverse_S2L(0, y, SHAPE, None, None, 3, DT_BFP16)

    with pytest.raises(MachineError, match="the BM1684X does not have this function"):
        run(later, (1, 1, 1, 1), F32)


def test_bf16_rounds_before_it_flushes() -> None:
    near = float_binary("mul", np.array([129], np.uint16), np.array([0x3F7E], np.uint16), BF16)
    below = float_binary("mul", np.array([128], np.uint16), np.array([0x3F7F], np.uint16), BF16)
    assert near.tolist() == [128]
    assert below.tolist() == [0]


def test_the_page_of_the_device_api_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m docs.device_api"
