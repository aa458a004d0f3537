"""Bit fields: where they land, that they come back, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import ConfigError, ProgramError
from tilewright.program.instruction import Field, Layout


def layout(*widths: int, word_bits: int = 64, words: int = 0) -> Layout:
    return Layout("test", tuple(Field(f"f{i}", width) for i, width in enumerate(widths)), word_bits, words)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    word_bits = draw(st.sampled_from([8, 16, 32, 64]))
    shapes = draw(st.lists(st.tuples(st.integers(1, word_bits), st.booleans()), min_size=1, max_size=12))
    fields = tuple(Field(f"f{i}", min(w, 63 + s), s) for i, (w, s) in enumerate(shapes))
    return Layout("random", fields, word_bits)


def test_a_field_never_straddles_a_word() -> None:
    assert list(layout(60, 4, 1).offsets.values()) == [0, 60, 64]
    assert list(layout(60, 5, 1).offsets.values()) == [0, 64, 69]
    assert list(layout(30, 3, 30, word_bits=32).offsets.values()) == [0, 32, 64]
    assert layout(30, 3, word_bits=32).bits == 64


def test_words_are_little_endian_and_packed_lsb_first() -> None:
    fields = (Field("a", 3), Field("b", 13), Field("c", 16, signed=True))
    raw = Layout("test", fields, 32).encode({"a": [5], "b": [0x1234], "c": [-2]})
    assert raw.tobytes() == (5 | 0x1234 << 3 | 0xFFFE << 16).to_bytes(4, "little")


def test_a_1024_bit_command_of_mixed_fields() -> None:
    wide = Layout("command", tuple(Field(f"f{i}", 64, signed=True) for i in range(16)), 64)
    values = {f"f{i}": np.array([-(1 << 63), (1 << 63) - 1, i]) for i in range(16)}
    raw = wide.encode(values)
    assert raw.shape == (3, 128)
    assert all((wide.decode(raw)[name] == column).all() for name, column in values.items())


@given(layouts(), st.integers(0, 2**32 - 1), st.integers(0, 5))
def test_any_bits_decode_and_encode_to_themselves(shape: Layout, seed: int, count: int) -> None:
    raw = np.random.default_rng(seed).integers(0, 256, (count, shape.nbytes), np.uint8)
    columns = shape.decode(raw)
    for field in shape.fields:
        assert ((columns[field.name] >= field.low) & (columns[field.name] <= field.high)).all()
    assert ((shape.encode(columns) | shape.reserved(raw)) == raw).all()


@given(layouts(), st.data())
def test_any_values_encode_and_decode_to_themselves(shape: Layout, data: st.DataObject) -> None:
    values = {f.name: [data.draw(st.integers(f.low, f.high)) for _ in range(3)] for f in shape.fields}
    raw = shape.encode(values)
    assert {name: column.tolist() for name, column in shape.decode(raw).items()} == values
    # The same by arithmetic on one integer an instruction, which shares nothing with the implementation.
    for row in range(3):
        parts = ((values[f.name][row] & ((1 << f.width) - 1)) << shape.offsets[f.name] for f in shape.fields)
        assert int.from_bytes(raw[row].tobytes(), "little") == sum(parts)


def test_a_slice_of_a_larger_array_decodes() -> None:
    raw = np.arange(64, dtype=np.uint8).reshape(4, 16)[::2, 4:8]
    assert layout(8, 8, 16, word_bits=32).decode(raw)["f0"].tolist() == [4, 36]


@pytest.mark.parametrize("value", [8, -1, 1 << 63, 1 << 80, -(1 << 80)])
def test_a_value_that_does_not_fit_is_named(value: int) -> None:
    with pytest.raises(ProgramError, match=rf"^test 2: f0 is {value}, outside 0\.\.7 \(3 bits\)"):
        layout(3, 5).encode({"f0": [1, 7, value], "f1": [0, 0, 0]})


def test_signed_ranges_and_given_row_numbers() -> None:
    signed = Layout("imm", (Field("imm", 16, signed=True),))
    assert signed.decode(signed.encode({"imm": [-32768, 32767]}))["imm"].tolist() == [-32768, 32767]
    with pytest.raises(ProgramError, match=r"^imm 70: imm is 32768, outside -32768\.\.32767"):
        signed.encode({"imm": [0, 32768]}, rows=np.array([60, 70]))


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"f0": [1]}, "columns are missing or unknown: f1"),
        ({"f0": [1], "f1": [1], "f2": [1]}, "columns are missing or unknown: f2"),
        ({"f0": [1, 2], "f1": [1]}, "column f1 is int64 \\[1\\]; give 2 integers"),
        ({"f0": [1], "f1": [0.5]}, "column f1 is float64"),
    ],
)
def test_columns_that_are_not_one_integer_a_field(columns: dict[str, list[int]], reason: str) -> None:
    with pytest.raises(ProgramError, match=reason):
        layout(3, 5).encode(columns)


def test_code_of_another_shape_is_refused() -> None:
    with pytest.raises(ProgramError, match=r"the code is uint8 \[2, 7\]; give uint8 \[n, 8\]"):
        layout(3).decode(np.zeros((2, 7), np.uint8))


def test_fields_that_need_more_words_than_there_are() -> None:
    layout(60, 64 - 4, words=2)
    with pytest.raises(ConfigError, match="need 3 words of 64 bits"):
        layout(60, 60, 5, words=2)


@pytest.mark.parametrize("widths", [(0,), (64,), (65,)])
def test_an_unsigned_field_has_1_to_63_bits(widths: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="f0"):
        layout(*widths)
    with pytest.raises(ValueError, match="word_bits"):
        layout(3, word_bits=24)
    with pytest.raises(ValueError, match="the same name"):
        Layout("test", (Field("a", 1), Field("a", 1)))


def test_no_instructions() -> None:
    empty = layout(3, 5).encode({"f0": [], "f1": []})
    assert empty.shape == (0, 8)
    assert layout(3, 5).decode(empty)["f0"].shape == (0,)
