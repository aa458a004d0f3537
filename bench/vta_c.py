"""VTA's runtime in C beside the one in Python: CPU time of a recorded call, and elapsed time of a short run.

python bench/vta_c.py
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

from tilewright.targets.vta import TARGET
from tilewright.targets.vta.native.hostlib import library
from tilewright.targets.vta.runtime import Memory, Runtime, UopRecorder

ROUNDS, RUNS, CALLS = 20_000, 20, 5
HOST = f"""
#include <stdio.h>
#include <time.h>
#include <vta/hw_spec.h>
#include <vta/runtime.h>
static void *kernels, *cmd, *buffer;
static int once(void *number) {{ return VTAUopPush(0, 0, *(int *)number, 0, 0, 0, 0, 0), 0; }}
static void record(int kernel) {{
    VTADepPop(cmd, 2, 1);
    VTALoadBuffer2D(cmd, buffer, 0, 4, 1, 4, 0, 0, 0, 0, 0, VTA_MEM_ID_INP);
    VTADepPush(cmd, 1, 2);
    VTADepPop(cmd, 1, 2);
    VTAPushGEMMOp(&kernels, once, &kernel, sizeof kernel);
}}
static double seconds(clockid_t clock) {{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}}
int main(void) {{
    buffer = VTABufferAlloc(64);
    cmd = VTATLSCommandHandle();
    double start = seconds(CLOCK_MONOTONIC);
    VTALoadBuffer2D(cmd, buffer, 0, 1, 1, 1, 0, 0, 0, 0, 0, VTA_MEM_ID_INP);
    VTASynchronize(cmd, ~0u);
    printf("%g\\n", seconds(CLOCK_MONOTONIC) - start);
    start = seconds(CLOCK_MONOTONIC);
    for (int i = 0; i < {RUNS}; i++) {{
        VTALoadBuffer2D(cmd, buffer, 0, 1, 1, 1, 0, 0, 0, 0, 0, VTA_MEM_ID_INP);
        VTASynchronize(cmd, ~0u);
    }}
    printf("%g\\n", (seconds(CLOCK_MONOTONIC) - start) / {RUNS});
    start = seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < {ROUNDS}; i++) record(i % 8);
    printf("%g\\n", (seconds(CLOCK_PROCESS_CPUTIME_ID) - start) / {ROUNDS * CALLS});
    return 0;
}}
"""


def in_c(folder: Path) -> list[float]:
    """Return the seconds of the first run, of a later one, and of a call."""
    source, host = folder / "host.c", folder / "host"
    source.write_text(HOST)
    flags = library(TARGET.config("pynq", {})).flags()
    subprocess.run(["cc", "-O1", str(source), *flags["cflags"], *flags["libs"], "-o", str(host)], check=True)
    done = subprocess.run([str(host)], capture_output=True, text=True, check=True)
    return list(map(float, done.stdout.split()))


def once(recorder: UopRecorder, number: int) -> None:
    recorder.uop_push(number, 0)


def in_python() -> tuple[float, float]:
    """Return the seconds of a run and of a call."""
    with Runtime("pynq") as rt:
        buffer = rt.alloc(64)
        rt.load_buffer_2d(buffer, 0, 1, 1, 1, 0, Memory.INP)
        rt.synchronize()
        start = time.perf_counter()
        for _ in range(RUNS):
            rt.load_buffer_2d(buffer, 0, 1, 1, 1, 0, Memory.INP)
            rt.synchronize()
        run, start = (time.perf_counter() - start) / RUNS, time.process_time()
        for number in range(ROUNDS):
            rt.dep_pop("compute", "load")
            rt.load_buffer_2d(buffer, 0, 4, 1, 4, 0, Memory.INP)
            rt.dep_push("load", "compute")
            rt.dep_pop("load", "compute")
            rt.push_gemm(once, number % 8)
        return run, (time.process_time() - start) / (ROUNDS * CALLS)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TILEWRIGHT_CACHE_DIR"] = folder
        first, run, call = in_c(Path(folder))
    python_run, python_call = in_python()
    print(f"first run, with the start of the simulator: {first:.1f} s in C")
    print(f"a run of 5 instructions: {1e3 * run:.1f} ms in C, {1e3 * python_run:.1f} ms in Python")
    print(f"a recorded call: {1e6 * call:.2f} us in C, {1e6 * python_call:.1f} us in Python")


if __name__ == "__main__":
    main()
