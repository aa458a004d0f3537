"""Pointers into device memory: what commands have written, and what a kernel writes for commands."""

from __future__ import annotations

import gc
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.targets.bm1684x.native.build import launch, load
from tilewright.errors import MachineError
from tilewright.targets.bm1684x.host import SOC, Handle
from tilewright.targets.bm1684x.native.firmware import Library
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.values.dtypes import F32

pytestmark = pytest.mark.gxx
TEXT = """
typedef struct { unsigned long long y, x; } __attribute__((packed)) param_t;
/* y = 10 * x + lane: the processor multiplies, and adds in local memory; then L2 lies between. */
void mixed(const void *args) {
    const param_t *p = (const param_t *)args;
    const dim4 shape = {1, 64, 1, 16};
    const system_addr_t l2 = tpu_l2_sram_get_start_addr();
    tpu_initialize();
    tpu_gdma_cpy_S2L(0, p->x, &shape, NULL, NULL, DT_FP32);
    tpu_poll();
    for (int lane = 0; lane < 64; lane++) {
        float *own = (float *)tpu_local_mem_addr(lane, 0);
        if (own != (float *)tpu_local_mem_addr_unified(lane * LOCAL_MEM_SIZE)) TPUKERNEL_ERR("two places");
        for (int i = 0; i < 16; i++) own[i] = 10 * own[i] + lane;
    }
    tpu_gdma_cpy_L2S(l2, 0, &shape, NULL, NULL, DT_FP32);
    tpu_poll();
    ((float *)tpu_l2_sram_addr(l2))[3] = -1;
    tpu_gdma_system_cpy(p->y, l2, 1024, DT_FP32);
    tpu_poll();
    ((float *)tpu_global_mem_addr(p->y))[5] = -2;
}
TPUKERNEL_FUNC_REGISTER(mixed)
void outside(const void *args) { (void)args; tpu_global_mem_addr(8); }
TPUKERNEL_FUNC_REGISTER(outside)
"""
X = np.arange(1024, dtype=np.float32).reshape(1, 64, 1, 16)
EXPECTED = 10 * X + np.arange(64, dtype=np.float32)[:, None, None]
EXPECTED.flat[3], EXPECTED.flat[5] = -1, -2


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return load(tmp_path_factory.mktemp("pointers"), TEXT)


def test_a_kernel_reads_and_writes_memory(library: Library) -> None:
    for _ in range(2):  # the second device has memories of its own at the same addresses
        device = Device()
        x, y = device.put(X, F32), device.empty(X.shape, F32)
        launched = launch(library, "mixed", device, struct.pack("<2Q", y.address, x.address))
        assert np.array_equal(device.get(y), EXPECTED)
        assert launched.findings == ()


def test_mapped_memory_stays_where_it_is(library: Library) -> None:
    with Handle(SOC) as handle:
        handle.load(library.functions)
        x, y = (handle.malloc(X.nbytes) for _ in range(2))
        view = handle.map(y).view(np.float32)
        handle.s2d(x, X)
        handle.launch_sync("mixed", struct.pack("<2Q", y.address, x.address))
        assert np.array_equal(view, EXPECTED.reshape(-1))


def test_a_pointer_outside_of_memory_is_refused(library: Library) -> None:
    with pytest.raises(MachineError, match=r"kernel.c:25, memory: no memory holds 0x8"):
        launch(library, "outside")


def files() -> int:
    """Return how many files in memory are open, in memories that are still in use."""
    gc.collect()  # the objects of a launch refer to each other
    return sum("memfd" in str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink())


def test_files_are_closed_with_their_device(library: Library) -> None:
    before = files()
    device = Device()
    x, y = device.put(X, F32), device.empty(X.shape, F32)
    launch(library, "mixed", device, struct.pack("<2Q", y.address, x.address))
    assert files() > before
    del device
    assert files() == before
