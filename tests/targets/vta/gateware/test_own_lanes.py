"""Lanes of the user's own: cosimulation finds one that disagrees with its meaning, wrong ports are refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, ClassVar

import pytest
from amaranth.hdl import Module, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tests.conftest import ROOT
from tests.targets.vta.streams import EXAMPLE, small
from tilewright.cli import main
from tilewright.errors import ConfigError
from tilewright.targets.vta.gateware.top import Vta
from tilewright.targets.vta.isa import own
from tilewright.targets.vta.isa.own import OwnOperation

WORD, RESULT = In(signed(32)), Out(signed(32))


class Ported(wiring.Component):
    """A lane with the ports of its class."""

    ports: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__(self.ports)

    def elaborate(self, platform: Any) -> Module:
        return Module()


class Nothing(Ported):
    ports: ClassVar = {"dst": WORD}


class Unknown(Ported):
    ports: ClassVar = {"acc": WORD, "result": RESULT}


class Unsigned(Ported):
    ports: ClassVar = {"dst": In(32), "result": RESULT}


class Backwards(Ported):
    ports: ClassVar = {"dst": Out(signed(32)), "result": RESULT}


class Needy(Ported):
    def __init__(self, bits: int) -> None:
        super().__init__()


class NoComponent:
    pass


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Nothing, "has no port 'result'; the ports of a lane are dst, src, imm, valid, result"),
        (Unknown, "has a port 'acc'"),
        (Unsigned, "port 'dst' of "),
        (Backwards, "port 'dst' of "),
        (Needy, "cannot be made"),
        (NoComponent, "is not an Amaranth component"),
    ],
)
def test_lanes_with_wrong_ports_are_refused(kind: type[Any], reason: str) -> None:
    config = small(0, 2, own_alu=(OwnOperation("mine", 5, "dst", lane=own.code(kind)),))
    with warnings.catch_warnings(), pytest.raises(ConfigError) as caught:
        warnings.simplefilter("error")
        Vta(config)
    assert reason in str(caught.value)


def saved(*arguments: str) -> None:
    """Run the example, which saves its program."""
    command = [sys.executable, "examples/own_alu/run.py", *arguments]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)


@pytest.mark.gxx
def test_a_wrong_lane_is_named_by_cosim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program is the example's; cosim needs the machine's file, and takes the lane that is there now."""
    for name in ("machine.json", "lanes.py"):
        shutil.copy(EXAMPLE / name, tmp_path / name)
    program, machine, lanes = (str(tmp_path / name) for name in ("a.twp", "machine.json", "lanes.py"))
    saved(program)
    text = Path(lanes).read_text()
    assert "self.dst >> self.imm[:6]" in text
    Path(lanes).write_text(text.replace("self.dst >> self.imm[:6]", "(self.dst + 1) >> self.imm[:6]"))
    monkeypatch.setattr(own, "_CODE_BY_NAME", {})  # as in a new process
    assert main(["cosim", program]) == 2
    assert "give the machine's file with -c" in capsys.readouterr().err
    assert main(["cosim", program, "-c", machine]) == 1
    said = capsys.readouterr().out
    assert "1231 cycles, " in said
    assert "#7 store out[0:128]: bus__w__payload for out[" in said


@pytest.mark.gxx
@pytest.mark.slow
def test_the_example_is_the_same_on_its_gateware(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = str(tmp_path / "a.twp")
    saved(program)
    assert main(["cosim", program, "-c", str(EXAMPLE / "machine.json")]) == 0
    assert "1231 cycles, same" in capsys.readouterr().out
    assert main(["rtl", "vta", "-c", str(EXAMPLE / "machine.json"), "-o", str(tmp_path)]) == 0
    assert any("AbsDiff" in path.read_text() or "absdiff" in path.read_text() for path in tmp_path.glob("*.v"))


@pytest.mark.gxx
@pytest.mark.slow
def test_a_lane_of_another_latency_is_named_by_cosim(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(EXAMPLE / "lanes.py", tmp_path / "lanes.py")
    machine = tmp_path / "machine.json"
    machine.write_text((EXAMPLE / "machine.json").read_text().replace('"latency": 2', '"latency": 1'))
    program = str(tmp_path / "a.twp")
    saved(program, str(machine))
    assert main(["cosim", program, "-c", str(machine)]) == 1
    assert "bus__w__payload for out[0]" in capsys.readouterr().out
