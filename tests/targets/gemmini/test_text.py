"""The bits of commands, as the reference gives them, and their text."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.errors import ProgramError
from tilewright.targets import get
from tilewright.targets.gemmini.isa import fields, text

START = ".launch p\n.segment d address=0x1000 size=0x40 kind=inout\n.code\n"
ONE = 0x3F80_0000  # 1.0 as float32
BITS = {
    "config_ex dataflow=ws activation=relu a_stride=3 scale=1.0 shift=5 c_stride=2 "
    "only_strides transpose_a transpose_b": (
        0,
        ONE << 32 | 3 << 16 | 1 << 9 | 1 << 8 | 1 << 7 | 1 << 3 | 1 << 2,
        2 << 48 | 5,
    ),
    "config_ld state=2 pixels=3 block_stride=16 scale=1.0 stride=0x40 shrunk": (
        0,
        ONE << 32 | 16 << 16 | 3 << 8 | 2 << 3 | 1 << 2 | 1,
        64,
    ),
    "config_st activation=relu pool_stride=1 pool_size=2 upad=1 lpad=3 out_dim=9 porows=4 pocols=5 orows=6 ocols=7 "
    "stride=0x20 scale=1.0": (
        0,
        7 << 56 | 6 << 48 | 5 << 40 | 4 << 32 | 9 << 24 | 3 << 10 | 1 << 8 | 2 << 6 | 1 << 4 | 1 << 2 | 2,
        ONE << 32 | 32,
    ),
    "mvin dram=0x80000080 local=spad[5] cols=16 rows=3": (2, 0x80000080, 3 << 48 | 16 << 32 | 5),
    "mvin2 dram=0x1000 local=acc+[5] cols=1 rows=1": (1, 0x1000, 1 << 48 | 1 << 32 | 0xC0000005),
    "mvin3 dram=0x0 local=acc[1] cols=1 rows=1": (14, 0, 1 << 48 | 1 << 32 | 0x80000001),
    "mvout dram=0x1000 local=acc.full[2] cols=4 rows=4": (3, 0x1000, 4 << 48 | 4 << 32 | 0xA0000002),
    "preload bd=none bd_cols=4 bd_rows=3 c=acc+[9] c_cols=2 c_rows=1": (
        6,
        3 << 48 | 4 << 32 | 0xFFFFFFFF,
        1 << 48 | 2 << 32 | 0xC0000009,
    ),
    "compute_preloaded a=spad[1] a_cols=4 a_rows=3 bd=spad[2] bd_cols=2 bd_rows=1": (
        4,
        3 << 48 | 4 << 32 | 1,
        1 << 48 | 2 << 32 | 2,
    ),
    "loop_ws_bounds pad_i=1 pad_j=2 pad_k=3 i=4 j=5 k=6": (9, 3 << 32 | 2 << 16 | 1, 6 << 32 | 5 << 16 | 4),
    "loop_ws activation=relu b_spad=1 a_spad=2 ex_accumulate full_c low_d transpose_a transpose_b resadd": (
        8,
        2 << 18 | 1 << 16 | 1 << 8 | 7,
        7,
    ),
    "flush skip": (7, 1, 0),
    "fence": (127, 0, 0),
}


@pytest.mark.parametrize("line", BITS)
def test_bits_and_text(line: str) -> None:
    launch = text.TEXT.read(f"{START}{line}\n")[0]
    command = fields.commands(launch.arrays["insns"])
    assert tuple(command[0].tolist()) == BITS[line]
    assert text.lines(command) == [line]


def test_random_commands_are_read_back_exactly() -> None:
    seed = 5
    rng = np.random.default_rng(seed)
    cmds = rng.integers(0, 1 << 64, (2000, 3), np.uint64)
    cmds[:, 0] = rng.choice([int(form.funct) for form in fields.FORMATS], len(cmds))
    launch = text.TEXT.read(START + "\n".join(text.lines(cmds)) + "\n")[0]
    np.testing.assert_array_equal(fields.commands(launch.arrays["insns"]), cmds, err_msg=f"seed {seed}")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("mvin dram=0x1000 local=spad cols=1 rows=1", r"line 4, column 24.*spad\[ROW\]"),
        ("mvin dram=0x1000 local=spad[0] cols=70000 rows=1", "line 4.*65535"),
        ("config_ex dataflow=sw", "one of os, ws"),
        ("config_ld scale=much", "a number, or the bits"),
        ("move dram=0", "one of config_ex"),
    ],
)
def test_wrong_text_names_the_place_and_what_was_expected(line: str, expected: str) -> None:
    target = get("gemmini")
    with pytest.raises(ProgramError, match=expected):
        target.assemble(f"{START}{line}\n", target.config(None, {}))


def test_the_header_has_every_command() -> None:
    target = get("gemmini")
    header = target.header(target.config(None, {}))
    defined = dict(
        line.split()[1:3] for line in header.splitlines() if line.startswith("#define ") and line[-1].isdigit()
    )
    assert defined["GEMMINI_FUNCT_MVOUT"] == "3"
    assert (defined["GEMMINI_LOOP_CONV_WS_3_RS1_KROWS_0"], defined["GEMMINI_LOOP_CONV_WS_3_RS1_KROWS_1"]) == (
        "48",
        "63",
    )
