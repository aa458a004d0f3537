"""Kernels in C: values, races, source lines, and each way in which one fails."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.targets.bm1684x.native.build import SCALE, START, kernels, launch, load
from tilewright.cli import main
from tilewright.errors import InputError, MachineError, ProgramError
from tilewright.native.build import compiler
from tilewright.targets.bm1684x.capi import DT_FP32, DeviceApi, dim4
from tilewright.targets.bm1684x.host import Handle, HostError, Status
from tilewright.targets.bm1684x.native import firmware as process
from tilewright.targets.bm1684x.native.build import firmware
from tilewright.targets.bm1684x.native.firmware import Library, Limits
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.runtime.kernel import Tpu, kernel
from tilewright.targets.bm1684x.values.dtypes import F32, I32

pytestmark = pytest.mark.gxx
X = np.arange(64 * 64, dtype=np.float32).reshape(1, 64, 8, 8)


class Param(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("y", ctypes.c_uint64), ("x", ctypes.c_uint64), ("factor", ctypes.c_float), ("race", ctypes.c_int32))


def test_a_kernel_in_c_does_what_the_same_kernel_in_python_does(tmp_path: Path) -> None:
    @kernel
    def scale(tpu: Tpu, y: int, x: int) -> None:
        c, shape = DeviceApi(tpu), dim4(1, 64, 8, 8)
        c.tpu_initialize()
        c.tpu_gdma_cpy_S2L(0, x, shape, None, None, DT_FP32)
        c.tpu_bdc_fp_mul_C(0x4000, 0, 2.5, shape, None, None, DT_FP32)
        c.tpu_gdma_cpy_L2S(y, 0x4000, shape, None, None, DT_FP32)
        c.tpu_poll()

    library, device, second = load(tmp_path, SCALE), Device(), Device()
    x, y = device.put(X, F32), device.empty(X.shape, F32)
    launched = launch(library, "scale", device, bytes(Param(y.address, x.address, 2.5)))
    assert np.array_equal(device.get(y), X * np.float32(2.5))
    expected = second.launch(
        scale, second.empty(X.shape, F32).address + 4096 * 4, second.put(X, F32).address - 4096 * 4
    )
    assert launched.cycles == expected.cycles
    assert [(s.engine, s.needs) for s in launched.program.steps] == [
        (s.engine, s.needs) for s in expected.program.steps
    ]


def test_findings_and_traces_name_lines_in_c(tmp_path: Path) -> None:
    library, device = load(tmp_path, SCALE), Device()
    x, y = device.put(X, F32), device.empty(X.shape, F32)
    launched = launch(library, "scale", device, bytes(Param(y.address, x.address, 2, 1)))
    races = [finding.message for finding in launched.findings if finding.kind == "race"]
    assert len(races) == 1
    assert "kernel.c:11)" in races[0] and "kernel.c:12)" in races[0]
    launched.save_trace(tmp_path / "t.json")
    assert "kernel.c:11" in (tmp_path / "t.json").read_text()


def test_globals_live_on_and_a_status_is_a_failure(tmp_path: Path) -> None:
    library, device = load(tmp_path, SCALE), Device()
    x, y = device.put(X, F32), device.empty(X.shape, F32)
    argument = bytes(Param(y.address, x.address, 2))
    for _ in range(3):
        launch(library, "scale", device, argument)
    with pytest.raises(MachineError, match="scale: it returns the status 1"):
        launch(library, "scale", device, argument)


BAD = """#include <signal.h>

