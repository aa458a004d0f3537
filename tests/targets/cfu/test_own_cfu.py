"""A CFU of the user's in the place of the model: `exec --cfu`. Each module has one rule of the ports to show."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.targets.cfu.asm import A0, A1, A2, A3, A4, NOP, addi, custom, halt, image, li
from tests.targets.cfu.elf_files import tiny
from tests.targets.cfu.gateware.sequences import random_commands
from tests.targets.cfu.own import DIGITS, DOT, PORTS
from tests.targets.cfu.running import run
from tilewright.cli import main
from tilewright.errors import ConfigError, InputError, MachineError
from tilewright.targets.cfu import TARGET
from tilewright.targets.cfu.config import Config
from tilewright.targets.cfu.gateware.top import board_files
from tilewright.targets.cfu.runtime import rtl
from tilewright.targets.cfu.runtime.rtl import RtlCfu, maker, of_verilog
from tilewright.targets.cfu.runtime.seam import CfuError, ModelUnit

pytestmark = pytest.mark.gxx
#: Answers in the cycle of the command, with the sum of its operands.
COMBINATIONAL = """assign rsp_valid = cmd_valid; assign cmd_ready = rsp_ready;
    assign rsp_payload_outputs_0 = cmd_payload_inputs_0 + cmd_payload_inputs_1; endmodule"""
#: Takes a command 3 cycles after its offer, and answers with their number 5 cycles later.
SLOW = """reg [3:0] t = 0; reg [31:0] n = 0; assign cmd_ready = t == 3; assign rsp_valid = t == 8;
    assign rsp_payload_outputs_0 = n;
    always @(posedge clk) if (reset) t <= 0; else begin
        if (cmd_valid || t > 3) t <= t == 8 ? 0 : t + 1;
        if (cmd_ready) n <= n + 1;
    end endmodule"""
DEAF = "assign cmd_ready = 0; assign rsp_valid = 0; assign rsp_payload_outputs_0 = 0; endmodule"
MUTE = "assign cmd_ready = 1; assign rsp_valid = 0; assign rsp_payload_outputs_0 = 0; endmodule"
CHATTY = "assign cmd_ready = 1; assign rsp_valid = 1; assign rsp_payload_outputs_0 = 7; endmodule"
WORDS = [*li(A0, 20), *li(A1, -7), custom(3, A2, A0, A1, 5), addi(A3, A2, 0), custom(4, A4, A3, A0), NOP, *halt(A4)]


def cfu(folder: Path, body: str) -> RtlCfu:
    path = folder / "own.sv"
    path.write_text(PORTS + body)
    return of_verilog([path])()


@pytest.mark.parametrize(("body", "late", "answers"), [(COMBINATIONAL, 0, (13, 33)), (SLOW, 8, (1, 2))])
def test_cycles_are_those_of_the_ports(body: str, late: int, answers: tuple[int, int], tmp_path: Path) -> None:
    seen = []

    def execute(funct7: int, funct3: int, a: int, b: int, cycle: int) -> tuple[int, int]:
        seen.append(cycle)
        return answers[len(seen) - 1], cycle + late

    found, expected = run(image(WORDS), Config(), cfu=cfu(tmp_path, body)), run(image(WORDS), Config(), cfu=execute)
    assert (found.exit_code, found.cycles) == (expected.exit_code, expected.cycles)
    assert found.exit_code == answers[1]


def test_the_example_adds_products() -> None:
    unit, rng, total, cycle = of_verilog([DOT])(), np.random.default_rng(1), 0, 5
    for _ in range(50):
        a, b = rng.integers(-128, 128, (2, 4)).astype(np.int8)
        total += int(a.astype(int) @ b.astype(int))
        first, second = (int(part.view("<i4")[0]) for part in (a, b))
        assert unit.execute(1, 0, first, second, cycle) == (total, cycle + 1)
        cycle += int(rng.integers(2, 9))
    assert unit.execute(0, 0, 0, 0, cycle) == (0, cycle + 1)


def test_the_written_gateware_gives_the_models_answers_and_cycles(tmp_path: Path) -> None:
    """Several files, random commands: an array that works while the CPU goes on."""
    config = Config(array=4, transfer="counter", buffer_rows=64)
    paths = []
    for name, text in board_files(config).items():
        if name.endswith(".v"):
            paths.append(tmp_path / name)
            paths[-1].write_text(text)
    unit, model, cycle = of_verilog(paths)(), ModelUnit(config), 0
    for command in random_commands(config, np.random.default_rng(3), 200):
        expected = model.execute(*command[:4], cycle + command.wait)
        assert unit.execute(*command[:4], cycle + command.wait) == expected
        cycle = expected[1] + 1


@pytest.mark.parametrize(
    ("body", "said"), [(DEAF, "cmd_ready is 0"), (MUTE, "rsp_valid is 0"), (CHATTY, "answered all commands")]
)
def test_a_cfu_that_breaks_the_rules_is_named(
    body: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rtl, "LIMIT", 1000)
    unit = cfu(tmp_path, body)
    with pytest.raises(CfuError, match=said) as raised:
        unit.execute(2, 3, 0, 0, 100)
    assert (raised.value.where, raised.value.funct7, raised.value.funct3) == ("own.sv", 2, 3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PORTS.replace("[9:0]", "[2:0]") + MUTE, "has 3 bits in the port cmd_payload_function_id"),
        ((PORTS + MUTE).replace(" input rsp_ready,", ""), "has no port rsp_ready"),
        ((PORTS + MUTE).replace("module Cfu", "module Cpu"), "Cfu"),
        (PORTS + "assign cmd_ready = ; endmodule", "syntax error"),
    ],
)
def test_verilog_that_is_no_cfu_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "own.v"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        of_verilog([path])()


#: A CFU that adds, in Amaranth and in Python.
IN_PYTHON = """
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

