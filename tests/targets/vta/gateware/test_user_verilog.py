"""Verilog of the user's, given to `cosim`: equal if it is ours, and else the first difference is named."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.hdl.faults import faulty, selected
from tests.targets.vta.gateware.machines import SMALL as CONFIG
from tests.targets.vta.gateware.machines import overwritten
from tilewright.array import Array
from tilewright.cli import main
from tilewright.hdl.verilog import UserRtl
from tilewright.program import file
from tilewright.program.launch_image import LaunchImage
from tilewright.targets.gateware import CosimCase
from tilewright.targets.vta.gateware import cosim
from tilewright.targets.vta.gateware.top import board_files
from tilewright.targets.vta.isa.stream import image_of

pytestmark = pytest.mark.gxx
LIMIT = 3000
#: The modules with faults.
USED = ("Vta.v", "ComputeUnit.v", "Core.v", "LoadUnit.v", "StoreUnit.v", "Fetch.v", "Sequencer.v", "TensorAlu.v")
#: Upstream's shell around our own machine: its ports, and bit 1 of register 0 as the status.
SHELL = """
module VTAShell(input clock, input reset,
  output io_host_aw_ready, input io_host_aw_valid, input [15:0] io_host_aw_bits_addr,
  output io_host_w_ready, input io_host_w_valid, input [31:0] io_host_w_bits_data,
  input io_host_b_ready, output io_host_b_valid,
  output io_host_ar_ready, input io_host_ar_valid, input [15:0] io_host_ar_bits_addr,
  input io_host_r_ready, output io_host_r_valid, output [31:0] io_host_r_bits_data,
  input io_mem_aw_ready, output io_mem_aw_valid, output [31:0] io_mem_aw_bits_addr, output [7:0] io_mem_aw_bits_len,
  input io_mem_w_ready, output io_mem_w_valid, output [63:0] io_mem_w_bits_data, output io_mem_w_bits_last,
  output io_mem_b_ready, input io_mem_b_valid,
  input io_mem_ar_ready, output io_mem_ar_valid, output [31:0] io_mem_ar_bits_addr, output [7:0] io_mem_ar_bits_len,
  output [7:0] io_mem_ar_bits_id,
  input io_mem_r_valid, input [63:0] io_mem_r_bits_data, input io_mem_r_bits_last, input [7:0] io_mem_r_bits_id);
  wire [39:0] ar, aw;
  wire [72:0] w;
  wire [31:0] value;
  wire done;
  reg status = 0;
  reg [7:0] sent = 0, answered = 0;
  assign {io_mem_ar_bits_len, io_mem_ar_bits_addr} = ar;
  assign {io_mem_aw_bits_len, io_mem_aw_bits_addr} = aw;
  assign io_mem_w_bits_data = w[63:0];
  assign io_mem_w_bits_last = w[72];
  assign io_mem_ar_bits_id = sent;
  assign io_host_r_bits_data = status ? {30'd0, done, 1'b0} : value;
  always @(posedge clock) begin
    if (io_host_ar_valid && io_host_ar_ready) status <= io_host_ar_bits_addr == 0;
    if (io_mem_ar_valid && io_mem_ar_ready) sent <= sent + 1;
    if (io_mem_r_valid) begin
      assert (io_mem_r_bits_id == answered);
      if (io_mem_r_bits_last) answered <= answered + 1;
    end
  end
  VtaSystem system(.clk(clock), .rst(reset), .interrupt(done),
    .control__aw__payload(io_host_aw_bits_addr[11:0]), .control__aw__valid(io_host_aw_valid),
    .control__aw__ready(io_host_aw_ready), .control__w__payload({4'hf, io_host_w_bits_data}),
    .control__w__valid(io_host_w_valid), .control__w__ready(io_host_w_ready),
    .control__b__valid(io_host_b_valid), .control__b__ready(io_host_b_ready),
    .control__ar__payload(io_host_ar_bits_addr[11:0]), .control__ar__valid(io_host_ar_valid),
    .control__ar__ready(io_host_ar_ready), .control__r__payload(value), .control__r__valid(io_host_r_valid),
    .control__r__ready(io_host_r_ready),
    .bus__ar__payload(ar), .bus__ar__valid(io_mem_ar_valid), .bus__ar__ready(io_mem_ar_ready),
    .bus__r__payload({io_mem_r_bits_last, io_mem_r_bits_data}), .bus__r__valid(io_mem_r_valid),
    .bus__aw__payload(aw), .bus__aw__valid(io_mem_aw_valid), .bus__aw__ready(io_mem_aw_ready),
    .bus__w__payload(w), .bus__w__valid(io_mem_w_valid), .bus__w__ready(io_mem_w_ready),
    .bus__b__payload(1'b0), .bus__b__valid(io_mem_b_valid), .bus__b__ready(io_mem_b_ready));
endmodule
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the Verilog that `tilewright rtl vta` writes, upstream's shell and a program."""
    folder = tmp_path_factory.mktemp("rtl")
    for name, text in (board_files(CONFIG) | {"VTAShell.v": SHELL}).items():
        (folder / name).write_text(text)
    file.save(overwritten(), folder / "program.twp")
    return folder


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.glob("*.v"))}


@pytest.mark.parametrize("top", ["Vta", "VTAShell", *(pytest.param(t, marks=pytest.mark.slow) for t in ("vta_axi",))])
def test_what_we_emit_is_equal(top: str, written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the fixed memory, and with two random ones."""
    command = ["cosim", str(written / "program.twp"), "--verilog", str(written), "--top", top, "--json"]
    timing = ["--timing", "tilewright"] if top == "VTAShell" else []
    for seed in ([], ["--memory-seed", "3"], ["--memory-seed", "4"]):
        assert main([*command, *timing, *seed]) == 0
        (launch,) = json.loads(capsys.readouterr().out)["launches"]
        assert (launch["differences"], launch["mismatched_bytes"]) == ([], 0)
        assert (launch["rtl_cycles"] == launch["cycles"] == 170) is (not seed)


def rows(ran: cosim.RtlRun) -> list[tuple[int, int]]:
    """Each start and end with its cycle."""
    return [(int(cycle), step) for times in (ran.start, ran.end) for step, cycle in enumerate(times.tolist())]


def first_difference(sound: cosim.RtlRun, mutant: cosim.RtlRun, stores: Array) -> tuple[int, set[int]] | None:
    """The first cycle in which two runs of the RTL differ, and the steps that differ then; None if there is none.

    `stores` has the step of each beat of the sound run.
    """
    differences = list[tuple[int, int]]()
    for (right, step), (wrong, _) in zip(rows(sound), rows(mutant), strict=True):
        if right != wrong:
            differences.append((min(right, wrong) if wrong >= 0 else right, step))
    beats = min(len(sound.written.cycle), len(mutant.written.cycle))
    for beat in range(beats):
        same = all(np.array_equal(a[beat], b[beat]) for a, b in zip(sound.written[1:], mutant.written[1:], strict=True))
        if not same:
            differences.append((int(mutant.written.cycle[beat]), int(stores[beat])))
            break
    if not differences:
        return None
    first = min(cycle for cycle, _ in differences)
    return first, {step for cycle, step in differences if cycle == first}


def ran(one: LaunchImage, rtl: UserRtl, number: int) -> tuple[cosim.RtlRun, CosimCase]:
    with selected(number):
        run = cosim.run(one.insns, CONFIG, one.dram({}, 1), one.bases, rtl)
        return run, cosim.compare("mutant", one, CONFIG, {}, rtl)


def test_faults_are_named(written: Path) -> None:
    """20 seeded faults that change a byte or a cycle: the first is named by its cycle and by the instruction."""
    print("seed 1")
    one = image_of(overwritten().launches[0])
    files = texts(written)
    mutated, told = faulty({name: files[name] for name in USED}, np.random.default_rng(1), 120)
    rtl = UserRtl(files | mutated, "Vta", limit=LIMIT)
    sound, case = ran(one, rtl, 0)
    assert case.differences == ()
    stores, named = np.repeat([3, 6], 2), 0
    for number, text in enumerate(told, 1):
        mutant, case = ran(one, rtl, number)
        expected = first_difference(sound, mutant, stores)
        if expected is None and not mutant.stopped and not case.mismatched_bytes:
            assert case.differences == (), text
            continue
        assert case.first_cycle == (expected[0] if expected else mutant.cycles), text
        steps = {f"#{step}" for step in expected[1]} if expected else {"the"}
        assert case.differences[0].split()[0] in steps, (text, case.differences)
        named += 1
        if named == 20:
            break
    assert named == 20


@pytest.mark.slow
def test_faults_behind_a_shell_are_named_by_what_the_bus_shows(written: Path) -> None:
    """By the STORE whose bytes or last beat differ first, or by the LOAD or fetch that reads elsewhere before that."""
    print("seed 2")
    one, files = image_of(overwritten().launches[0]), texts(written)
    mutated, told = faulty({name: files[name] for name in USED}, np.random.default_rng(2), 120)
    rtl = UserRtl(files | mutated, "VTAShell", timing="tilewright", limit=LIMIT)
    sound, case = ran(one, rtl, 0)
    assert case.differences == ()
    named = 0
    for number, text in enumerate(told, 1):
        mutant, case = ran(one, rtl, number)
        beats = min(len(sound.written.cycle), len(mutant.written.cycle))
        data = [
            int(mutant.written.cycle[beat])
            for beat in range(beats)
            if not all(
                np.array_equal(a[beat], b[beat]) for a, b in zip(sound.written[1:], mutant.written[1:], strict=True)
            )
        ]
        ends = [(int(sound.written.cycle[beat]), int(mutant.written.cycle[beat])) for beat in (1, 3) if beat < beats]
        wrong = sorted(data + [min(pair) for pair in ends if pair[0] != pair[1]])
        same = not wrong and beats == len(sound.written.cycle) == len(mutant.written.cycle)
        if same and sound.cycles == mutant.cycles and np.array_equal(sound.reads[:, 1:], mutant.reads[:, 1:]):
            assert case.differences == (), text
            continue
        assert case.first_cycle is not None and case.differences[0].startswith(("#", "fetch:", "the RTL")), text
        assert not wrong or case.first_cycle <= wrong[0], (text, case.differences)
        named += 1
    assert named >= 20


#: A file's name and text (None: it is missing), the top module, and a part of the message.
REFUSED = [
    ("none.v", None, "VTAShell", "none.v: cannot be read"),
    ("notes.txt", "hello", "VTAShell", "is not a Verilog file; give files that end in .v or .sv"),
    ("notes.v", "hello", "VTAShell", "the files have no module VTAShell"),
    ("broken.v", "module VTAShell(input clock); assign = 1; endmodule", "VTAShell", "broken.v:1:38: syntax error"),
    ("other.v", "module Other(input clock); endmodule", "Vta", "no module Vta; they have Other"),
    ("alien.v", "module Alien(input a, output b); endmodule", "Alien", "has none of the ports of Vta or VtaSystem or"),
    (
        *("narrow.v", SHELL.replace("[63:0] io_mem_r_bits_data", "[31:0] io_mem_r_bits_data"), "VTAShell"),
        "module VTAShell, as VTAShell: has 32 bits in the port io_mem_r_bits_data; io_mem_r_bits_data has 64 bits",
    ),
    (
        *("few.v", SHELL.replace(", output io_mem_w_bits_last", ""), "VTAShell"),
        "module VTAShell, as VTAShell: has no port io_mem_w_bits_last; io_mem_w_bits_last has 1 bits",
    ),
]


@pytest.mark.parametrize(("name", "text", "top", "said"), REFUSED, ids=[name for name, *_ in REFUSED])
def test_what_is_no_machine_is_refused(
    name: str, text: str | None, top: str, said: str, written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    if "System" in str(text):
        (written / "VTAShell.v").rename(tmp_path / "hidden")
    command = ["cosim", str(written / "program.twp"), "--verilog", str(path), "--top", top]
    assert main([*command, *(["--verilog", str(written)] if "System" in str(text) else [])]) == 2
    assert said in capsys.readouterr().err
    if "System" in str(text):
        (tmp_path / "hidden").rename(written / "VTAShell.v")


def test_options_that_do_not_fit_are_refused(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = str(written / "program.twp")
    for arguments, said in (
        (["--top", "Vta"], "--top: needs --verilog"),
        (["--memory-seed", "1"], "--memory-seed: needs --verilog"),
        (["--timing", "hls"], "--timing: needs --verilog"),
        (["--verilog", str(written)], "add --top NAME"),
        (["--verilog", str(written), "--top", "Vta", "--engine", "cxxrtl"], "--engine: is for our own gateware"),
    ):
        assert main(["cosim", program, *arguments]) == 2
        assert said in capsys.readouterr().err


def test_a_run_that_hangs_names_the_last_instruction(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["cosim", str(written / "program.twp"), "--verilog", str(written), "--max-cycles", "100", "--top"]
    for top, last in (("Vta", "instruction that ended is #2 alu"), ("VTAShell", "STORE that was written is #3 store")):
        assert main([*command, top]) == 1
        assert f"the RTL is not done after 100 cycles; the last {last.replace(' is ', ': ')}" in capsys.readouterr().out


@pytest.mark.slow
def test_an_assertion_stops_the_run_and_the_waveform_shows_the_difference(
    written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = texts(written)
    check = '  always @(posedge clk) if (store_starts) assert (0) else $error("no STORE, please");\nendmodule'
    files["Vta.v"] = files["Vta.v"].replace("endmodule", check)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    wave = tmp_path / "a.vcd"
    command = ["cosim", str(written / "program.twp"), "--verilog", str(tmp_path), "--top", "Vta", "--wave", str(wave)]
    assert main(command) == 1
    said = capsys.readouterr().out.splitlines()[1]
    assert re.search(r"the RTL stopped in cycle \d+: .*Vta\.v:\d+: Assertion failed in .*no STORE, please", said), said
    times = [int(line[1:]) for line in wave.read_text().splitlines() if line.startswith("#")]
    assert max(times) in (2 * 80 + 2, 2 * 80 + 3)  # cycle 0 is at time 2; STORE starts in cycle 80
    for name in ("store_starts", "bus__w__payload"):
        assert f" {name} " in wave.read_text()


@pytest.mark.slow
def test_run_compares_a_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After the report, and in JSON under a key of its own."""
    keys = {"LOG_BLOCK": 2, "LOG_INP_BUFF_SIZE": 11, "LOG_WGT_BUFF_SIZE": 12, "LOG_ACC_BUFF_SIZE": 13}
    machine = [argument for key, value in keys.items() for argument in ("--set", f"{key}={value}")]
    assert main(["rtl", "vta", *machine, "-o", str(tmp_path)]) == 0
    capsys.readouterr()
    digits = str(ROOT / "examples" / "digits" / "digits.tflite")
    command = ["run", digits, "-t", "vta", *machine, "--verilog", str(tmp_path), "--top", "VtaSystem"]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert said.index("reference     all outputs are equal") < said.index("7 launches, 0 differ")
    assert main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["verilog"]
    assert [case["differences"] for case in told["launches"]] == [[]] * 7
    assert main(["run", digits, "-t", "vta", "--top", "Vta"]) == 2
    assert "--top: needs --verilog" in capsys.readouterr().err
    assert main(["run", digits, "-t", "gemmini", "--verilog", str(tmp_path), "--top", "Vta"]) == 2
    assert "gemmini: has no gateware to compare" in capsys.readouterr().err
