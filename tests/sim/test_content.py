"""Machine code on disk is not used once anything that it was compiled from is another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CONSTANTS = """
from enum import IntEnum
from typing import NamedTuple
import numpy as np

NUMBER, HIDDEN = 1, 1
TABLE = np.array([1, 2])
PAIR = 1, 2

class Index(IntEnum):
    FIRST = 0
    SECOND = 1

class Fields(NamedTuple):
    a: int
    b: int

class State(NamedTuple):
    fields: Fields
    out: np.ndarray

def below(x):
    return x + HIDDEN

def emit(builder, bits, operands):
    from llvmlite import ir
    place = builder.gep(operands[0], [ir.Constant(ir.IntType(64), 1)])
    builder.store(ir.Constant(ir.IntType(64), emitted()), place)

def emitted():
    return OFFSETS[0]

OFFSETS = [50]
"""
LOOP = """
import sys
import numpy as np
import constants
from constants import PAIR, TABLE, Fields, Index, State, below, emit
from tilewright.sim.jit import compiled, in_llvm, part

@part
def above(x, more=10):
    return below(x) + constants.NUMBER + more

@in_llvm(emit)
def write(out):
    out[1] = 50

@compiled
def loop(state):
    state.out[Index.SECOND] = 7
    write(state.out)
    return above(TABLE[0]) + 100 * PAIR[1] + 1000 * (state.fields.a - state.fields.b)

out = np.zeros(3, np.int64)
print(loop(State(Fields(a=5, b=3), out)), *out.tolist(), "numba" in sys.modules)
"""


def ran(folder: Path, constants: str = CONSTANTS, loop: str = LOOP) -> list[str]:
    """Return what the loop gives, and whether it was compiled for it."""
    (folder / "constants.py").write_text(constants)
    (folder / "loop.py").write_text(loop)
    command = [sys.executable, "-B", str(folder / "loop.py")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


#: A text of the constants' file, what it becomes, and what the loop then gives.
CHANGES = {
    "a member of a module": ("NUMBER, HIDDEN = 1", "NUMBER, HIDDEN = 2", "2214 0 50 0"),
    "a constant of a function in another file": ("HIDDEN = 1, 1", "HIDDEN = 1, 3", "2215 0 50 0"),
    "an array": ("[1, 2]", "[3, 2]", "2215 0 50 0"),
    "a tuple": ("PAIR = 1, 2", "PAIR = 1, 3", "2313 0 50 0"),
    "an enumeration": ("SECOND = 1", "SECOND = 2", "2213 0 50 7"),
    "the code of a function": ("x + HIDDEN", "x - HIDDEN", "2211 0 50 0"),
    "the order of fields": ("    a: int\n    b: int", "    b: int\n    a: int", "2213 0 50 0"),
    "what writes LLVM's code": ("64), 1)", "64), 2)", "2213 0 7 50"),
    "what that calls": ("return OFFSETS[0]", "return OFFSETS[0] + 1", "2213 0 51 0"),
    "what that reads": ("OFFSETS = [50]", "OFFSETS = [60]", "2213 0 60 0"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_constant_is_compiled_again(change: str, tmp_path: Path) -> None:
    before, after, expected = CHANGES[change]
    assert CONSTANTS.count(before) == 1
    assert ran(tmp_path) == ["2213", "0", "50", "0", "True"]
    assert ran(tmp_path) == ["2213", "0", "50", "0", "False"]
    assert ran(tmp_path, CONSTANTS.replace(before, after)) == [*expected.split(), "True"]
    assert ran(tmp_path, CONSTANTS.replace(before, after)) == [*expected.split(), "False"]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [("more=10", "more=11", "2214"), ("100 *", "200 *", "2413"), ("@part\n", "", "2213")],
)
def test_a_changed_loop_is_compiled_again(before: str, after: str, expected: str, tmp_path: Path) -> None:
    assert LOOP.count(before) == 1
    assert ran(tmp_path)[0] == "2213"
    assert ran(tmp_path, loop=LOOP.replace(before, after)) == [expected, "0", "50", "0", "True"]


def test_comments_and_other_values_of_the_files_do_not_matter(tmp_path: Path) -> None:
    ran(tmp_path)
    assert ran(tmp_path, f"# a comment\n{CONSTANTS}\nOTHER = 1\n", f"# a comment\n{LOOP}")[-1] == "False"