class Hard(wiring.Component):
    cmd_valid: In(1)
    cmd_ready: Out(1)
    cmd_payload_function_id: In(10)
    cmd_payload_inputs_0: In(32)
    cmd_payload_inputs_1: In(32)
    rsp_valid: Out(1)
    rsp_ready: In(1)
    rsp_payload_outputs_0: Out(32)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.cmd_ready.eq(~self.rsp_valid)
        m.d.sync += self.rsp_valid.eq(self.cmd_valid & self.cmd_ready)
        m.d.sync += self.rsp_payload_outputs_0.eq(self.cmd_payload_inputs_0 + self.cmd_payload_inputs_1)
        return m

class Thin(wiring.Component):
    cmd_valid: In(1)
    cmd_ready: Out(2)

    def elaborate(self, platform):
        return Module()

class Soft:
    def execute(self, funct7, funct3, a, b, cycle):
        return a + b, cycle + 1
"""


def test_a_cfu_in_amaranth_or_python(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(IN_PYTHON)
    hard, soft = (run(image(WORDS), Config(), cfu=maker([f"{path}:{name}"])()) for name in ("Hard", "Soft"))
    assert hard.exit_code == soft.exit_code == 33 and hard.cycles == soft.cycles
    with pytest.raises(ConfigError, match="component Thin: has 2 bits in the port cmd_ready"):
        maker([f"{path}:Thin"])()
    for name, said in ((f"{path}:None", "no CFU named None"), (f"{tmp_path}/no.py:Soft", "not a file")):
        with pytest.raises(InputError, match=said):
            maker([name])
    with pytest.raises(InputError, match="is a second CFU"):
        maker([f"{path}:Hard", f"{path}:Soft"])


def test_files_that_are_not_verilog_are_refused(tmp_path: Path) -> None:
    (tmp_path / "own.vhd").write_text("")
    with pytest.raises(InputError, match="not a Verilog file"):
        of_verilog([tmp_path / "own.vhd"])()
    with pytest.raises(InputError, match="cannot be read"):
        of_verilog([tmp_path / "none.v"])()
    with pytest.raises(InputError, match="same name as another file"):
        of_verilog([DOT, DOT])()


def test_the_command_line_takes_verilog(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.elf"
    path.write_bytes(tiny())
    assert main(["exec", str(path), "-t", "cfu", "--cfu", str(DOT)]) == 1  # the program ends with code 7
    assert "exit code 7" in capsys.readouterr().out
    assert main(["exec", str(path), "-t", "cfu", "--cfu", str(tmp_path / "none.v")]) == 2
    assert "none.v" in capsys.readouterr().err
    assert main(["run", str(DIGITS), "-t", "vta", "--cfu", str(DOT)]) == 2
    assert "vta has no custom function unit" in capsys.readouterr().err


@pytest.mark.riscv
@pytest.mark.slow
def test_a_network_on_a_cfu_of_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The written gateware gives the model's outputs and cycles, sample by sample; a mute CFU is named."""
    codes = np.random.default_rng(2).integers(-128, 128, (2, 1, 8, 8, 1)).astype(np.int8)
    program = tw.compile(DIGITS, "cfu", "published")
    expected = program.run(codes)
    paths = []
    for name, text in board_files(Config()).items():
        if name.endswith(".v"):
            paths.append(tmp_path / name)
            paths[-1].write_text(text)
    with TARGET.with_cfu(paths):
        found = program.run(codes)
    assert found.matches_reference and found.cycles == expected.cycles
    monkeypatch.setattr(rtl, "LIMIT", 1000)
    (tmp_path / "own.sv").write_text(PORTS + MUTE)
    said = r"does not answer .* the program gives this command at \w+"
    with pytest.raises(MachineError, match=said), TARGET.with_cfu([tmp_path / "own.sv"]):
        program.run(codes)
    assert program.run(codes[:1]).cycles == expected.cycles  # the model is back
