"""Hosts in C and C++: the examples, and a message for each mistake."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.targets.vta.native.hosts import HLS_REGISTERS, build, run
from tilewright.cli import main
from tilewright.targets.vta import TARGET

pytestmark = pytest.mark.gxx
PYNQ = TARGET.config("pynq", {})
REGISTERS = ROOT / "examples" / "vta_c" / "hls_registers.cc"
CALLS = {
    0: r"VTABufferFree: 0x\w+ is no buffer of VTABufferAlloc \(or it is freed\)",
    1: r"VTASetDebugMode: 0x\w+ is no command handle; call VTATLSCommandHandle",
    2: r"VTADeviceRun: 0x\w+ is no device; call VTADeviceAlloc",
    3: "VTABufferCopy: 64 bytes from byte 4090 of to: the buffer has 4096",
    4: "VTALoadBuffer2D: offset 200 with 8 rows of 8 tiles, 8 apart, reaches to tile 264; the buffer of 4096 bytes has "
    "256 tiles of inp",
    5: "VTALoadBuffer2D: SRAM index 2039 with 64 tiles is outside inp, which has 2048",
    6: "VTALoadBuffer2D: y_pad_1 is 16, too large",
    7: "VTALoadBuffer2D: memory type 4 cannot be used here; choose VTA_MEM_ID_INP, ",
    8: "VTADepPush: there is no token queue from stage 1 to 3; the stages are 1 load, 2 compute, 3 store",
    9: "VTAUopPush: is called outside a callback",
    10: r"VTAMemFree: 0x\w+ is not the start of its allocation",
    11: r"VTAMemGetPhyAddr: 0x\w+ is in no memory of VTAMemAlloc",
    12: "VTAMemAlloc: 2147483648 bytes do not fit beside the 12288 bytes in use",
    13: "VTAMemCopyFromHost: 8193 bytes from byte 0 on do not fit an allocation of 8192 bytes",
    14: "VTABufferFree: recorded instructions use the buffer; call VTASynchronize first",
    15: "VTABufferCopy: kind_mask is 0",
    20: "VTAPushGEMMOp: its callback failed",
    21: "VTAPushGEMMOp: its kernel records no micro-op",
    22: "VTAUopPush: dst 3 was written by one of the last 2 micro-ops",
    23: "VTAUopPush: mode, reset, opcode or immediate differ in one kernel",
    24: r"VTAPushGEMMOp: its kernel leaves 1 loop\(s\) open",
    25: "VTAPushALUOp: imm is 40000, too large",
    26: "VTAUopPush: the micro-op 2048, 0, 0 has an index beyond the memories",
    27: "VTADepPush: is called by the callback that records a kernel",
    28: "VTAPushGEMMOp: its kernel has ALU micro-ops",
    29: "VTAUopLoopBegin: an instruction has at most 2 loops",
}
#: Findings of a run, and the program's status: VTADeviceRun's 1 is a program that cannot end.
RUNS = {
    40: (1, "2 instructions at 0x.*: have no FINISH, so the host would wait for ever"),
    41: (1, "launch 'launch0': deadlock: .* waits at #0 load inp"),
    42: (1, "out_of_range: #0 load .* touches DRAM bytes"),
    43: (1, "instruction 0: unknown opcode 6"),
    44: (1, "4 instructions at 0x40000000: are not inside one allocation"),
    45: (1, r"VTADeviceRun: it needs \d+ cycles, more than wait_cycles 10"),
    46: (0, r"race in launch0: #2 alu add 1 .* and #3 store out\[0:1\] both touch"),
    47: (0, "uninitialised in launch0: #0 load .* reads DRAM"),
    48: (1, "launch 'launch0': deadlock: .* waits at #0 load inp"),
    49: (1, "out_of_range: #1 load .* touches DRAM bytes"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hosts")


@pytest.fixture(scope="module")
def bad(folder: Path) -> Path:
    return build(Path(__file__).with_name("bad.c"), folder, PYNQ)


@pytest.mark.parametrize("name", ["alu", "device_run", "padding"])
def test_an_example_is_right(folder: Path, name: str) -> None:
    done = run(build(ROOT / "examples" / "vta_c" / f"{name}.cc", folder, PYNQ))
    assert done.returncode == 0, done.stdout
    assert all(" 0 errors" in line for line in done.stdout.splitlines())
    assert done.stderr.endswith(" 0 findings\n") and done.stderr.count("\n") == 1


def test_the_registers_of_the_hls_build_run_a_program(folder: Path) -> None:
    """Addresses of instructions are relative to the registers; a deadlock never sets the done bit."""
    source = str(Path(__file__).with_name("registers.cc"))
    done = run(build(REGISTERS, folder, PYNQ, source, *HLS_REGISTERS))
    assert done.returncode == 0, done.stderr
    assert "deadlock" in done.stderr
    assert done.stderr.endswith(" cycles in 2 runs, 1 finding\n")


def test_the_bare_metal_test_of_upstream(folder: Path, capsys: pytest.CaptureFixture[Any]) -> None:
    """All 14 cases pass, and `explain` prints the walk of the study notes for one virtual thread and for two."""
    checkout = os.environ.get("TILEWRIGHT_VTA_UPSTREAM")
    if not checkout:
        pytest.skip("set TILEWRIGHT_VTA_UPSTREAM to a checkout of apache/tvm-vta")
    upstream = Path(checkout, "tests", "hardware")
    sources = upstream / "metal_test" / "metal_test.cc", upstream / "common" / "test_lib.cc"
    saved = folder / "metal.twp"
    host = build(REGISTERS, folder, PYNQ, *map(str, sources), *HLS_REGISTERS, warnings=())
    done = run(host, TILEWRIGHT_VTA_SAVE=str(saved))
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("test successful!") == 14
    assert "INFO - Unit tests successful!" in done.stdout
    assert done.stderr.endswith(" cycles in 14 runs, 0 findings\n")
    assert main(["explain", str(saved), "--all"]) == 0
    lines = (ROOT / "tests" / "golden" / "blocked_gemm.walk.txt").read_text().splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("outer walk"))
    assert capsys.readouterr().out.count("\n  ".join(lines[start : start + 10])) == 4


def test_a_wrong_call_ends_the_program_with_one_message(bad: Path) -> None:
    for number, message in CALLS.items():
        done = run(bad, str(number))
        assert done.returncode == (0 if number == 12 else 1), number
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert re.match(f"tilewright: {message}", done.stderr), done.stderr


@pytest.mark.parametrize("number", RUNS)
def test_a_bad_program_is_reported_by_its_run(bad: Path, number: int) -> None:
    status, message = RUNS[number]
    done = run(bad, str(number))
    assert done.returncode == status, done.stderr
    assert re.search(message, done.stderr), done.stderr


def test_the_environment_names_timing_python_and_file(bad: Path, tmp_path: Path) -> None:
    guess = run(bad, "46", TILEWRIGHT_VTA_TIMING="guess")
    assert guess.returncode == 1
    assert guess.stderr.count("there is no timing model 'guess'") == guess.stderr.count("\n") - 1 == 1
    assert "Python does not start; set TILEWRIGHT_PYTHON" in run(bad, "46", TILEWRIGHT_PYTHON="/no/such").stderr
    assert "cannot be written" in run(bad, "46", TILEWRIGHT_VTA_SAVE=str(tmp_path / "none" / "x.twp")).stderr
    file = tmp_path / "race.twp"
    run(bad, "46", TILEWRIGHT_VTA_SAVE=str(file))
    assert main(["check", str(file)]) == 1


def test_the_command_prints_flags_of_a_machine(
    folder: Path, capsys: pytest.CaptureFixture[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(folder / "cache"))
    assert main(["config", "--vta", "-c", "ultra96", "--cflags", "--libs"]) == 0
    generated, fixed, *libs = shlex.split(capsys.readouterr().out)
    assert "for ultra96" in Path(generated.removeprefix("-I"), "vta", "hw_spec.h").read_text()
    assert Path(fixed.removeprefix("-I"), "vta", "runtime.h").is_file()
    assert [word[:2] for word in libs] == ["-L", "-W", "-l"]
    source = folder / "other.c"
    source.write_text("#include <vta/hw_spec_const.h>\n#include <vta/hw_spec.h>\n#include <vta/runtime/runtime.h>\n")
    compiles = ["cc", "-c", str(source), generated, fixed, "-o", str(folder / "other.o")]
    subprocess.run(compiles, check=True)
    done = subprocess.run([*compiles, "-DVTA_LOG_BLOCK=5"], capture_output=True, text=True, check=False)
    assert "belongs to another configuration" in done.stderr
