"""Programs in C++ and their twins in Python: equal instructions, bytes and cycles."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.targets.vta.native.hosts import build, run
from tests.targets.vta.native.script import Script
from tilewright.array import Array
from tilewright.program.file import load
from tilewright.program.program import Launch
from tilewright.sim.passes import RunOptions
from tilewright.targets.vta import TARGET
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.stream import image_of
from tilewright.targets.vta.runtime import Debug, Runtime

pytestmark = pytest.mark.gxx
EXAMPLES = ROOT / "examples"
MACHINES = {
    "pynq": {},
    "few micro-ops": {"LOG_UOP_BUFF_SIZE": "6"},
    "four stages": {"LOG_UOP_BUFF_SIZE": "6", "stages": "4", "LOG_ALU_UOP_BUFF_SIZE": "5"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hosts")


def machine(**keys: str) -> Config:
    return TARGET.config("pynq", keys)


def require_equal(ours: Launch, theirs: Launch) -> None:
    """Check that two launches have the same instructions and the same bytes of DRAM; names of buffers may differ."""
    assert np.array_equal(ours.arrays["insns"], theirs.arrays["insns"])
    one, other = image_of(ours), image_of(theirs)
    assert one.bases == other.bases
    for a, b in zip(one.segments, other.segments, strict=True):
        assert (a.address, a.size, a.kind) == (b.address, b.size, b.kind)
        assert np.array_equal(one.data.get(a.name, 0), other.data.get(b.name, 0))


def numbers(state: int, count: int, bits: int) -> tuple[Array, int]:
    """The numbers of blocked_gemm.cc, int64 [count], and the state after them."""
    made = []
    for _ in range(count):
        state = (state * 1664525 + 1013904223) % (1 << 32)
        made.append((state - ((state >> 31) << 32)) >> (32 - bits))
    return np.array(made), state


def twin() -> ModuleType:
    spec = importlib.util.spec_from_file_location("blocked_gemm", EXAMPLES / "blocked_gemm.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_blocked_gemm_equals_its_twin_in_python(folder: Path) -> None:
    source = EXAMPLES / "vta_c" / "blocked_gemm.cc"
    assert len(source.read_text().splitlines()) >= 100
    host = build(source, folder, machine())
    done = run(host, TILEWRIGHT_VTA_SAVE=str(folder / "gemm.twp"))
    assert done.returncode == 0, done.stderr
    python, state, matrices = twin(), 1, []
    for bits in (8, 8, 21):
        values, state = numbers(state, python.SIZE**2, bits)
        matrices.append(values.reshape(python.SIZE, -1))
    cycles = []
    for threads, launch in zip((1, 2), load(folder / "gemm.twp").launches, strict=True):
        with Runtime(machine()) as rt:
            out, result = python.blocked_gemm(rt, *matrices, threads)
            require_equal(rt.program().launches[0], launch)
        left = TARGET.launch(load(folder / "gemm.twp"), launch, {}, RunOptions(timing="tilewright")).values
        assert np.array_equal(next(iter(left.values())).reshape(out.shape).view(np.int8), out)
        assert f"{threads} virtual thread(s): 0 errors in 65536 outputs, {result.cycles} cycles" in done.stdout
        cycles.append(result.cycles)
    assert done.stderr == f"tilewright: {machine().bitstream}: {sum(cycles)} cycles in 2 runs, 0 findings\n"


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_random_calls_make_equal_instructions(folder: Path, name: str, seed: int) -> None:
    print(f"seed {seed}")
    config = machine(**MACHINES[name])
    host, saved = build(Path(__file__).with_name("player.cc"), folder, config), folder / f"{name}{seed}.twp"
    with Runtime(config) as rt:
        script = Script(rt, random.Random(seed))
        script.play(300)
        done = run(host, script="\n".join([*script.lines, "run"]), TILEWRIGHT_VTA_SAVE=str(saved))
        assert saved.exists(), done.stderr
        require_equal(rt.program().launches[0], load(saved).launches[0])


def test_debug_modes_print_and_order_as_in_python(folder: Path) -> None:
    host, saved = build(Path(__file__).with_name("player.cc"), folder, machine()), folder / "serial.twp"
    flags, printed = Debug.DUMP_INSN | Debug.DUMP_UOP | Debug.FORCE_SERIAL, list[str]()
    with Runtime(machine(), debug=flags, dump=printed.append) as rt:
        script = Script(rt, random.Random(5), [f"debug {flags + 64}"])
        script.play(40)
        result = rt.synchronize()
        done = run(host, script="\n".join([*script.lines, "run"]), TILEWRIGHT_VTA_SAVE=str(saved))
        assert done.returncode == 0, done.stderr
        require_equal(rt.program().launches[0], load(saved).launches[0])
    assert done.stdout == "".join(printed)
    assert f"tilewright: launch0: {result.cycles} cycles, " in done.stderr
