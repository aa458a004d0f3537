"""`--initial-states`: answers that depend on registers and memories without initial value are findings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.targets.cfu.asm import A0, A1, NOP, addi, custom, halt, image
from tests.targets.cfu.elf_files import file_of
from tests.targets.cfu.own import DIGITS, DOT, PORTS
from tests.targets.cfu.running import run
from tilewright.cli import main
from tilewright.targets.cfu.config import RAM_BASE, Config
from tilewright.targets.cfu.gateware.top import board_files
from tilewright.targets.cfu.runtime.core import Run
from tilewright.targets.cfu.runtime.rtl import maker

pytestmark = pytest.mark.gxx
#: Command 1 writes register a or element b of a memory, 2 reads it. 3 takes as many cycles as a register says; 4 never
#: answers if another one is not 0; 5 has no undefined value.
BODY = """
    reg [31:0] r, m [0:15]; reg [2:0] late; reg stuck; reg [3:0] left = 0; reg busy = 0; reg [31:0] result;
    wire [6:0] f = cmd_payload_function_id[9:3];
    assign cmd_ready = ~busy; assign rsp_valid = busy & left == 0; assign rsp_payload_outputs_0 = result;
    always @(posedge clk) if (reset) busy <= 0; else if (rsp_valid) busy <= 0;
      else if (busy) left <= f == 4 & stuck ? 1 : left - 1;
      else if (cmd_valid) begin
        busy <= 1; left <= f == 3 ? late : f == 4 ? 1 : 0;
        result <= f == 2 ? r + m[cmd_payload_inputs_1[3:0]] : 0;
        if (f == 1) begin r <= cmd_payload_inputs_0; m[cmd_payload_inputs_1[3:0]] <= 7; end
        if (f == 4) stuck <= stuck;
      end
    endmodule"""
WRITE, READ, LATE, STUCK, FINE = ((number, A0, A1, A0) for number in (1, 2, 3, 4, 5))


@pytest.fixture(scope="module")
def verilog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "own.sv"
    path.write_text(PORTS + BODY)
    return path


def tried(verilog: Path, *commands: tuple[int, int, int, int], states: int = 4) -> Run:
    words = [NOP, *(custom(*command) for command in commands), *halt(0)]
    return run(image(words), Config(), cfu=maker([verilog], states)())


def test_a_register_that_is_written_before_it_is_read(verilog: Path) -> None:
    assert tried(verilog, FINE, WRITE, READ, FINE).undefined is None
    assert tried(verilog, READ, states=0).undefined is None  # not asked for


def test_the_first_answer_that_depends_on_one_is_named(verilog: Path) -> None:
    alone, found = (
        tried(verilog, FINE, READ, READ, WRITE, READ, states=0),
        tried(verilog, FINE, READ, READ, WRITE, READ),
    )
    assert found.cycles == alone.cycles and (found.machine.regs == alone.machine.regs).all()
    one = found.undefined
    assert one is not None and one.pc == RAM_BASE + 8
    assert one.answer == 0 != one.other and one.ready == one.other_ready == one.cycle + 1 and one.seed == 1
    assert "funct7 2 and funct3 0" in one.message and "answers 0 in cycle" in one.message


def test_an_answer_that_is_thrown_away_is_none(verilog: Path) -> None:
    assert tried(verilog, (2, 0, A1, A0), WRITE, READ).undefined is None


def test_an_answer_in_another_cycle_is_one(verilog: Path) -> None:
    one = tried(verilog, (3, 0, A0, A0)).undefined
    assert one is not None and one.other_ready is not None and one.other_ready > one.ready
    assert f"in cycle {one.other_ready:,}" in one.message


def test_a_command_that_is_not_answered_is_one(verilog: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.targets.cfu.runtime.rtl.LIMIT", 100)
    one = tried(verilog, STUCK).undefined
    assert one is not None and one.other_ready is None and "does not answer" in one.message


def test_the_command_line(verilog: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.elf"
    path.write_bytes(file_of([addi(A0, 0, 3), custom(*READ), *halt(0)]))
    command = ["exec", str(path), "-t", "cfu", "--cfu", str(verilog)]
    assert main(command) == 0
    capsys.readouterr()
    assert main([*command, "--initial-states", "2", "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["kind"] == "undefined" and finding["pc"] == RAM_BASE + 4 and finding["seed"] in (1, 2)
    assert main([*command, "--initial-states", "2"]) == 1
    assert "depends on undefined initial values" in capsys.readouterr().out
    assert main([*command[:4], "--initial-states", "2"]) == 2
    assert "needs --cfu" in capsys.readouterr().err
    own = Path(__file__).parents[3] / "examples" / "own_cfu.py"
    assert main([*command[:5], f"{own}:Dot", "--initial-states", "2"]) == 2
    assert "is for a CFU in Verilog" in capsys.readouterr().err


def test_the_example_has_no_undefined_values(tmp_path: Path) -> None:
    words = [custom(1, A0, A1, A0), custom(0, 0, A0, A0), custom(1, A0, A1, A0), *halt(0)]
    assert run(image(words), Config(), cfu=maker([DOT], 3)()).undefined is None


@pytest.mark.slow
@pytest.mark.riscv
def test_a_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The written gateware reads nothing that is undefined. It does if its answers depend on one more register."""
    files = {name: text for name, text in board_files(Config.read("addressed4", {})).items() if name.endswith(".v")}
    command = ["run", str(DIGITS), "-t", "cfu", "-c", "addressed4", "--initial-states", "2"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        command += ["--cfu", str(tmp_path / name)]
    assert main(command) == 0
    capsys.readouterr()
    text = files["Cfu.v"].replace("  reg [31:0] rsp_pay", "  reg [31:0] open;\n  reg [31:0] rsp_pay")
    (tmp_path / "Cfu.v").write_text(text.replace("rsp_payload_outputs_0 <= ", "rsp_payload_outputs_0 <= open ^ "))
    assert main(command) == 1
    shown = capsys.readouterr().out
    assert "all outputs are equal" in shown and "cfu_undefined" in shown
    assert "depends on undefined initial values" in shown and "from those of seed" in shown