static int depth(volatile int n) { return n < 0 ? 0 : depth(n + 1) + n; }
#define KERNEL(name, ...) void name(const void *p) { tpu_initialize(); __VA_ARGS__; } TPUKERNEL_FUNC_REGISTER(name)
KERNEL(writes_outside, *(volatile int *)8 = 1)
KERNEL(overflows_the_stack, volatile int n = depth(0); (void)n)
KERNEL(divides, volatile int one = 1, zero = 0; volatile int x = one / zero; (void)x)
KERNEL(aborts, abort())
KERNEL(exits, exit(3))
KERNEL(is_killed, raise(SIGKILL))
KERNEL(asserts, TPUKERNEL_ASSERT(1 + 1 == 3))
KERNEL(loops, volatile int go = 1; while (go) {})
KERNEL(polls, while (1) tpu_poll())
KERNEL(gives_a_bad_pointer, tpu_bdc_set_C(0, (scalar_t){.u32 = 0}, (dim4 *)8, NULL, DT_FP32))
KERNEL(gives_no_shape, tpu_bdc_set_C(0, (scalar_t){.u32 = 0}, NULL, NULL, DT_FP32))
KERNEL(gives_a_bad_type, tpu_bdc_set_C(0, (scalar_t){.u32 = 0}, &(dim4){1, 1, 1, 1}, NULL, (data_type_t)99))
KERNEL(gives_a_bad_address, tpu_bdc_set_C(1u << 31, (scalar_t){.u32 = 0}, &(dim4){1, 1, 1, 1}, NULL, DT_FP32))
KERNEL(stays_parallel, tpu_parallel_start())
KERNEL(is_right, tpu_poll())
"""
REASONS = {
    "writes_outside": "memory that is not its own, at address 0x8",
    "overflows_the_stack": "memory that is not its own",
    "divides": "a division by zero",
    "aborts": "it called abort",
    "exits": "it ended its process, with the status 3",
    "is_killed": "ended by the signal SIGKILL",
    "asserts": r"kernel.c:12: the assertion of asserts failed: 1 \+ 1 == 3",
    "loops": "it does not end within its time limit.*raise .TILEWRIGHT_KERNEL_SECONDS",
    "polls": "kernel.c:14: it makes more than 5000 calls",
    "gives_a_bad_pointer": "memory that is not its own, at address 0x(8|10).*kernel.c:15",
    "gives_no_shape": "kernel.c:16, tpu_bdc_set_C: shape is None",
    "gives_a_bad_type": "kernel.c:17, data_type_t: there is no type 99",
    "gives_a_bad_address": "kernel.c:18, local memory: 0x80000000 is not a local address",
    "stays_parallel": "the kernel ends inside a region",
}


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return load(tmp_path_factory.mktemp("bad"), BAD, Limits(0.3, 5000))


@pytest.mark.parametrize("name", REASONS)
def test_a_bad_kernel_is_stopped_with_a_reason(bad: Library, name: str) -> None:
    with pytest.raises(MachineError, match=REASONS[name]):
        launch(bad, name)
    launch(bad, "is_right")  # the next launch is not harmed


def test_a_refused_command_ends_a_kernel_that_would_go_on(tmp_path: Path) -> None:
    library = load(
        tmp_path,
        """void asks(const void *p) {
            tpu_gdma_cpy_S2L(0, 0, &(dim4){1, 1, 1, 1}, NULL, NULL, DT_FP32);
            while (1) tpu_gdma_get_filter_num();
        }
        TPUKERNEL_FUNC_REGISTER(asks)""",
    )
    with pytest.raises(MachineError, match=r"kernel.c:3, dma_copy: tpu_initialize was not called"):
        launch(library, "asks")


ENDLESS = """
import sys, threading
from tests.targets.bm1684x.native.build import launch
from tilewright.targets.bm1684x.native.firmware import Library
from tilewright.targets.bm1684x.native.firmware import Limits
library = Library(sys.argv[1], Limits(60.0))
print(library._process._process.pid, flush=True)
launch(library, "loops")
"""


def test_a_kernel_that_loops_ends_with_its_simulator(bad: Library) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS, str(bad.path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as simulator:
        assert simulator.stdout is not None
        number = int(simulator.stdout.readline())
        time.sleep(0.5)
        simulator.kill()
    for _ in range(100):
        try:
            state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state == "Z":
            return
        time.sleep(0.1)
    pytest.fail("the process of the kernel lives on")


def test_a_selection_is_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    library, device = (
        load(
            tmp_path,
            """typedef struct { unsigned long long y, x; } param_t;
            void selects(const void *args) {
                const param_t *p = (const param_t *)args;
                tpu_initialize();
                tpu_gdma_nonzero_S2S(p->y, p->x, &(dim4){1, 1, 1, 8}, DT_INT32, 0);
                tpu_poll();
                TPUKERNEL_LOG("%u\\n", tpu_gdma_get_filter_num());
                TPUKERNEL_ASSERT(tpu_gdma_shape_limit(3) == 65535 && tpu_gdma_move_max_wstride_byte_len() == 128);
                TPUKERNEL_LOG(
                    "%u\\n", tpu_gdma_mask_select_S2S_with_ret(
                        p->y, p->x, p->x, 0, &(dim4){1, 1, 1, 8}, DT_INT32, DT_UINT32));
            }
            TPUKERNEL_FUNC_REGISTER(selects)""",
        ),
        Device(),
    )
    x = device.put(np.array([1, 0, 2, 0, 0, 3, 0, 4], np.int32), I32)
    y = device.empty((1, 1, 1, 8), I32)
    launch(library, "selects", device, y.address.to_bytes(8, "little") + x.address.to_bytes(8, "little"))
    assert capfd.readouterr().out == "4\n4\n"


def test_hosts_load_it_only_with_execute(tmp_path: Path) -> None:
    load(tmp_path, SCALE)
    path, y = tmp_path / "bm1684x.bin", np.zeros_like(X)
    with Handle() as handle:
        with pytest.raises(HostError, match=r"compiled code.*execute=True") as refused:
            handle.load(path)
        assert refused.value.status == Status.PARAM
        assert handle.load(path, execute=True) == ("scale",)
        places = [handle.malloc(X.nbytes) for _ in range(2)]
        handle.s2d(places[0], X)
        handle.launch_async("scale", Param(places[1].address, places[0].address, 4))
        handle.sync()
        handle.d2s(y, places[1])
        assert np.array_equal(y, X * 4)
        assert handle.findings == []


def test_other_libraries_are_no_firmware(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProgramError, match="it is no firmware"):
        Library(Path(np._core._multiarray_umath.__file__))  # type: ignore[attr-defined]
    damaged = tmp_path / "damaged.bin"
    damaged.write_bytes(b"\x7fELF damaged")
    with pytest.raises(ProgramError, match="it is no firmware"):
        Library(damaged)
    with pytest.raises(ProgramError, match="no function that a host can launch"):
        load(tmp_path, "void unused(void) {}")
    load(tmp_path, SCALE)
    monkeypatch.setattr(process, "fingerprint", lambda: "0" * 32)
    with pytest.raises(ProgramError, match="compiled for another version of the model; compile it again"):
        Library(tmp_path / "bm1684x.bin")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("void f(void) { tpu_bdc_unknown(1); }", r"kernel.c:2:\d+: error: implicit declaration.*tpu_bdc_unknown"),
        ("void f(dim4 s) { tpu_continuous_stride(s, &s); }", "error: incompatible type for argument 1"),
        ("void g(void); void f(void) { g(); }", "undefined reference to .g"),
        ("void f(", "error: expected"),
    ],
)
def test_wrong_sources_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        load(tmp_path, text)
    assert not (tmp_path / "bm1684x.bin").exists()


PUBLISHED = """
typedef struct { dim4 shape, stride; unsigned long long addr; data_type_t dtype; bool default_stride; } tensor_info;
static const data_type_t types[] = {DT_FP32, DT_FP16, DT_BFP16, DT_FP8E5M2, DT_FP8E4M3, DT_FP20, DT_TF32, DT_INT4};
void main(global_addr_t v1) {
    tensor_info x = {.shape = {1, 4, 1, 8}, .stride = NULL, .addr = v1, .dtype = types[0], .default_stride = true};
    tpu_gdma_cpy_S2L(0, x.addr, &x.shape, NULL, (x.default_stride ? NULL : &x.stride), x.dtype);
}
void main_kernel(const void *args) {
    tpu_initialize();
    main(*(const global_addr_t *)args);
    tpu_poll();
}
TPUKERNEL_FUNC_REGISTER(main_kernel);
"""


def test_what_published_kernels_contain_is_a_warning(tmp_path: Path) -> None:
    library, device = load(tmp_path, PUBLISHED), Device()
    x = device.put(X[:, :4, :1], F32)
    assert launch(library, "main_kernel", device, x.address.to_bytes(8, "little")).cycles > 0


def test_a_missing_compiler_or_source_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"nothing.c: is not a file"):
        firmware([tmp_path / "nothing.c"], tmp_path / "f.bin")
    with pytest.raises(InputError, match="is not a C file"):
        firmware([__file__], tmp_path / "f.bin")
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    with pytest.raises(InputError, match="CC: there is no program no-such-compiler"):
        compiler("firmware")
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match="there is no C compiler"):
        compiler("firmware")


@pytest.mark.parametrize(("name", "value"), [("SECONDS", "-1"), ("SECONDS", "nan"), ("CALLS", "many")])
def test_a_wrong_limit_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    assert Limits.from_environment() == Limits()
    monkeypatch.setenv(f"TILEWRIGHT_KERNEL_{name}", value)
    with pytest.raises(ProgramError, match=f"TILEWRIGHT_KERNEL_{name}: '{value}' is not a valid limit"):
        Limits.from_environment()


#: A correct kernel that needs about half a second and 301 calls.
SLOW = """#include <time.h>

