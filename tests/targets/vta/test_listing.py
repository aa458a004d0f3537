"""Launches as text and back: nothing lost, and errors that say where."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.cli.digits import MODEL
from tilewright.cli import main
from tilewright.errors import ProgramError
from tilewright.program import file
from tilewright.program import listing as program_listing
from tilewright.program.program import Launch, Program
from tilewright.run import run_bare
from tilewright.sim.passes import RunOptions
from tilewright.targets.vta import TARGET
from tilewright.targets.vta.config import PRESETS
from tilewright.targets.vta.isa.stream import image_of
from tilewright.targets.vta.isa.text import assemble, disassemble
from tilewright.targets.vta.passes import run_passes

PYNQ = PRESETS["pynq"]
CODE = """\
.insn
load uop sram_base=0 dram_base=0 y_size=1 x_size=2 x_stride=2
gemm reset_reg=1 uop_bgn=0 uop_end=1 iter_out=1 iter_in=2 dst_factor_in=1
load inp sram_base=0 dram_base=0 y_size=1 x_size=2 x_stride=2
load wgt sram_base=0 dram_base=1 y_size=1 x_size=1 x_stride=1 push:compute
gemm uop_bgn=1 uop_end=2 iter_out=1 iter_in=2 dst_factor_in=1 src_factor_in=1 pop:load push:store
store out sram_base=0 dram_base=0 y_size=1 x_size=2 x_stride=2 pop:compute push:compute
finish pop:store
.uop
dst=0 src=0 wgt=0
dst=0 src=0 wgt=0
"""
SEED = 3


def data() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Two input tiles and a weight tile with a run of zeros in it."""
    rng = np.random.default_rng(SEED)
    inp, wgt = rng.integers(-128, 128, (2, 16), np.int8), rng.integers(-128, 128, (16, 16), np.int8)
    wgt[4:9] = 0
    return inp, wgt


def small() -> str:
    """out = inp @ wgt.T by hand: every base register is used, weights are one tile into their segment."""
    inp, wgt = data()
    return f"""\
.launch small
.base uop=0x100 inp=0x1000 wgt=0x2000 out=0x4000
.segment uop address=0x100 size=16 kind=const   # two micro-ops, then zeros
.segment inp address=0x1000 kind=const
{inp[0].tobytes().hex(" ")}
{inp[1].tobytes().hex().upper()}
.segment wgt address=0x2000 size=0x200 kind=const
zero 0x100
{wgt[:4].tobytes().hex()}
 zero 80  # rows 4..8
{wgt[9:].tobytes().hex()}
.segment out address=0x4000 size=32 kind=output
{CODE}"""


def assert_same(one: Launch, other: Launch, but: frozenset[str] = frozenset()) -> None:
    """Equal but for what belongs to the graph: those arrays and `meta` entries."""
    assert one.name == other.name
    assert {key: value for key, value in one.meta.items() if key not in but} == other.meta
    assert one.arrays.keys() - but == other.arrays.keys()
    for name, array in other.arrays.items():
        assert (array.dtype, array.shape) == (one.arrays[name].dtype, one.arrays[name].shape)
        np.testing.assert_array_equal(array, one.arrays[name])


def test_compiled_launches_come_back_exactly() -> None:
    program = tw.compile(MODEL, "vta")
    text = TARGET.disassemble(program)
    again = TARGET.assemble(text, PYNQ)
    tables = {"correction.0", "row_class.0", "column_class.0", "carried.0", "read.0", "computed.0"}
    graph = frozenset({"layers", "schedule"} | tables)
    assert len(again.launches) == len(program.launches) == 7
    for one, other in zip(program.launches, again.launches, strict=True):
        assert_same(one, other, graph)
    assert TARGET.disassemble(again) == text
    assert max(map(len, re.findall("^[0-9a-f]+$", text, re.MULTILINE))) == 64
    cycles = [layer.cycles for layer in run_bare(again).layers]
    assert cycles == [layer.cycles for layer in program.run(np.zeros((1, 8, 8, 1), np.int8)).layers if layer.cycles]


