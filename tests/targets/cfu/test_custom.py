"""The table of custom-0: the compiled CFU executes it, and the document shows it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.targets.cfu.interpreter import command
from tests.targets.cfu.unit import Unit
from tilewright.targets.cfu.config import BEYOND, EXTENSIONS, Config
from tilewright.targets.cfu.isa.custom import (
    CUSTOM,
    FETCH,
    FETCH_CHANNELS,
    FETCH_IMAGE,
    NEEDS,
    PUSH_SHIFT,
    PUT,
    RDBPOT,
    START,
)
from tilewright.targets.cfu.isa.state import FIELDS, Reg, buffers, registers

MACHINES = {
    "published": Config(buffer_rows=16),
    "addressed4": Config(array=4, transfer="addressed", buffer_rows=16),
    "all4": Config(array=4, transfer="counter", readout="random", start="blocking", srdhm="single", buffer_rows=64),
    "extended": Config(extensions=",".join(EXTENSIONS), buffer_rows=64),
    "single bytes": Config(extensions="im2col,dma", buffer_rows=16),
}
#: Layer registers with values that make an operator of some elements.
LAYER = {"IN_H": 3, "IN_W": 2, "IN_C": 5, "OUT_H": 2, "OUT_W": 2, "OUT_C": 18, "KERNEL_H": 2, "KERNEL_W": 2}


def operands(rng: np.random.Generator, funct7: int) -> tuple[int, int]:
    """Operands that an instruction has a meaning for, sizes small."""
    a, b = rng.integers(-(1 << 31), 1 << 31, 2).tolist()
    if funct7 == START:
        m, n, k = rng.integers(0, 20, 3).tolist()
        return int(rng.integers(2)) << 30 | m << 20 | n << 10 | k, int(rng.integers(-300, 300))
    if funct7 == RDBPOT:
        return a, int(rng.integers(0, 40))
    if funct7 == PUSH_SHIFT:
        return int(rng.integers(-31, 31)), 0
    if funct7 == PUT:
        names = list(LAYER)
        name = names[int(rng.integers(len(names)))] if rng.random() < 0.3 else str(rng.choice(["POINTER", "TABLE"]))
        return FIELDS[name], LAYER.get(name, 0) + int(rng.integers(0, 2))
    if funct7 == FETCH_CHANNELS:
        return 0x40000000 + 4 * int(rng.integers(0, 32)), int(rng.integers(0, 24))
    if funct7 in (FETCH, FETCH_IMAGE):
        return 0x40000000 + 4 * int(rng.integers(0, 32)), 16 * int(rng.integers(0, 12))
    if funct7 < PUT and rng.random() < 0.8:  # a word's or an element's address, mostly there
        return int(rng.integers(0, 16)), b if funct7 < START else int(rng.integers(0, 16))
    return a, b


@pytest.mark.parametrize("name", MACHINES)
def test_the_compiled_cfu_does_what_the_table_says(name: str) -> None:
    """Random commands: the same answers, cycles, registers and memories after each."""
    config, rng = MACHINES[name], np.random.default_rng(8)
    unit, regs, memory = Unit(config), registers(config), buffers(config)
    unit.ram = rng.integers(0, 256, 512).astype(np.uint8)
    has = [code for code, row in CUSTOM.items() if not row.extensions or NEEDS[code] & regs[Reg.EXTENSIONS]]
    setup = [(PUT, FIELDS[key], value) for key, value in LAYER.items()] if PUT in has else []
    setup += (
        [(PUT, FIELDS[key], value) for key, value in (("LOW", -128), ("HIGH", 127), ("STRIDE_H", 1))] if setup else []
    )
    random = [(code, *operands(rng, code)) for code in rng.choice(has, 400).tolist()]
    for funct7, a, b in setup + random:
        cycle = unit.cycle
        answer = unit.op(funct7, a, b)
        assert command(regs, memory, unit.ram, funct7, a, b, cycle) == (answer, unit.cycle - 1), CUSTOM[funct7].name
        np.testing.assert_array_equal(unit.regs, regs, CUSTOM[funct7].name)
        np.testing.assert_array_equal(unit.buffers, memory, CUSTOM[funct7].name)
        unit.cycle += int(rng.integers(1, 200)) if rng.random() < 0.3 else 0
    assert {code for code, *_ in random} == set(has)


def test_registers_and_numbers_are_dense() -> None:
    assert [int(reg) for reg in Reg] == list(range(len(Reg)))
    assert list(CUSTOM) == [*range(9), *range(16, FETCH_CHANNELS + 1)]
    assert {key for row in CUSTOM.values() for key in row.extensions} == set(EXTENSIONS) >= set(BEYOND)


def test_the_document_shows_the_table() -> None:
    shown = (ROOT / "docs" / "cfu.md").read_text()
    for code, row in CUSTOM.items():
        needs = "" if not row.extensions else "any" if row.extensions == EXTENSIONS else row.extensions[0]
        assert f"| {code} | `{row.name}` | {row.operands} | {row.about} | {needs} |\n" in shown, row.name