void slow(const void *p) {
    (void)p;
    tpu_initialize();
    struct timespec now, end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += 500000000;
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - end.tv_sec) * 1000000000LL < end.tv_nsec - now.tv_nsec);
    for (int i = 0; i < 300; i++) tpu_bdc_set_C(0, (scalar_t){.u32 = 0}, &(dim4){1, 1, 1, 1}, NULL, DT_FP32);
}
TPUKERNEL_FUNC_REGISTER(slow)
"""


def test_a_limit_that_is_too_low_for_a_correct_kernel_is_named(tmp_path: Path) -> None:
    launch(load(tmp_path, SLOW, Limits(60, 301)), "slow")
    limits = {
        Limits(0.05, 301): "slow: it does not end within its time limit.*raise .TILEWRIGHT_KERNEL_SECONDS",
        Limits(60, 300): "slow: .*kernel.c:12: it makes more than 300 calls of the device API",
    }
    for limit, reason in limits.items():
        with pytest.raises(MachineError, match=reason):
            launch(load(tmp_path, SLOW, limit), "slow")


def test_the_command_compiles(tmp_path: Path, capsys: pytest.CaptureFixture[Any]) -> None:
    (tmp_path / "device_a.c").write_text(START + '#include "own.h"\nvoid helper(void) { tpu_poll(); }')
    (tmp_path / "device_b.c").write_text(
        START + "void helper(void);\nvoid f(const void *p) { (void)p; for (int i = 0; i < TIMES; i++) helper(); }\n"
        "TPUKERNEL_FUNC_REGISTER(f)"
    )
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "own.h").write_text("")
    sources, binary = [str(tmp_path / f"device_{name}.c") for name in "ab"], tmp_path / "bm1684x.bin"
    flags = ["-I", str(tmp_path / "include"), "-DTIMES=2"]
    assert main(["firmware", *sources, "-o", str(binary), *flags, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["file"] == str(binary)
    assert list(kernels(Library(binary))) == ["f"]
    assert main(["firmware", *sources, "-o", str(binary), *flags[:2]]) == 2
    assert "TIMES" in capsys.readouterr().err
    assert main(["firmware", *sources, "-o", str(binary), "-t", "vta"]) == 2
    assert "vta: takes no kernels in C" in capsys.readouterr().err
