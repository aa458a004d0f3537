"""A compiled program of each target as text, in tests/golden/programs: its diff shows what a changed compiler does."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from itertools import groupby

import pytest

import tilewright as tw
from tests.conftest import ROOT
from tilewright import targets

DIGITS = ROOT / "examples" / "digits" / "digits.tflite"
#: Bytes of weights, constants and tables, in lines of their own. The first few are shown.
BYTES, SHOWN = re.compile(r"[0-9a-f]{9,}"), 2
#: CFU: what the C compiler decides, which differs between compilers.
COMPILED = re.compile(r"^\.(model|symbol) .*\n|^\.code\n(?s:.*)(?=^\.blob)", re.MULTILINE)


@pytest.mark.parametrize("name", targets.names())
def test_the_program_of_the_digits(name: str, golden: Callable[[str, str], None]) -> None:
    text = targets.get(name).disassemble(tw.compile(DIGITS, name))
    lines = (COMPILED.sub("", text) if name == "cfu" else text).splitlines()
    golden(f"programs/{name}.digits.txt", "\n".join(shortened(lines)) + "\n")


def shortened(lines: list[str]) -> list[str]:
    """The lines, with a count and a hash for all but the first few of many lines of bytes."""
    made: list[str] = []
    for is_bytes, group in groupby(lines, lambda line: BYTES.fullmatch(line) is not None):
        block = list(group)
        made += block[:SHOWN] if is_bytes else block
        if is_bytes and (rest := block[SHOWN:]):
            made.append(f"... {len(rest)} lines, sha256 {sha256(chr(10).join(rest).encode()).hexdigest()[:16]}")
    return made
