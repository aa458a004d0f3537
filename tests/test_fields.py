"""Typed values of JSON and TOML files: what is refused, and that the error says where."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import pytest

from tilewright import fields, files
from tilewright.errors import ConfigError, InputError
from tilewright.fields import DEPTH, FieldError, Open, Range, decode, parsed, record


class Size(NamedTuple):
    rows: int
    columns: Annotated[int, Range(1, 9)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": NaN}', "NaN is not a finite number"),
        ('{"a": -1e400}', "-1e400 is not a finite number"),
        ("9" * 5000, "a number has 5000 digits"),
        ("1" + "0" * 400, "a number has 401 digits"),
        ('{"a": 1, "b": {"a": 1, "a": 2}}', 'key "a" occurs twice'),
        (r'{"a": "\ud800"}', "half of a surrogate pair"),
        (r'{"\udfff": 1}', "half of a surrogate pair"),
        ("[" * (DEPTH + 1) + "]" * (DEPTH + 1), f"more than {DEPTH} levels"),
        ("[" * 100_000, f"more than {DEPTH} levels"),
        ('{"a":' * 100_000 + "0" + "}" * 100_000, f"more than {DEPTH} levels"),
        (b"\xff", "codec can't decode"),
        ("{}".encode("utf-16"), "codec can't decode"),
        ("", "Expecting value"),
    ],
)
def test_what_few_programs_expect_of_json_is_refused(text: str | bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parsed(text)


def test_other_json_is_read_as_python_reads_it() -> None:
    rng = np.random.default_rng(seed := 7)

    def value(depth: int) -> Any:
        kinds: list[Callable[[], Any]] = [
            lambda: int(rng.integers(-(1 << 62), 1 << 62)),
            lambda: float(rng.normal()),
            lambda: None,
            lambda: True,
        ]
        texts = ["", "[[", "}}}", "\\", '"', "\\\\[", "\U0001f600", "\ufeff", "\ud7ff"]
        kinds += [lambda: texts[int(rng.integers(len(texts)))]] * 2
        if depth:
            kinds += [lambda: [value(depth - 1) for _ in range(3)]] * 2
            kinds += [lambda: {f"{texts[i]}{i}": value(depth - 1) for i in range(3)}] * 2
        return kinds[int(rng.integers(len(kinds)))]()

    for _ in range(300):
        made = value(4)
        for text in (json.dumps(made), json.dumps(made, ensure_ascii=False)):
            assert parsed(text) == made, f"seed {seed}"
            assert parsed(b"\xef\xbb\xbf" + text.encode()) == made
    assert parsed("[" * DEPTH + "]" * DEPTH)


@pytest.mark.parametrize(
    ("hint", "value", "said"),
    [
        (str | tuple[int, ...], 2.5, "v: is 2.5, not a text or a list"),
        (dict[str, int], {"a": "b"}, 'v.a: is "b", not an integer'),
        (list[int], [1, None], r"v\[1\]: is null, not an integer"),
        (Size, {"rows": 1, "columns": 10}, "v.columns: is 10; it must be 1 to 9"),
        (Size, {"rows": 1, "columns": 2, "row": 3}, 'v: has "row", which is unknown; .*did you mean rows'),
        (Annotated[float, Range(0)], -0.5, "v: is -0.5; it must be at least 0"),
        (Literal["left", "right"], ["left"], r'v: is \["left"\]; choose one of left, right'),
        (Open({"a": int}), {"b": 1}, "v: lacks 'a'"),
    ],
)
def test_values_of_other_types_are_named(hint: Any, value: Any, said: str) -> None:
    with pytest.raises(FieldError, match=f"^{said}"):
        decode(hint, value, "v")


def test_keys_that_may_be_missing_have_a_value() -> None:
    assert record({"a": int, "b": int | None}, {"b": 3}, "", {"a": 1}) == {"a": 1, "b": 3}
    assert decode(Open({"a": int}), {"a": 1, "c": "x"}, "") == {"a": 1}
    assert decode(Size, {"rows": 2, "columns": 3}, "") == Size(2, 3)


def test_errors_of_files_name_them(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for content, said in ((b"[1]", "is not a JSON object; fix it"), (b"{", "cannot be read as JSON: .*; fix it")):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=f"x.json: {said}"):
            fields.read(path, ConfigError, "fix it")
    (tmp_path / "x.toml").write_text(f"a = {'9' * 5000}")
    with pytest.raises(InputError, match=r"x.toml: cannot be read as TOML"):
        fields.read(tmp_path / "x.toml")
    with path.open("wb") as file:
        file.truncate(fields.MAX_BYTES + 1)  # takes no space on the disk
    with pytest.raises(InputError, match="is larger than 32 MiB"):
        fields.read(path)


HEADS = (
    "(" * 300,
    "{",
    "{'a': (",
    "1 +",
    "[" * 90_000,
    "{1: 2}",
    "'\\",
    "{'descr': 'O', 'fortran_order': False, 'shape': ()}",
)


@pytest.mark.parametrize("head", HEADS, ids=range(len(HEADS)))
def test_headers_of_arrays_that_are_no_header_are_refused(head: str, tmp_path: Path) -> None:
    """NumPy evaluates them as Python literals, which fails in many ways."""
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + (len(head) & 0xFFFF).to_bytes(2, "little") + head.encode())
    with pytest.raises(InputError, match=r"x.npy: is damaged or not a .npy file: "):
        files.array(path)


def test_texts_of_numbers_that_are_no_characters_are_refused(tmp_path: Path) -> None:
    for code in (0x110000, 0xFFFFFFFF, 0xD800):
        np.savez(tmp_path / "x.npz", meta=np.array([code], np.uint32).view("U1"))
        with pytest.raises(InputError, match="no character"):
            files.arrays(tmp_path / "x.npz")


def test_sizes_of_arrays_are_checked_before_memory_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    for shape in ("(1 << 40,)", "(4611686018427387904,)", "(-1,)", "(99999999999, 0)", f"({'1, ' * 99})"):
        head = f"{{'descr': '|i1', 'fortran_order': False, 'shape': {shape}, }}\n"
        path.write_bytes(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + bytes(64))
        try:
            assert files.array(path).size == 0
        except InputError as error:
            assert len(str(error)) < 400
