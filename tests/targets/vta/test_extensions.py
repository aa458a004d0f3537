"""Machines that upstream does not have: which are legal, parts of acc, and their programs through every command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.cli.digits import MODEL
from tests.targets.vta.code_text import assemble
from tilewright.cli import main
from tilewright.errors import ConfigError
from tilewright.program import file
from tilewright.program.launch_image import Dram, Segment
from tilewright.program.program import Program
from tilewright.sim.findings import RACE, Finding
from tilewright.sim.passes import RunOptions
from tilewright.targets.vta import TARGET
from tilewright.targets.vta.compiler.compiler import compile_graph
from tilewright.targets.vta.config import PRESETS
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.fields import Memory
from tilewright.targets.vta.passes import run_passes

pytestmark = pytest.mark.usefixtures("brief_search")

PYNQ = PRESETS["pynq"]
ILLEGAL = [
    ("stages=5", "stages is 5"),
    ("alu=best", "choose one of upstream, rounding, fused"),
    ("stages=4 semantics=fsim", "semantics fsim supports three stages"),
    ("alu=fused semantics=chisel", "semantics chisel supports three stages"),
    ("alu=rounding LOG_ACC_WIDTH=4 LOG_ACC_BUFF_SIZE=16", "alu rounding computes in 32 bits"),
    ("alu=fused LOG_PAR_BUFF_SIZE=18", "2^12 parameter tiles, not 2 to 2^10"),
    ("alu=fused LOG_PAR_BUFF_SIZE=6", "2^0 parameter tiles"),
    ("alu=fused LOG_PAR_BUFF_SIZE=4", "2^-2 parameter tiles"),
    ("stages=4 alu=rounding", "stages=4 does not support alu rounding"),
    ("stages=4 LOG_ALU_UOP_BUFF_SIZE=16", "alu_uop holds 2^14 micro-ops, above 2^13"),
    ("stages=4 acc_banks=3", "acc_banks is 3, not a power of two up to 2048"),
    ("stages=4 acc_banks=16 LOG_ACC_BUFF_SIZE=9", "acc_banks is 16, not a power of two up to 8"),
    ("acc_banks=0", "acc_banks is 0"),
]
SETS = ["alu=rounding", "alu=fused", "stages=4", "stages=4 alu=fused", "stages=4 alu=fused acc_banks=1"]


def keys(text: str) -> list[str]:
    return [word for key in text.split() for word in ("--set", key)]


@pytest.mark.parametrize(("overrides", "reason"), ILLEGAL)
def test_an_illegal_machine_is_refused_in_one_line(
    overrides: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(MODEL), "-t", "vta", *keys(overrides)]) == 2
    said = capsys.readouterr().err
    assert reason in said
    assert said.count("\n") == 1
    with pytest.raises(ConfigError):
        PYNQ.with_overrides(dict(key.split("=") for key in overrides.split()))


def test_sizes_that_a_machine_does_not_use_do_not_matter() -> None:
    for overrides in ({"LOG_PAR_BUFF_SIZE": 3}, {"LOG_ALU_UOP_BUFF_SIZE": 18}, {"acc_banks": 3}):
        TARGET.describe(PYNQ.with_overrides(overrides))
    assert Memory.PAR not in PYNQ.memories
    assert Memory.ALU_UOP in PYNQ.with_overrides({"stages": 4}).memories
    ops = {alu: PYNQ.with_overrides({"alu": alu}).alu_ops[-1] for alu in ("upstream", "rounding", "fused")}
    assert ops == {"upstream": AluOp.MUL, "rounding": AluOp.RSHR, "fused": AluOp.REQ}


BANKS = """\
.insn
load uop x_size=2
load alu_uop x_size=2
gemm reset_reg=1 uop_end=1 iter_out=1 iter_in=1 {push}
alu add uop_bgn=1 uop_end=2 iter_out=1 iter_in=1 use_imm=1 imm=1 {pop}
finish
.uop
dst={gemm}
dst={alu} src={alu}
"""


def findings(text: str, **overrides: str) -> tuple[Finding, ...]:
    machine = PYNQ.with_overrides({"stages": "4", **overrides})
    insns, uops = assemble(text, machine)
    dram = Dram([Segment("uop", 0, uops.reshape(1, -1))])
    bases = dict.fromkeys(("uop", "inp", "wgt", "acc", "out"), 0)
    found = run_passes(insns, machine, dram, bases, 1, RunOptions(values=False)).findings
    return tuple(finding for finding in found if finding.kind == RACE)


def test_two_units_in_one_part_of_acc_race() -> None:
    """Tiles 0 and 1023 are in one of two parts, 1024 is in the other; with one part everything is."""
    none = {"push": "", "pop": ""}
    (finding,) = findings(BANKS.format(gemm=0, alu=1023, **none), acc_banks="2")
    assert (finding.space, finding.low, finding.steps) == ("acc bank", 0, (2, 3))
    assert "gemm->activate token" in finding.message
    assert not findings(BANKS.format(gemm=0, alu=1024, **none), acc_banks="2")
    assert findings(BANKS.format(gemm=0, alu=1024, **none), acc_banks="1")
    assert not findings(BANKS.format(gemm=0, alu=1023, **none), acc_banks="4")
    assert not findings(BANKS.format(gemm=0, alu=1023, push="push:activate", pop="pop:gemm"), acc_banks="2")


@pytest.mark.parametrize("overrides", SETS)
def test_programs_survive_the_file_and_the_text(overrides: str, tmp_path: Path) -> None:
    machine = PYNQ.with_overrides(dict(key.split("=") for key in overrides.split()))
    program = compile_graph(tw.load(MODEL), machine, "tflm")
    path = tmp_path / "digits.twp"
    file.save(program, path)
    loaded = file.load(path)
    assert loaded.config == program.config
    bare = TARGET.assemble(TARGET.disassemble(loaded), machine)
    assert isinstance(bare, Program)
    for before, after, text in zip(program.launches, loaded.launches, bare.launches, strict=True):
        assert before.meta == after.meta
        for name, array in before.arrays.items():
            np.testing.assert_array_equal(array, after.arrays[name])
        np.testing.assert_array_equal(text.arrays["insns"], before.arrays["insns"])
        np.testing.assert_array_equal(text.arrays["dram.uop"].reshape(-1), before.arrays["dram.uop"].reshape(-1))


@pytest.mark.parametrize("overrides", ["alu=rounding", "stages=4 alu=fused"])
def test_every_command_takes_them(overrides: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, page, trace = (str(tmp_path / name) for name in ("digits.twp", "page.html", "trace.json"))
    text, again = str(tmp_path / "digits.txt"), str(tmp_path / "again.twp")
    assert main(["compile", str(MODEL), "-t", "vta", *keys(overrides), "-o", program]) == 0
    assert main(["check", program]) == 0
    assert main(["exec", program]) == 0
    assert main(["run", str(MODEL), "-t", "vta", *keys(overrides), "--html", page, "--trace", trace]) == 0
    assert all(Path(path).stat().st_size > 1000 for path in (page, trace))
    capsys.readouterr()
    assert main(["disasm", program]) == 0
    Path(text).write_text(capsys.readouterr().out)
    assert main(["asm", text, "-t", "vta", *keys(overrides), "-o", again]) == 0
    assert main(["check", again]) == 0
