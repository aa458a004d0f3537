"""Tokens from slots: who waits for whom, and who carries a token between units that are no neighbours."""

from __future__ import annotations

import pytest

import tilewright as tw
from tests.conftest import ROOT
from tilewright import targets
from tilewright.schedule import NOBODY
from tilewright.targets.vta.compiler.builder import Operands, StreamBuilder
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.isa import text
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.fields import Memory
from tilewright.targets.vta.isa.instructions import ONCE

pytestmark = pytest.mark.usefixtures("brief_search")

PYNQ = PRESETS["pynq"]
FOUR = PYNQ.with_overrides({"stages": 4, "alu": "fused"})
INP, PAR, ACC = (Memory.INP, 0, 1), (Memory.PAR, 0, 4), (Memory.ACC, 0, 1)


Slot = tuple[Memory, int, int]


def load(to: StreamBuilder, slot: Slot, after: int = NOBODY) -> None:
    to.load(slot[0], slot[1], 0, (1, 1), 1, to.parts.of(*slot), after)


def gemm(to: StreamBuilder, slot: Slot, config: Config = PYNQ) -> None:
    """Sums of a slot in ACC; of three stages, the same unit writes the results."""
    out = (to.parts.of(Memory.OUT, *ACC[1:]),) if config.stages == 3 else ()
    row = to.distinct.gemm(range(1), ONCE, ONCE)
    to.step(config.pipeline.gemm, (row,), Operands((to.parts.of(*slot),), (to.parts.of(*ACC), *out)))


def rescale(to: StreamBuilder) -> None:
    """ACC with the parameters."""
    row = to.distinct.alu(AluOp.REQ, range(1), ONCE, ONCE, None)
    writes = to.parts.of(*ACC), to.parts.of(Memory.OUT, *ACC[1:])
    to.step(FOUR.pipeline.alu, (row,), Operands((to.parts.of(*PAR),), writes))


def store(of: StreamBuilder) -> int:
    return of.store(0, 0, (1, 1), 1, (of.parts.of(Memory.OUT, *ACC[1:]),))


def short(of: StreamBuilder, config: Config) -> list[str]:
    """Mnemonic and memory (`nop` for one without data), then the tokens."""
    found = []
    for line in text.instructions(of.build().code, config):
        words = line.split()
        name = " ".join(words[: 1 + (words[0] in ("load", "store"))])
        tokens = [word for word in words if word.startswith(("pop:", "push:"))]
        found.append(" ".join(["nop " + name if "x_size=0" in words else name, *tokens]))
    return found


def test_neighbours_order_each_other() -> None:
    made = StreamBuilder(PYNQ)
    for _ in range(2):
        load(made, INP)
        gemm(made, INP)
    row = store(made)
    load(made, INP, row)  # what is stored is loaded again
    made.finish()
    assert short(made, PYNQ) == [
        "load inp push:compute",
        "gemm pop:load push:load",
        "load inp pop:compute push:compute",
        "gemm pop:load push:store",
        "store out pop:compute push:compute",
        "nop load uop pop:store push:load",
        "load inp pop:compute push:compute",
        "finish pop:load",
    ]


def test_parts_that_overlap_are_ordered_too() -> None:
    made = StreamBuilder(PYNQ)
    for first, last in ((0, 4), (4, 8), (3, 5)):
        slot = (Memory.INP, first, last)
        load(made, slot)
        gemm(made, slot)
    assert short(made, PYNQ) == [
        "load inp push:compute",
        "gemm pop:load",
        "load inp push:compute",
        "gemm pop:load push:load",  # the later of the two that it overlaps
        "load inp pop:compute push:compute",
        "gemm pop:load",
    ]


def test_nops_of_the_units_between_carry_tokens() -> None:
    """Parameters go from load to activate past gemm, twice into the same tiles."""
    made = StreamBuilder(FOUR)
    for _ in range(2):
        load(made, PAR)
        rescale(made)
    store(made)
    made.finish()
    assert short(made, FOUR) == [
        "load par push:gemm",
        "nop load uop pop:load push:activate",
        "alu pop:gemm push:gemm",
        "nop load uop pop:activate push:load",
        "load par pop:gemm push:gemm",
        "nop load uop pop:load push:activate",
        "alu pop:gemm push:store",
        "store out pop:activate push:activate",
        "finish pop:store",
    ]


def test_an_instruction_that_knows_carries_instead() -> None:
    """A GEMM behind the load of parameters waits for its inputs anyway; activate's NOP passes the store's token on."""
    made = StreamBuilder(FOUR)
    load(made, PAR)
    load(made, INP)
    gemm(made, INP, FOUR)
    rescale(made)
    row = store(made)
    load(made, INP, row)
    assert short(made, FOUR) == [
        "load par",
        "load inp push:gemm",
        "gemm pop:load push:activate",
        "alu pop:gemm push:store",
        "store out pop:activate push:activate",
        "nop load alu_uop pop:store push:gemm",
        "nop load uop pop:activate push:load",
        "load inp pop:gemm",
    ]


@pytest.mark.parametrize("stages", [3, 4])
@pytest.mark.parametrize("alu", ["upstream", "rounding", "fused"])
def test_compiled_streams_are_ordered(stages: int, alu: str) -> None:
    """The small caches make micro-op loads and their tokens many."""
    if (stages, alu) == (4, "rounding"):
        pytest.skip("no such machine")
    overrides = {"stages": str(stages), "alu": alu, "LOG_UOP_BUFF_SIZE": "8", "LOG_ALU_UOP_BUFF_SIZE": "6"}
    program = tw.compile(ROOT / "examples" / "digits" / "digits.tflite", "vta", overrides=overrides)
    assert list(targets.get("vta").check(program)) == []