def test_a_program_by_hand_runs_alike_before_and_after_the_round_trip(tmp_path: Path) -> None:
    inp, wgt = data()
    golden = (inp.astype(np.int64) @ wgt.T.astype(np.int64)).astype(np.int8)
    program = TARGET.assemble(small(), PYNQ)
    (launch,) = program.launches
    dram = image_of(launch).dram({}, 1)
    run_passes(launch.arrays["insns"], PYNQ, dram, launch.meta["bases"], 1, RunOptions(timing=None, check=True))
    np.testing.assert_array_equal(dram["out"].view(np.int8).reshape(2, 16), golden)

    file.save(program, tmp_path / "a.twp")
    (tmp_path / "a.txt").write_text("# target vta\n" + TARGET.disassemble(file.load(tmp_path / "a.twp")))
    assert main(["asm", str(tmp_path / "a.txt"), "-o", str(tmp_path / "b.twp")]) == 0
    assert_same(launch, file.load(tmp_path / "b.twp").launches[0])
    for name in ("a", "b"):
        assert main(["exec", str(tmp_path / f"{name}.twp"), "-o", str(tmp_path / "o.npz")]) == 0
        with np.load(tmp_path / "o.npz") as found:
            assert (found["outputs"].dtype, found["outputs"].shape) == (np.uint8, (1, 32))
            np.testing.assert_array_equal(found["outputs"], dram["out"])


def test_outputs_of_several_launches_are_kept_apart() -> None:
    text = small() + small().replace(".launch small", ".launch other")
    outputs = run_bare(TARGET.assemble(text, PYNQ)).outputs
    assert list(outputs) == ["small/out", "other/out"]
    assert list(run_bare(TARGET.assemble(small(), PYNQ)).outputs) == ["out"]


def test_a_text_without_directives_is_one_launch() -> None:
    (launch,) = assemble(CODE, PYNQ)
    assert (launch.name, launch.arrays["insns"].shape, set(launch.arrays)) == ("asm", (7, 16), {"insns", "dram.uop"})
    assert launch.meta == {
        "bases": {"uop": 0, "inp": 0, "wgt": 0, "acc": 0, "out": 0},
        "segments": [{"name": "uop", "address": 0, "size": 8, "kind": "const"}],
    }
    (empty,) = assemble("# nothing\n\n", PYNQ)
    assert (empty.name, empty.meta["segments"], empty.arrays["dram.uop"].shape) == ("asm", [], (0,))


def test_launches_and_what_is_left_out() -> None:
    text = "# c\n\n.launch a\n.segment x address=16 size=0x10 kind=const\n.launch b\n.base acc=7\nfinish\n.uop\ndst=1\n"
    a, b = assemble(text, PYNQ)
    assert (a.name, a.arrays["dram.x"].tolist(), a.meta["bases"]["acc"]) == ("a", [0] * 16, 0)
    assert (b.name, b.meta["bases"]["acc"], len(b.arrays["insns"]), b.arrays["dram.uop"].size) == ("b", 7, 1, 4)
    first, second = assemble("finish\n.launch a\nfinish\n", PYNQ)
    assert (first.name, second.name) == ("asm", "a")


@pytest.mark.parametrize("name", ["conv 1", "a#b", 'say "x"', "", "é\n\t", "\ud800", "a=b", ".insn"])
def test_any_name_and_bytes_in_any_segment_come_back(name: str) -> None:
    segments = [
        {"name": name, "address": 64, "size": 100, "kind": "const"},
        {"name": "uop", "address": 0, "size": 5, "kind": "const"},  # no whole number of micro-ops
        {"name": "in", "address": 1 << 31, "size": 8, "kind": "input"},
    ]
    bases = {"uop": 0, "inp": 1, "wgt": 2, "acc": 3, "out": (1 << 32) - 1}
    some = np.arange(100, dtype=np.uint8)
    some[20:97] = 0
    arrays = {"insns": np.full((2, 16), 255, np.uint8), f"dram.{name}": some, "dram.uop": np.arange(5, dtype=np.uint8)}
    launch = Launch(name, (), {"bases": bases, "segments": segments}, arrays)
    program = Program("vta", PYNQ.to_dict(), PYNQ.digest(), "tflm", None, (launch, replace(launch, name="more")))
    again = assemble(disassemble(program, PYNQ), PYNQ)
    assert len(again) == 2
    assert_same(launch, again[0])


