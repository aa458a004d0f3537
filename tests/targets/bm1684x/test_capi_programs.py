"""The device API by its C names: queries of the machine, wrong arguments, and published programs."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tests.targets.bm1684x.device_calls import BANK, CONFIG, run
from tilewright.errors import MachineError
from tilewright.targets.bm1684x.capi import (
    ALIGN,
    DIV_UP,
    DT_FP32,
    DT_INT8,
    DT_INT16,
    DeviceApi,
    dim2,
    dim4,
    padding_t,
    range_t,
)
from tilewright.targets.bm1684x.capi.names import PROTOTYPES
from tilewright.targets.bm1684x.capi.tpu import FUNCTIONS
from tilewright.targets.bm1684x.host import Handle, function
from tilewright.targets.bm1684x.host.capi import (
    BM_SUCCESS,
    bm_dev_free,
    bm_dev_request,
    last_error,
    tpu_kernel_launch_async,
    tpu_kernel_launch_sync,
    tpu_kernel_sync,
)
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.runtime.kernel import Tpu, kernel
from tilewright.targets.bm1684x.values.dtypes import F32, I8

RNG = np.random.default_rng(5)


def test_what_the_machine_is_asked_about() -> None:
    @kernel
    def asks(tpu: Tpu) -> None:
        c = DeviceApi(tpu)
        assert c.tpu_npu_index(CONFIG.lane_bytes + BANK) == 1
        assert c.tpu_bank_index(CONFIG.lane_bytes + 2 * BANK + 1) == 2
        assert c.tpu_channle_num_per_npu(3, 6) == 3
        assert c.tpu_aligned_feature_size(3, 7, DT_INT16) == 64
        ranges = [c.tpu_bank_range(bank * BANK, size) for bank, size in ((0, BANK), (1, BANK + 1), (3, 1), (2, 1))]
        assert ranges[1] == range_t(1, 2)
        assert not c.tpu_any_range_overlapped(ranges, 3)
        assert c.tpu_any_range_overlapped(ranges, 4)
        assert (DIV_UP(65, 64), ALIGN(65, 64), DIV_UP(0, 64)) == (2, 128, 0)
        assert not c.tpu_is_parallel_state()
        c.tpu_parallel_start()
        assert c.tpu_is_parallel_state()
        c.tpu_parallel_end()
        assert c.tpu_is_data_type_signed_int(DT_INT8)
        assert not c.tpu_is_data_type_signed_int(DT_FP32)

    Device(CONFIG).launch(asks)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_says_what_it_takes(name: str) -> None:
    def body(c: DeviceApi, _: int) -> None:
        getattr(c, name)()

    first = PROTOTYPES[name].parameters[0].name
    with pytest.raises(MachineError, match=f"{name}: 0 arguments are given; give {first}"):
        run(body, (1, 1, 1, 1), I8)


def test_arguments_of_the_wrong_kind_are_named() -> None:
    pad, unit, shape = padding_t(0, 0, 0, 0), dim2(1, 1), dim4(1, 1, 1, 1)
    cases: list[tuple[str, tuple[object, ...], str]] = [
        ("tpu_bdc_fp_add", (0, 0, 0, None, None, None, None, DT_FP32), "shape is None; give a dim4"),
        ("tpu_bdc_fp_add", (0, 0, 0, shape, None, None, None, 5), "dtype is 5; give a DType"),
        ("tpu_gdma_cpy_S2L", (0, 0, shape, 3, None, DT_FP32), "dst_stride is 3; give a dim4"),
        (
            "tpu_bdc_fp_max_pool2d",
            (0, 0, shape, unit, unit, unit, unit, DT_FP32, 0.0),
            "padding is dim2.*give a padding_t",
        ),
        ("tpu_bdc_fp_max_pool2d", (0, 0, shape, unit, pad, shape, unit, DT_FP32, 0.0), "stride is dim4.*give a dim2"),
    ]
    for name, arguments, reason in cases:
        with pytest.raises(MachineError, match=f"{name}: {reason}"):
            run(lambda c, _, name=name, arguments=arguments: getattr(c, name)(*arguments), (1, 1, 1, 1), I8)


def test_the_source_document_line_by_line() -> None:
    """Its host program: a packed struct, a device, a launch by name with the struct's size, waiting or not."""
    seen: list[tuple[int, float]] = []

    class param_func_0_1(ctypes.Structure):
        _pack_ = 1
        _fields_ = (("number", ctypes.c_uint8), ("factor", ctypes.c_float))

    @function(param_func_0_1)
    def func_0_1(tpu: Tpu, param: param_func_0_1) -> None:
        seen.append((param.number, param.factor))

    status, handle = bm_dev_request(0)
    assert status == BM_SUCCESS
    assert isinstance(handle, Handle)
    handle.load([func_0_1])
    param = param_func_0_1(7, 0.5)
    assert ctypes.sizeof(param) == 5
    assert tpu_kernel_launch_sync(handle, "func_0_1", param, ctypes.sizeof(param)) == BM_SUCCESS, last_error()
    param.number = 8
    assert tpu_kernel_launch_async(handle, "func_0_1", param, ctypes.sizeof(param)) == BM_SUCCESS
    param.number = 9  # copied when launched
    assert tpu_kernel_sync(handle) == BM_SUCCESS
    assert bm_dev_free(handle) == BM_SUCCESS
    assert seen == [(7, 0.5), (8, 0.5)]


