"""What messages and listings say of LOAD and STORE: the tiles that they touch, padding included."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.targets.vta.interpreter import Interpreter, Record
from tests.targets.vta.records import ALU_UOP, INP, LOAD, STORE, UOP, WGT
from tests.targets.vta.streams import BASES, END, MACHINES, random_case, small
from tilewright.program.launch_image import Dram, Segment
from tilewright.targets import get
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.isa.stream import decode, encode
from tilewright.targets.vta.steps.elaborate import elaborate

#: Two rows of four tiles with a frame of one: four rows of six.
PADDED = {"y_size": 2, "x_size": 4, "x_stride": 4, "y_pad_0": 1, "y_pad_1": 1, "x_pad_0": 1, "x_pad_1": 1}


def described(records: list[Record], config: Config) -> list[str]:
    stream = decode(encode(records, config), config)
    dram = Dram([Segment("all", 0, np.zeros((1, END), np.uint8))])
    table = elaborate(stream, config, dram, BASES).table
    return [table.describe(step) for step in range(len(records))]


@pytest.mark.parametrize(
    ("semantics", "record", "said"),
    [
        ("hls", {"memory_type": INP, **PADDED}, "load inp[3:27]"),
        ("hls", {"memory_type": WGT, **PADDED}, "load wgt[3:11]"),  # which HLS does not pad
        ("fsim", {"memory_type": WGT, **PADDED}, "load wgt[3:27]"),
        ("hls", {"memory_type": INP, **PADDED, "x_size": 0}, "load inp[3:11]"),  # zeros only
        ("fsim", {"memory_type": INP, **PADDED, "x_size": 0}, "nop (load inp)"),
        ("hls", {"memory_type": UOP, "y_size": 2, "x_size": 4}, "load uop[3:7]"),  # one row
        ("fsim", {"memory_type": UOP, "y_size": 2, "x_size": 4}, "load uop[3:11]"),
    ],
)
def test_a_transfer_is_described_by_what_the_semantics_make_of_it(semantics: str, record: Record, said: str) -> None:
    machine = replace(small(0, 2), semantics=semantics, LOG_INP_BUFF_SIZE=8, LOG_WGT_BUFF_SIZE=10)
    assert described([{"opcode": LOAD, "sram_base": 3, **record}], machine) == [said]


@pytest.mark.parametrize("name", MACHINES)
def test_descriptions_name_what_the_interpreter_touches(name: str) -> None:
    config, padded = MACHINES[name], 0
    for seed in range(12):
        case = random_case(np.random.default_rng(seed), config, 1)
        oracle = Interpreter(config, case.records, case.uops, case.dram[0].copy(), BASES)
        oracle.run(range(len(case.records)))
        for index, text in enumerate(described(case.records, config)):
            record = case.records[index]
            if record["opcode"] not in (LOAD, STORE):
                continue
            reads, writes = oracle.touched[index]
            tiles = sorted(at for memory, at in (reads if record["opcode"] == STORE else writes) if memory != "DRAM")
            chips = {memory for memory, _ in reads | writes} - {"DRAM"}
            (chip,) = chips or {""}
            chip = {f"cache{UOP}": "uop", f"cache{ALU_UOP}": "alu_uop"}.get(chip, chip)
            verb = "load" if record["opcode"] == LOAD else "store"
            chip = "out" if chips and verb == "store" else chip  # which fsim has not: it stores what acc holds
            expected = f"{verb} {chip}[{tiles[0]}:{tiles[-1] + 1}]" if tiles else f"nop ({verb} "
            assert text == expected or (not tiles and text.startswith(expected)), f"seed {seed}, #{index}"
            padded += len(tiles) > record.get("x_size", 0) * record.get("y_size", 0) > 0
    assert padded > 5


def test_a_finding_names_the_padded_range() -> None:
    """Tiles 12..35 of 32: the padding is out of range, not the data."""
    text = ".segment x address=0 size=4096 kind=const\n.insn\nload inp sram_base=12 y_size=2 x_size=4 x_stride=4 "
    text += "y_pad_0=1 y_pad_1=1 x_pad_0=1 x_pad_1=1\nfinish\n"
    machine = PRESETS["pynq"].with_overrides({"LOG_INP_BUFF_SIZE": "9"})
    found = list(get("vta").check(get("vta").assemble(text, machine)))
    assert [finding.kind for finding in found] == ["out_of_range"]
    assert "#0 load inp[12:36] writes inp[12:36]; inp has 32 elements" in found[0].message
