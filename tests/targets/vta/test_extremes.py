"""Programs by hand with the largest numbers that fields hold: what leaves a memory is named, and nothing takes long."""

from __future__ import annotations

import numpy as np
import pytest

from tests.limits import within
from tilewright.debug.session import Session
from tilewright.errors import HazardError
from tilewright.program.launch_image import DramSegment, LaunchImage
from tilewright.program.program import Program
from tilewright.run import run_bare
from tilewright.targets.vta import TARGET
from tilewright.targets.vta.isa.fields import REGIONS, Memory, Opcode
from tilewright.targets.vta.isa.stream import Record, encode

BASE, SIZE = 0x8000, 1 << 15
RESET = {"opcode": Opcode.GEMM, "reset_reg": 1, "uop_end": 1, "iter_out": 1, "iter_in": 4}
STORE = {"opcode": Opcode.STORE, "memory_type": Memory.OUT, "y_size": 1, "x_size": 4, "x_stride": 4}


def program(*records: Record) -> Program:
    config = TARGET.config("pynq", {})
    segment = DramSegment("m", BASE, SIZE, "inout")
    code = encode([*records, {"opcode": Opcode.FINISH}], config)
    image = LaunchImage(code, (segment,), {"m": np.zeros(SIZE, np.uint8)}, dict.fromkeys(REGIONS, BASE))
    return Program.bare("vta", config, [image.launch("extreme")])


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        ("wgt_factor_in", r"reads wgt\[3066:3067\]; wgt has 1024"),
        ("src_factor_in", r"reads inp\[3066:3067\]; inp has 2048"),
    ],
)
def test_a_reset_whose_sum_is_stored_reads_inside_the_memories(factor: str, message: str) -> None:
    """The sum goes to the out memory, though the accumulator is cleared."""
    made = program({**RESET, factor: 1022}, STORE)
    with pytest.raises(HazardError, match=message):
        run_bare(made)
    Session(made).end()
    run_bare(program({**RESET, factor: 1022}))  # nobody reads the sum


@pytest.mark.parametrize("debugged", [False, True])
def test_an_alu_instruction_that_writes_one_tile_over_and_over(debugged: bool) -> None:
    alu = {"opcode": Opcode.ALU, "uop_end": 1, "iter_out": 16383, "iter_in": 256, "use_imm": 1, "imm": 3}
    made = program({**alu, "alu_opcode": 2})
    with within(60):
        if debugged:
            session = Session(made)
            session.end()
            values = session.read("acc[0]")
        else:
            run_bare(made)
    if debugged:
        total = 3 * 16383 * 256
        assert (values == total).all()