def test_a_published_shape_of_kernel_is_carried_over() -> None:
    """A softmax over w as the vendor's samples write it: banks by macro, rows in blocks of lanes, work tensors."""
    rows, columns = 10, 32
    x = RNG.normal(size=(1, rows, 1, columns)).astype(np.float32)

    def softmax(c: DeviceApi, output: int, source: int) -> None:
        bank = c.tpu_local_mem_size_per_npu() // c.tpu_bank_num()
        names = ("input", "work0", "work1", "result", "coeff", "table", "row")
        addr = {name: number * bank for number, name in enumerate(names)}
        c.tpu_bdc_load_fp32_exp_coeff(addr["coeff"])
        c.tpu_bdc_load_fp32_exp_table(addr["table"])
        no_pad, unit, whole = padding_t(0, 0, 0, 0), dim2(1, 1), dim2(1, columns)
        for block in range(DIV_UP(rows, c.tpu_npu_num())):
            count = min(c.tpu_npu_num(), rows - block * c.tpu_npu_num())
            skip = block * c.tpu_npu_num() * columns * c.tpu_data_type_size(DT_FP32)
            shape, stride = dim4(1, count, 1, columns), dim4()
            c.tpu_aligned_stride(stride, 0, dim4(1, count, 1, 1), DT_FP32)
            stride.h = stride.w = 0
            c.tpu_gdma_cpy_S2L(addr["input"], source + skip, shape, None, None, DT_FP32)
            c.tpu_bdc_fp_max_pool2d(addr["row"], addr["input"], shape, whole, no_pad, unit, unit, DT_FP32, -3e38)
            c.tpu_bdc_fp_sub(addr["input"], addr["input"], addr["row"], shape, None, None, stride, DT_FP32)
            work = (addr["work0"], addr["work1"], addr["coeff"], addr["table"])
            c.tpu_bdc_fp32_exp(addr["result"], addr["input"], *work, shape)
            c.tpu_bdc_fp_avg_pool2d(addr["row"], addr["result"], shape, whole, no_pad, unit, unit, DT_FP32, 1.0)
            c.tpu_bdc_fp32_reciprocal(addr["row"], addr["row"], dim4(1, count, 1, 1), None, None)
            c.tpu_bdc_fp_mul(addr["result"], addr["result"], addr["row"], shape, None, None, stride, DT_FP32)
            c.tpu_gdma_cpy_L2S(output + skip, addr["result"], shape, None, None, DT_FP32)
        c.tpu_poll()

    y, launched = run(softmax, x.shape, F32, (x, F32))
    powers = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    np.testing.assert_allclose(y, powers / powers.sum(-1, keepdims=True), rtol=1e-5)
    assert not launched.findings
