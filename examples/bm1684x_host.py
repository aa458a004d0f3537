"""A host program and a device kernel for the BM1684X by their C names: y = 2 * x + 1 over many tiles, double-buffered.

The kernel loads a tile, computes on the one before and stores the one before that in each parallel region. Half of the
tiles go to one launch, half to another, both asynchronous. On a card and on the chip values are the same, what copies
cost is not.
"""

from __future__ import annotations

import ctypes

import numpy as np

from tilewright.targets.bm1684x.capi import DT_FP32, DeviceApi, dim4
from tilewright.targets.bm1684x.host import PCIE, SOC, Platform, function
from tilewright.targets.bm1684x.host.capi import (
    BM_SUCCESS,
    bm_dev_free,
    bm_dev_request,
    bm_malloc_device_byte,
    bm_mem_get_device_addr,
    bm_memcpy_d2s,
    bm_memcpy_s2d,
    last_error,
    tpu_kernel_launch_async,
    tpu_kernel_sync,
)
from tilewright.targets.bm1684x.runtime.kernel import Tpu

TILES, TILE = 16, dim4(1, 64, 28, 28)
TILE_BYTES = 64 * 28 * 28 * 4


class Param(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("y", ctypes.c_uint64), ("x", ctypes.c_uint64), ("tiles", ctypes.c_int32))


@function(Param)
def scale_and_shift(tpu: Tpu, param: Param) -> None:
    c = DeviceApi(tpu)
    c.tpu_initialize()
    bank = c.tpu_local_mem_size_per_npu() // c.tpu_bank_num()
    source, result = (0, bank), (2 * bank, 3 * bank)
    for step in range(param.tiles + 2):
        c.tpu_parallel_start()
        if step < param.tiles:
            c.tpu_gdma_cpy_S2L(source[step % 2], param.x + step * TILE_BYTES, TILE, None, None, DT_FP32)
        if 0 < step <= param.tiles:
            last = (step - 1) % 2
            c.tpu_bdc_fp_mul_C(result[last], source[last], 2.0, TILE, None, None, DT_FP32)
            c.tpu_bdc_fp_add_C(result[last], result[last], 1.0, TILE, None, None, DT_FP32)
        if step > 1:
            c.tpu_gdma_cpy_L2S(param.y + (step - 2) * TILE_BYTES, result[step % 2], TILE, None, None, DT_FP32)
        c.tpu_parallel_end()
    c.tpu_poll()


def main(platform: Platform) -> None:
    x = np.random.default_rng(0).normal(size=(TILES, 64, 28, 28)).astype(np.float32)
    y = np.empty_like(x)
    _, handle = bm_dev_request(0, platform)
    assert handle is not None, last_error()
    handle.load([scale_and_shift])  # or tpu_kernel_load_firmware(handle, "device.fw", execute=True)
    (_, source), (_, result) = (bm_malloc_device_byte(handle, x.nbytes) for _ in range(2))
    assert source is not None and result is not None, last_error()
    bm_memcpy_s2d(handle, source, x)
    for half in range(2):
        skip = half * TILES // 2 * TILE_BYTES
        places = (bm_mem_get_device_addr(memory) + skip for memory in (result, source))
        param = Param(*places, TILES // 2)
        tpu_kernel_launch_async(handle, "scale_and_shift", param, ctypes.sizeof(param))
    assert tpu_kernel_sync(handle) == BM_SUCCESS, last_error()
    bm_memcpy_d2s(handle, y, result)
    spent = sum(copy.microseconds for copy in handle.copies)
    bm_dev_free(handle)
    exact, races = np.array_equal(y, 2 * x + 1), len(handle.findings)
    print(f"{platform.name}: exact: {exact}, races: {races}; copies {spent:.0f} us (a model)")


if __name__ == "__main__":
    main(PCIE)
    main(SOC)
