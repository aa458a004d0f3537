"""Kernels in C beside the same kernels in Python: host time of a matrix product, and of one recorded call.

python bench/bm1684x_c.py
"""

from __future__ import annotations

import importlib
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tilewright.targets.bm1684x.native.build import firmware
from tilewright.targets.bm1684x.native.firmware import RECORDS, Library, Limits, Process
from tilewright.targets.bm1684x.native.replay import HEAD, SOURCE, readers
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.values.dtypes import I8

ROOT = Path(__file__).resolve().parent.parent
CALLS = 100_000
SCALE = f"""
#include "tpu_kernel.h"
void calls(const void *args) {{
    const dim4 shape = {{1, 64, 8, 8}};
    (void)args;
    tpu_initialize();
    for (int i = 0; i < {CALLS}; i++)
        tpu_bdc_fp_mul_C(0x4000, 0, (scalar_t){{.f32 = 2}}, &shape, NULL, NULL, DT_FP32);
}}
TPUKERNEL_FUNC_REGISTER(calls)
"""


def seconds(run: Callable[[], object], times: int = 3) -> float:
    """Return the least time of some runs."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return min(found)


def decoded(data: bytes) -> int:
    """Decode recorded calls without issuing them, and return how many there are."""
    known, at, count = readers(), 0, 0
    while at < len(data):
        number, _, line = HEAD.unpack_from(data, at)
        at += HEAD.size
        if number == SOURCE:
            at += line
        elif number < len(known):
            known[number].arguments(data, at)
            at += known[number].size
            count += 1
    return count


def matmul(library: Library) -> tuple[float, float]:
    """Return the seconds of a 1024 x 1024 x 1024 product: the kernel in C, and the one in Python."""
    sys.path.insert(0, str(ROOT / "examples"))
    python = importlib.import_module("bm1684x_matmul").matmul
    rng = np.random.default_rng(0)
    left, right = (rng.integers(-128, 128, (1, 1024, 1, 1024)).astype(np.int8) for _ in range(2))
    device = Device()
    tensors = [device.empty(left.shape, I8), device.put(left, I8), device.put(right, I8)]
    argument = struct.pack("<3Q2i", *(tensor.address for tensor in tensors), 1 << 20, -37)
    kernel = library.functions[0].kernel
    launches = (lambda: device.launch(kernel, argument), lambda: device.launch(python, *tensors, 1 << 20, -37))
    times = [[seconds(launch, 1) for launch in launches] for _ in range(5)]  # in turns: both meet the same load
    return min(c for c, _ in times), min(of_python for _, of_python in times)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        made, source = Path(folder, "bm1684x.bin"), Path(folder, "calls.c")
        print(f"compile: {seconds(lambda: firmware([ROOT / 'examples/bm1684x_c/matmul.c'], made)):.2f} s")
        print(f"load: {1000 * seconds(lambda: Library(made)):.0f} ms")
        c, python = matmul(Library(made))
        print(f"1024^3 product: {c:.2f} s in C, {python:.2f} s in Python, ratio {c / python:.2f}")
        source.write_text(SCALE)
        firmware([source], made)
        process, frames = Process(made, Limits()), list[bytes]()

        def record() -> None:
            frames[:] = [data for kind, data in process.launch("calls", b"", Device().config) if kind == RECORDS]

        recording = seconds(record)
        decoding = seconds(lambda: [decoded(data) for data in frames])
        each = [1e6 * spent / CALLS for spent in (recording, decoding)]
        print(f"one call: {each[0]:.2f} us to record and send, {each[1]:.2f} us to decode")


if __name__ == "__main__":
    main()
