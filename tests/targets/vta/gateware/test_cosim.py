"""Cosimulation of whole programs, and that it names what differs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from tests.targets.vta.gateware.machines import SMALL as CONFIG
from tests.targets.vta.gateware.machines import overwritten
from tests.targets.vta.residuals import case_of as residual_case
from tests.targets.vta.streams import BASES, random_case
from tilewright.cli import cli, main, options
from tilewright.conform import AROUND, Wave
from tilewright.conform import cosim as cosimulate
from tilewright.hdl.mac import Operation
from tilewright.hdl.memory import TokenQueue
from tilewright.hdl.model import Compiled
from tilewright.program import file
from tilewright.program.launch_image import LaunchImage
from tilewright.program.program import Launch
from tilewright.sim.findings import RACE
from tilewright.sim.passes import RunOptions
from tilewright.targets.gateware import CosimCase
from tilewright.targets.vta.compiler.compiler import compile_graph
from tilewright.targets.vta.config import PRESETS
from tilewright.targets.vta.gateware import compute, core, cosim, moving, top
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.stream import encode, image_of
from tilewright.targets.vta.passes import run_passes
from tilewright.targets.vta.timing.model import ACC_WAIT

pytestmark = pytest.mark.gxx
DIGITS = Path(__file__).resolve().parents[4] / "examples" / "digits" / "digits.tflite"
KEYS = {
    "LOG_BLOCK": 2,
    "LOG_UOP_BUFF_SIZE": 10,
    "LOG_INP_BUFF_SIZE": 11,
    "LOG_WGT_BUFF_SIZE": 12,
    "LOG_ACC_BUFF_SIZE": 13,
    "LOG_ALU_UOP_BUFF_SIZE": 10,
    "LOG_PAR_BUFF_SIZE": 10,
}


def image(seed: int) -> LaunchImage:
    case = random_case(np.random.default_rng(seed), CONFIG, 1)
    segment = {"name": "all", "address": 0, "size": case.dram.shape[1], "kind": "inout"}
    arrays = {"insns": encode(case.records, CONFIG), "dram.all": case.dram[0]}
    return image_of(Launch("random", (), {"bases": BASES, "segments": [segment]}, arrays))


@pytest.mark.parametrize(
    ("changes", "count"), [({}, 7), pytest.param({"stages": 4, "alu": "fused"}, 2, marks=pytest.mark.slow)]
)
def test_a_network_at_a_small_block(tmp_path: Path, changes: dict[str, Any], count: int) -> None:
    program = tmp_path / "digits.twp"
    keys = KEYS | changes
    given = [argument for key, value in keys.items() for argument in ("--set", f"{key}={value}")]
    assert main(["compile", str(DIGITS), "-t", "vta", *given, "-o", str(program)]) == 0
    done = CliRunner().invoke(cli, ["cosim", str(program), "--json"], standalone_mode=False)
    launches = json.loads(done.stdout)["launches"]
    assert len(launches) == count
    assert all(case["cycles"] == case["rtl_cycles"] and not case["differences"] for case in launches)
    assert {case["mismatched_bytes"] for case in launches} == {0}


def test_random_programs_store_the_same() -> None:
    """STOREs of all shapes: one by one, on the bus, as on the machine."""
    same = 0
    for seed in range(40):
        one = image(seed)
        passes = run_passes(one.insns, CONFIG, one.dram({}, 1), one.bases, 1, RunOptions("tilewright", values=False))
        if passes.trace is None or any(finding.kind == RACE for finding in passes.findings):
            continue
        case = cosim.compare(str(seed), one, CONFIG, {}, "verilator")
        assert (case.differences, case.first_cycle) == ((), None), f"seed {seed}"
        same += 1
    assert same > 15


FIRST, AGAIN = 3, 6  # its STOREs


def test_a_bar_on_a_terminal_moves_with_the_launches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines come after the bar, and are those that a pipe gets."""
    path, moves = tmp_path / "a.twp", list[tuple[int, int]]()
    file.save(overwritten(), path)
    assert main(["cosim", str(path)]) == 0
    plain = capsys.readouterr()
    assert plain.out.splitlines() == ["overwritten: 8 instructions, 170 cycles, same", "1 launches, 0 differ"]
    assert plain.err == ""

    @contextmanager
    def bar() -> Iterator[Callable[[int, int, str], None]]:
        yield lambda done, total, name: moves.append((done, total))
        assert capsys.readouterr().out == ""

    monkeypatch.setattr(options, "progress_bar", bar)
    assert main(["cosim", str(path)]) == 0
    assert capsys.readouterr().out == plain.out
    assert moves == [(0, 1), (1, 1)]


class Hasty(TokenQueue):
    """A fault: nobody waits for tokens."""

    def elaborate(self, platform: Any) -> Any:
        m: Any = super().elaborate(platform)
        m.d.comb += self.available.eq(1)
        return m


def vcd(path: Path, name: str) -> dict[int, int]:
    """The values of a port by the times at which it changes, and at which all is written down first."""
    sign, time, values = "", 0, {}
    for line in path.read_text().splitlines():
        if line.startswith("$var") and line.split()[4] == name:
            sign = sign or line.split()[3]
        elif line.startswith("#"):
            time = int(line[1:])
        elif line.startswith("b") and line.split()[1] == sign:
            values[time] = int(line.split()[0][1:], 2)
    return values


