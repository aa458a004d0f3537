"""Firmware made of C text, and devices that it is loaded into."""

from __future__ import annotations

from pathlib import Path

from tilewright.targets.bm1684x.native.build import firmware
from tilewright.targets.bm1684x.native.firmware import Library, Limits
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.runtime.kernel import Kernel
from tilewright.targets.bm1684x.runtime.recording import Launched

START = '#include "tpu_kernel.h"\n'
#: A kernel that multiplies; with `race`, two of its commands race. From the fourth launch on, it returns a status.
SCALE = """
typedef struct { unsigned long long y, x; float factor; int race; } __attribute__((packed)) param_t;
static int launches;
static int scale(const void *args) {
    const param_t *p = (const param_t *)args;
    const dim4 shape = {1, 64, 8, 8};
    tpu_initialize();
    tpu_gdma_cpy_S2L(0, p->x, &shape, NULL, NULL, DT_FP32);
    if (p->race) tpu_parallel_start();
    tpu_bdc_fp_mul_C(0x4000, 0, (scalar_t){.f32 = p->factor}, &shape, NULL, NULL, DT_FP32);
    tpu_gdma_cpy_L2S(p->y, 0x4000, &shape, NULL, NULL, DT_FP32);
    if (p->race) tpu_parallel_end();
    tpu_poll();
    return launches++ > 2;
}
TPUKERNEL_FUNC_REGISTER(scale)
"""


def load(folder: Path, text: str, limits: Limits | None = None) -> Library:
    """Compile `text`, in folder/kernel.c, after an #include in line 1, and load it."""
    source, binary = folder / "kernel.c", folder / "bm1684x.bin"
    source.write_text(START + text)
    firmware([source], binary)
    return Library(binary, limits)


def kernels(library: Library) -> dict[str, Kernel]:
    return {function.name: function.kernel for function in library.functions}


def launch(library: Library, name: str, device: Device | None = None, argument: bytes = b"") -> Launched:
    return (device or Device()).launch(kernels(library)[name], argument)