SEGMENT = ".segment x address=0 size=4 kind=const"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (".launch", r"line 1, column 1: found '\.launch'; expected a name after it"),
        (".launch a b", "line 1, column 11: found 'b'; expected the end of the line"),
        ("finish\n.launch asm", "line 2, column 9: found 'asm'; expected a name that is not taken"),
        ('.launch "a', "line 1, column 9: found '\"a'; expected a name, plain or quoted as in JSON"),
        (" .lunch a", r"line 1, column 2: found '\.lunch'; expected one of \.launch, \.base, \.segment, \.insn, \.uop"),
        (".base dram=1", "line 1, column 7: found 'dram=1'; expected uop=, inp=, wgt=, acc=, out="),
        (".base inp=1 inp=2", "line 1, column 13: found 'inp=2'; expected inp only once"),
        (".base inp=x", "line 1, column 11: found 'x'; expected a number, decimal or 0x"),
        (".base inp=0x100000000", r"line 1, column 11: found '0x100000000'; expected 0\.\.0xffffffff"),
        (".segment x size=4 kind=const", "line 1, column 19: found 'kind=const'; expected address= after it"),
        (".segment x address=0 size=4", "line 1, column 22: found 'size=4'; expected kind= after it"),
        (".segment x address=0 kind=input", "line 1, column 22: found 'kind=input'; expected size= after it"),
        (".segment x address=0 kind=rom", "line 1, column 27: found 'rom'; expected one of const, input, output"),
        (
            ".segment x address=0 kind=const size=0x20000001",
            r".*column 38: found '0x20000001'; expected 0\.\.0x20000000",
        ),
        (f"{SEGMENT}\n{SEGMENT}", "line 2, column 10: found 'x'; expected a name that is not taken"),
        (f"{SEGMENT}\n.segment y address=3 size=1 kind=input", r".*column 20: found '3'; .* not in 'x' 0x0\.\.0x4"),
        (
            f"{SEGMENT}\n.uop\ndst=1",
            r"line 1, column 20: found '0'; expected an address that is not in 'uop' 0x0\.\.0x4",
        ),
        (f"{SEGMENT}\n00 0g", "line 2, column 4: found '0g'; expected bytes of two hex digits, zero N, or a directive"),
        (f"{SEGMENT}\n000", "line 2, column 1: found '000'; expected bytes of two hex digits"),
        (f"{SEGMENT}\n00\n00112233", "line 3, column 1: found '00112233'; expected at most 3 more bytes in 'x'"),
        (f"{SEGMENT}\n zero 5", r"line 2, column 7: found '5'; expected 0\.\.0x4"),
        (f"{SEGMENT}\nzero", "line 2, column 1: found 'zero'; expected a number of bytes after it"),
        (f"{SEGMENT}\nzero 1 00", "line 2, column 8: found '00'; expected the end of the line"),
        (f"{SEGMENT}\nfinish", "line 2, column 1: found 'finish'; expected bytes of two hex digits"),
        (
            ".segment x address=0 size=1 kind=input\n00",
            r"line 2, column 1: found '00'; expected a directive: 'x' has no bytes here",
        ),
        (".segment uop address=0 size=4 kind=const\n.uop\ndst=1\ndst=2", ".*column 29: found '4'; expected 8 or more"),
        (".segment uop address=0 kind=const\n00\n.uop\ndst=1", "line 1, column 10: found 'uop'; expected a const"),
        (f"{SEGMENT}\n00\n.launch b\n\n.insn\nlod inp", "line 6, column 1: found 'lod'; expected one of load, store"),
        (f"finish\n{SEGMENT}\n00\n.uop\n dst=-1", r"line 5, column 6: found '-1'; expected 0\.\."),
        (f"{SEGMENT}\n.insn 3", "line 2, column 7: found '3'; expected the end of the line"),
    ],
)
def test_errors_name_line_column_and_what_was_expected(text: str, reason: str) -> None:
    with pytest.raises(ProgramError, match=f"^{reason}"):
        assemble(text, PYNQ)


def test_all_segments_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_listing, "MAX_BYTES", 8)
    grown = ".segment a address=0 kind=const\n0011223344\n"
    with pytest.raises(ProgramError, match=r"line 4, column 27: found '4'; expected 0\.\.0x3"):
        assemble(f"{grown}.launch b\n.segment c address=0 size=4 kind=output\n", PYNQ)
    with pytest.raises(ProgramError, match="line 4, column 1: found '11223344'; expected at most 3 more bytes in 'b'"):
        assemble(f"{grown}.segment b address=9 kind=const\n11223344\n", PYNQ)