def cosimulated(wave: Wave | None = None) -> CosimCase:
    """On a machine that is elaborated anew, with whatever faults it has now; the cache knows only the sources."""

    def anew(component: Callable[[Any], Any], config: Any, engine: str) -> Compiled:
        return Compiled(component(config), engine=engine)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Compiled, "of_machine", anew)
        (case,) = cosimulate(overwritten(), None, "cxxrtl" if wave else "verilator", wave)
    return case


@pytest.fixture(scope="module")
def sound() -> cosim.RtlRun:
    """The program on the machine without faults."""
    one = image_of(overwritten().launches[0])
    return cosim.run(one.insns, CONFIG, one.dram({}, 1), one.bases)


@pytest.mark.parametrize("shows", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_wrong_result_is_named_though_it_is_overwritten(
    shows: bool, sound: cosim.RtlRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By the STORE that writes it, in the cycle and on the signal on which it leaves; the waveform shows it there."""
    monkeypatch.setitem(core.OPERATIONS, AluOp.MIN, Operation.MAX)
    path = tmp_path / "min.vcd"
    case = cosimulated(Wave(path)) if shows else cosimulated()
    assert case.mismatched_bytes == 0
    assert case.cycles == case.rtl_cycles
    beat = int(sound.written.cycle[0])
    assert case.differences == (
        f"#{FIRST} store out[0:4]: bus__w__payload for all[{BASES['out']}] has 0x00 in cycle {beat} on the RTL, "
        "0xf7 in the simulator",
    )
    if not shows:
        return
    shown = vcd(path, "bus__w__payload")
    last = max(time for time in shown if time <= 2 * (beat + cosim.LAUNCH))
    assert shown[last] & 0xFFFFFFFF == 0x64000500  # MAX with 0
    assert min(shown) >= 2 * (beat + cosim.LAUNCH - AROUND)


@pytest.mark.slow
def test_a_stray_store_is_named(sound: cosim.RtlRun, monkeypatch: pytest.MonkeyPatch) -> None:
    address_of = moving.address_of

    def further(*arguments: Any) -> Any:
        return address_of(*arguments) + 64 * (arguments[2] == [CONFIG.out])

    monkeypatch.setattr(moving, "address_of", further)
    case = cosimulated()
    beat = int(sound.written.cycle[0])
    assert case.first_cycle == beat
    where = f"all[{BASES['out'] + 64}] in cycle {beat}"
    assert case.differences[0] == f"#{FIRST} store out[0:4]: bus__aw__payload sends a beat to {where}"
    assert case.differences[1].startswith(f"#{AGAIN} ")
    assert case.mismatched_bytes > 0


@pytest.mark.slow
def test_a_step_that_takes_too_long_is_named(sound: cosim.RtlRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "ACC_WAIT", ACC_WAIT + 2)
    case = cosimulated()
    start, end = int(sound.start[2]), int(sound.end[1])
    assert case.differences[0].startswith(f"#2 alu min 0 1x1x4 micro-ops: compute_starts in cycle {start + 2} on the ")
    second = f"#1 load acc[0:4]: compute_ends in cycle {end + 2} on the RTL, {end} in the simulator"
    assert case.differences[1] == second
    assert case.first_cycle == start  # the next starts before this one ends: acc is written behind it


@pytest.mark.slow
def test_a_step_that_does_not_wait_is_named(sound: cosim.RtlRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "TokenQueue", Hasty)
    case = cosimulated()
    first = case.differences[0]
    assert first.startswith(f"#{FIRST} store out[0:4]: store_starts in cycle {case.first_cycle} on the RTL, ")
    assert first.endswith(f"{sound.start[FIRST]} in the simulator")


def test_a_waveform_of_a_whole_launch_without_differences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, path = tmp_path / "one.twp", tmp_path / "one.vcd"
    file.save(overwritten(), program)
    assert main(["cosim", str(program), "--engine", "cxxrtl", "--wave", str(path), "--whole"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(path)
    assert len(vcd(path, "bus__w__payload")) >= 2 * 2 + 2  # two STOREs of two beats, and at first
    assert main(["cosim", str(program), "--whole"]) == 2
    assert "give a file with --wave" in capsys.readouterr().err
    assert main(["cosim", str(program), "--engine", "cxxrtl", "--wave", str(tmp_path), "--whole"]) == 2


def test_what_has_no_gateware_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "fsim.twp"
    assert main(["compile", str(DIGITS), "-t", "vta", "--set", "semantics=fsim", "-o", str(program)]) == 0
    assert main(["cosim", str(program)]) == 2
    said = capsys.readouterr().err
    assert "VTA gateware: semantics=fsim is not supported: it has no memory between compute and store; set" in said
    assert main(["rtl", "vta", "--set", "semantics=fsim", "-o", str(tmp_path)]) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {},
        *(
            pytest.param(keys, marks=pytest.mark.slow)
            for keys in ({"alu": "fused"}, {"stages": 4}, {"stages": 4, "alu": "fused"})
        ),
    ],
    ids=str,
)
def test_residuals_in_sums(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Each form of a residual: before the products, within the right shift, and shifted left."""
    for seed in (0, 1):
        keys = {key: str(value) for key, value in (KEYS | changes).items()}
        case = residual_case(seed, 5)
        program = compile_graph(case.graph, PRESETS["pynq"].with_overrides(keys), case.rounding)
        file.save(program, tmp_path / "p.twp")
        done = CliRunner().invoke(cli, ["cosim", str(tmp_path / "p.twp"), "--json"], standalone_mode=False)
        launches = json.loads(done.stdout)["launches"]
        assert launches and all(case["cycles"] == case["rtl_cycles"] and not case["differences"] for case in launches)
        assert {case["mismatched_bytes"] for case in launches} == {0}
