"""Verilog of the user's CFU, given to `cosim`: equal if it is ours, and else the first difference is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.conftest import ROOT
from tests.hdl.faults import faulty, selected
from tests.targets.cfu.gateware.sequences import random_commands, run
from tilewright.cli import main
from tilewright.errors import ConfigError, MachineError
from tilewright.hdl.verilog import UserRtl
from tilewright.program import file
from tilewright.targets.cfu.config import PRESETS, Config
from tilewright.targets.cfu.gateware.cosim import Compared, Gateware
from tilewright.targets.cfu.gateware.top import board_files
from tilewright.targets.cfu.isa import custom

pytestmark = pytest.mark.gxx
SMALL = Config(array=4, transfer="counter", buffer_rows=32, readout="random", start="blocking", srdhm="single")
LIMIT = 5000
COMMANDS = 150


def verilog(config: Config) -> dict[str, str]:
    return {name: text for name, text in board_files(config).items() if name.endswith(".v")}


class Recorded:
    """A sound CFU, and the command and cycle of each of its answers."""

    def __init__(self, rtl: UserRtl) -> None:
        self.unit = Gateware(SMALL, rtl)
        self.given = list[tuple[int, int, int, int, int]]()
        self.answers = list[tuple[int, int]]()

    def execute(self, funct7: int, funct3: int, a: int, b: int, cycle: int) -> tuple[int, int]:
        self.given.append((funct7, funct3, a, b, cycle))
        self.answers.append(self.unit.execute(funct7, funct3, a, b, cycle))
        return self.answers[-1]


def first_difference(sound: Recorded, rtl: UserRtl) -> int | None:
    """The number of the first command that a faulty CFU answers differently, or not at all."""
    unit = Gateware(SMALL, rtl)
    for number, (command, answer) in enumerate(zip(sound.given, sound.answers, strict=True)):
        try:
            if unit.execute(*command) != answer:
                return number
        except MachineError:
            return number
    return None


def test_faults_are_named() -> None:
    """20 seeded faults that change an answer or its cycle: the first is named by its command and cycle."""
    print("seed 1")
    files = verilog(SMALL)
    mutated, told = faulty(files, np.random.default_rng(1), 120)
    rtl, commands = (
        UserRtl(mutated, "Cfu", limit=LIMIT),
        list(random_commands(SMALL, np.random.default_rng(3), COMMANDS)),
    )
    sound, both = Recorded(rtl), Compared(SMALL, rtl)
    run(sound, commands)
    run(both, commands)
    assert both.differences == []
    named = 0
    for number, text in enumerate(told, 1):
        with selected(number):
            expected, both, failed = first_difference(sound, rtl), Compared(SMALL, rtl), ""
            try:
                run(both, commands)
            except MachineError as error:
                failed = f"{both.command}: {error}"
        said = [*both.differences, *[failed] * bool(failed)]
        if expected is None:
            assert said == [], text
            continue
        funct7, *_, cycle = sound.given[expected]
        assert said[0].startswith(f"{custom.name(funct7 << 3)} of cycle {cycle}"), (text, said)
        named += 1
        if named == 20:
            break
    assert named == 20


@pytest.mark.slow
@pytest.mark.riscv
@pytest.mark.parametrize("name", ["counter8", "dma"])
def test_what_we_emit_is_equal_in_a_network(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tw.compile(ROOT / "examples" / "digits" / "digits.tflite", "cfu", config=name)
    file.save(program, tmp_path / "digits.twp")
    for file_name, text in verilog(PRESETS[name]).items():
        (tmp_path / file_name).write_text(text)
    command = ["cosim", str(tmp_path / "digits.twp"), "--verilog", str(tmp_path), "--top", "Cfu"]
    assert main(command) == 0
    assert "1 launches, 0 differ" in capsys.readouterr().out
    assert main([*command, "--memory-seed", "1"]) == 2
    assert "--memory-seed: is not for cfu" in capsys.readouterr().err
    wrong = (tmp_path / "Cfu.v").read_text().replace("rsp_valid <= ", "rsp_valid <= 0 & ")
    (tmp_path / "Cfu.v").write_text(wrong)
    assert main([*command, "--max-cycles", "1000", "--wave", str(tmp_path / "a.vcd")]) == 1
    assert "rsp_valid is still 0 after 1000 cycles" in capsys.readouterr().out
    assert " cmd_payload_function_id " in (tmp_path / "a.vcd").read_text()


def test_a_cfu_with_a_wrong_port_is_refused() -> None:
    """The width that is wanted is named."""
    files = verilog(SMALL)
    head = "input [9:0] cmd_payload_function_id;\n  wire [9:0]"
    assert head in files["Cfu.v"]
    narrow = files["Cfu.v"].replace(head, head.replace("9", "2"))
    wanted = "has 3 bits in the port cmd_payload_function_id; cmd_payload_function_id has 10 bits"
    with pytest.raises(ConfigError, match=wanted):
        Gateware(SMALL, UserRtl(files | {"Cfu.v": narrow}, "Cfu"))
