"""Random programs take as many cycles as on generated RTL, and leave the same bytes if they have no finding.

$TILEWRIGHT_GEMMINI_RTL is a folder with the Verilog of Chipyard's default Gemmini, a file for each module, such as
asmara30/Chipyard-Generated-Files at f9fb301. Verilator compiles it in three minutes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.targets.gemmini.programs import BASE, dumped, encoded, program
from tilewright.array import Array
from tilewright.errors import HazardError
from tilewright.program.launch_image import Dram, Segment
from tilewright.sim.findings import PORTABILITY
from tilewright.targets.gemmini import timing
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.loops import Expansion
from tilewright.targets.gemmini.passes import Passes
from tilewright.targets.gemmini.timing import repeat
from tilewright.targets.gemmini.timing.memo import MEMO, Memo

RTL = Path(os.environ.get("TILEWRIGHT_GEMMINI_RTL", "/nowhere"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (RTL / "Gemmini.sv").is_file(), reason="needs generated RTL: set TILEWRIGHT_GEMMINI_RTL"),
    pytest.mark.skipif(not shutil.which("verilator"), reason="needs verilator"),
]
SIZE, LATENCY = 8192, 16
#: Cycles of the RTL after which a program has stalled; random ones take a few thousand.
LIMIT = 100_000
CONFIG = Config(rtl=2023)


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the RTL with its harness as a program. Assertions are off: some random programs break them."""
    folder = tmp_path_factory.mktemp("gemmini")
    memories = sorted(RTL.glob("*top.mems.v"))
    options = ["-O3", "-Wno-fatal", "-Wno-lint", "-Wno-style", "--x-assign", "fast", "--x-initial", "fast"]
    quiet = ["-DPRINTF_COND=0", "-DASSERT_VERBOSE_COND=0", "-DSTOP_COND=0", "-CFLAGS", "-O2"]
    sources = [RTL / "Gemmini.sv", *memories, Path(__file__).with_name("harness.cc")]
    places = ["--top-module", "Gemmini", "-y", RTL, "+libext+.sv+.v", "--Mdir", folder, "-o", "harness"]
    command = ["verilator", "--cc", "--exe", "--build", "-j", "2", *options, *quiet, *places, *sources]
    subprocess.run([str(part) for part in command], check=True, capture_output=True)
    return folder / "harness"


def on_rtl(harness: Path, commands: Array, memory: Array) -> tuple[int, Array]:
    """Return the cycles of a program on the RTL, -1 if it stalls, and its memory, uint8 [bytes]."""
    source, result = harness.with_name("in"), harness.with_name("out")
    head = np.array([len(commands), BASE, len(memory), LATENCY, LIMIT], "<i8")
    source.write_bytes(head.tobytes() + commands.astype("<u8").tobytes() + memory.tobytes())
    subprocess.run([str(harness), str(source), str(result)], check=True, capture_output=True, timeout=600)
    content = result.read_bytes()
    return int.from_bytes(content[:8], "little", signed=True), np.frombuffer(content[8:], np.uint8)


@pytest.mark.parametrize("fenced", [True, False], ids=["fenced", "free"])
def test_random_programs_equal_the_rtl(harness: Path, fenced: bool) -> None:
    """With fences, memory is compared as well: without, loads to the same rows may swap (docs/gemmini.md)."""
    compared = stalled = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        lines = [(name, values) for name, values in program(rng, CONFIG, SIZE, 10 if fenced else 25)]
        if fenced:
            ends = ("mvin", "compute")
            lines = [
                command for line in lines for command in ([line, ("fence", {})] if line[0].startswith(ends) else [line])
            ]
        commands, memory = encoded(lines), rng.integers(0, 256, SIZE + dumped(CONFIG)).astype(np.uint8)
        passes = Passes(commands, CONFIG)
        findings = [finding for finding in passes.hazards.findings if finding.kind != PORTABILITY]
        try:
            ours = passes.times.cycles
        except HazardError:
            ours = -1
        cycles, bytes_ = on_rtl(harness, commands, memory)
        assert cycles == ours, f"seed {seed}"
        stalled += cycles < 0
        assert cycles > 0 or findings, f"seed {seed}"
        if fenced and not findings:
            dram = Dram([Segment("dram", BASE, memory.reshape(1, -1).copy())])
            passes.values(dram, 1)
            np.testing.assert_array_equal(dram["dram"][0], bytes_, err_msg=f"seed {seed}")
            compared += 1
    assert compared > 30 if fenced else stalled > 5


def test_repetitions_take_as_long_on_the_rtl(harness: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock copies the times of what repeats itself; the RTL has no such shortcut."""
    memos: list[Memo] = []

    def kept(expansion: Expansion, config: Config) -> Memo:
        memos.append(repeat.memo(expansion, config))
        return memos[-1]

    monkeypatch.setattr(timing, "memo", kept)
    monkeypatch.setattr(repeat, "SHORT", 8)
    monkeypatch.setattr(repeat, "LEAST", 1)
    monkeypatch.setattr(repeat, "SPAN", 4)
    memory, copied = np.zeros(SIZE + dumped(CONFIG), np.uint8), 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        commands = np.concatenate([encoded(program(rng, CONFIG, SIZE, int(rng.integers(3, 20))))] * 15)
        try:
            ours = Passes(commands, CONFIG).times.cycles
            copied += int(memos[-1].registers[MEMO.skipped]) > 0
        except HazardError:
            ours = -1
        assert on_rtl(harness, commands, memory)[0] == ours, f"seed {seed}"
    assert copied > 30
