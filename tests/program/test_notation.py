"""The text of instructions of one layout, and what is refused as code and as text."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import pytest

from tilewright.errors import ProgramError
from tilewright.program.instruction import Field, Form, InstructionSet, Layout, Names, Notation, rows
from tilewright.program.words import split


class Code(IntEnum):
    ADD = 0
    JUMP = 1


LAYOUT = Layout(
    "instruction",
    (Field("code", 2), Field("x", 8), Field("y", 8, signed=True), Field("mode", 2), Field("stop", 1)),
    word_bits=32,
)
SET = InstructionSet(
    LAYOUT, "code", Code, {Code.ADD: ("x", "y"), Code.JUMP: ("x", "mode")}, ("stop",), {"mode": Names(("near", "far"))}
)


def test_lines_say_every_operand_and_the_flags_that_are_set() -> None:
    code = LAYOUT.encode_rows([{"code": 0, "x": 3, "y": -1}, {"code": 1, "mode": 1, "stop": 1}])
    lines = [SET.notation.show(row) for row in rows(SET.decode(code))]
    assert lines == ["add x=3 y=-1", "jump x=0 mode=far stop"]
    np.testing.assert_array_equal(LAYOUT.encode_rows([SET.notation.read(split(line, 1)) for line in lines]), code)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"code": 2}, "instruction 1: 02000000 is not a legal instruction"),
        ({"code": 0, "mode": 1}, r"instruction 1: .* is not a legal instruction \(add has no mode\)"),
        ({"code": 1, "mode": 2}, "instruction 1: .* is not a legal instruction"),
        ({"code": 0, "reserved": 1 << 31}, "instruction 1: .* is not a legal instruction"),
    ],
)
def test_code_that_means_nothing_is_refused(row: dict[str, int], said: str) -> None:
    with pytest.raises(ProgramError, match=f"^{said}$"):
        SET.decode(LAYOUT.encode_rows([{"code": 0}, row]))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("mul", "line 3, column 1: found 'mul'; expected one of add, jump"),
        ("add mode=near", "line 3, column 5: found 'mode=near'; expected stop, x=, y="),
        ("add x", "line 3, column 5: found 'x'; expected stop, x=, y="),
        ("add  y=128", r"line 3, column 8: found '128'; expected -128..127 (8 bits)"),
        ("jump mode=up", "line 3, column 11: found 'up'; expected one of near, far"),
        ("add stop stop", "line 3, column 10: found 'stop'; expected stop only once"),
        ("add reserved=1", "line 3, column 5: found 'reserved=1'; expected stop, x=, y="),
    ],
)
def test_errors_name_the_word(line: str, said: str) -> None:
    with pytest.raises(ProgramError) as raised:
        SET.notation.read(split(line, 3))
    assert str(raised.value) == said


@pytest.mark.parametrize(("row", "said"), [({"z": 1}, "there is no field z"), ({"reserved": 1}, "overlap fields")])
def test_rows_that_cannot_be_encoded(row: dict[str, int], said: str) -> None:
    with pytest.raises(ProgramError, match=f"instruction 1: .*{said}"):
        LAYOUT.encode_rows([{}, row])


def test_every_bit_pattern_of_a_machine_that_keeps_reserved_bits_has_a_text() -> None:
    mode = {"mode": Names(("near", "far"), "mode")}
    form = Form(LAYOUT, ("x", "y", "reserved"), plain=("mode",), optional=("x", "y"), names=mode)
    notation = Notation("code", Names(("add",), "code"), dict.fromkeys(range(4), form), lambda row: {"stop": "halt"})
    code = np.random.default_rng(4).integers(0, 256, (64, 4), np.uint8)
    reserved = LAYOUT.reserved(code).view("<u4").reshape(-1).tolist()
    fields = [row | {"reserved": bits} for row, bits in zip(rows(LAYOUT.decode(code)), reserved, strict=True)]
    lines = [notation.show(row) for row in fields]
    np.testing.assert_array_equal(LAYOUT.encode_rows([notation.read(split(line, 1)) for line in lines]), code)
    assert notation.show({"code": 2, "x": 0, "y": 1, "mode": 3, "stop": 1, "reserved": 1 << 31}) == (
        "code2 mode3 y=1 halt reserved=0x80000000"
    )
