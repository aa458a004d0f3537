"""Compiled loops are kept on disk, loaded without Numba, and compiled again where what they were made from changes."""

from __future__ import annotations

import ctypes
import math
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.sim import native
from tilewright.sim.jit import compiled, part

LOOP = """
import sys
from typing import NamedTuple
import numpy as np
from tilewright.sim.jit import compiled, part

class Pair(NamedTuple):
    a: np.ndarray
    times: int

@part
def one(value, times):
    return value * times + FACTOR

@compiled
def total(pair: Pair, half: float, add: bool) -> int:
    found = 0
    for i in range(pair.a.shape[0]):
        found += one(pair.a[i], pair.times)
    pair.a[0] = 7
    return found + (1 if add else 0) + int(2 * half)

values = np.arange(5)
print(total(Pair(values, 3), 1.5, True), values[0], "numba" in sys.modules, "llvmlite" in sys.modules)
"""


def ran(path: Path) -> list[str]:
    return subprocess.run([sys.executable, path], capture_output=True, text=True, check=True).stdout.split()


def files(folder: Path) -> list[Path]:
    return sorted((folder / "__pycache__").glob("*.loop"))


def test_a_kept_loop_needs_no_numba_until_its_file_or_source_changes(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(LOOP.replace("FACTOR", "0"))
    result = [str(3 * 10 + 1 + 3), "7"]
    assert ran(script) == [*result, "True", "True"]
    (kept,) = files(tmp_path)
    assert ran(script) == [*result, "False", "True"]

    damaged = bytearray(kept.read_bytes())
    damaged[-1] ^= 1
    kept.write_bytes(damaged)
    assert ran(script) == [*result, "True", "True"]
    assert files(tmp_path) == [kept]
    assert ran(script) == [*result, "False", "True"]

    script.write_text(LOOP.replace("FACTOR", "1"))  # in a part
    assert ran(script) == [str(3 * 10 + 5 + 1 + 3), "7", "True", "True"]
    assert files(tmp_path) == [kept]


def test_a_kept_loop_depends_on_parts_in_other_modules(tmp_path: Path) -> None:
    head, rest = LOOP.split("@part")
    code, rest = rest.split("@compiled")
    (tmp_path / "script.py").write_text(f"from below import one{head}@compiled{rest}")
    for factor, expected in (("0", 34), ("1", 39)):
        (tmp_path / "below.py").write_text(
            "from below_that import least\n" + head + "@part" + code.replace("FACTOR", "least(1)")
        )
        (tmp_path / "below_that.py").write_text(f"{head}@part\ndef least(value):\n    return value * {factor}\n")
        assert ran(tmp_path / "script.py") == [str(expected), "7", "True", "True"]
        assert ran(tmp_path / "script.py") == [str(expected), "7", "False", "True"]


def test_a_loop_is_kept_in_the_users_folder_if_its_own_is_not_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, home = tmp_path / "script.py", tmp_path / "home"
    script.write_text(LOOP.replace("FACTOR", "0"))
    (tmp_path / "__pycache__").write_text("a file, so that no folder of this name can be made")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(home))
    assert ran(script)[2:] == ["True", "True"]
    assert len([*(home / "loops").iterdir()]) == 1
    assert ran(script)[2:] == ["False", "True"]

    (home / "loops").rename(home / "moved")
    (home / "loops").write_text("likewise")
    assert ran(script)[2:] == ["True", "True"]


class Columns(NamedTuple):
    a: Array
    b: Array


@part
def weighed(value: int, row: int, column: int) -> int:
    return value * (3 * row + column)


@compiled
def summed(columns: Columns, out: Array) -> int:
    total = 0
    for row in range(columns.a.shape[0]):
        for column in range(columns.a.shape[1]):
            out[row, column] = weighed(columns.a[row, column], row, column)
            total += columns.a[row, column] * columns.b[column]
    return total


@compiled
def divided(a: int, b: int) -> int:
    return a // b


@pytest.mark.parametrize("kind", [np.int8, np.int64, np.bool_])
def test_layouts_and_types(kind: type) -> None:
    rng = np.random.default_rng(1)
    whole: Array = rng.integers(0, 2, (8, 12)).astype(kind)
    for a in (whole, whole.T, whole[::2, ::-3], whole[:0], whole[1:2, 1:]):
        columns, out = Columns(a, np.arange(a.shape[1])), np.zeros((2, *a.shape), np.int64)
        assert summed(columns, out[0]) == summed.python(columns, out[1]) == (a.astype(int) @ columns.b).sum()
        np.testing.assert_array_equal(out[0], out[1])
    assert len(summed._native) >= 3


def test_numbers_and_exceptions() -> None:
    assert divided(int(np.int32(7)), True) == 7
    assert divided(-(1 << 40), 3) == -(1 << 40) // 3
    with pytest.raises(RuntimeError, match="divided raised an exception in compiled code"):
        divided(1, 0)


def test_a_loop_may_not_allocate_or_use_numbas_library() -> None:
    import numba

    def allocates(a: Array) -> int:
        return int(a.copy()[0])

    def calls(a: float) -> int:
        return math.frexp(a)[1]

    with pytest.raises(numba.core.errors.NumbaError):
        native.load(allocates, [np.zeros(1)])
    with pytest.raises(AssertionError, match=r"calls uses .*, which is not in its own code"):
        native.load(calls, [1.0])


@compiled
def added(columns: Columns, out: Array, factor: int) -> None:
    for i in range(out.shape[0]):
        out[i] += factor * columns.a[i] + columns.b.shape[0]


@compiled
def calls_a_loop(address: int, columns: Columns, out: Array, times: int) -> None:
    for i in range(times):
        native.call_loop(address, columns, out, np.int8(i))


def test_a_loop_calls_another_one_by_its_address() -> None:
    columns, out = Columns(np.arange(3), np.zeros(5)), np.full(3, 100)
    address = added.loaded((columns, out, 1)).address
    calls_a_loop(address, columns, out, 4)  # 1 + 2 + 3, and four times 5
    assert out.tolist() == [120, 126, 132]
    with pytest.raises(TypeError, match="only compiled code"):
        native.call_loop(address, columns, out, 1)


@compiled
def calls_c(address: int, out: Array, more: int) -> int:
    total = 0
    for i in range(out.shape[0]):
        total += native.call_c(address, out[i], more, -1)
    return total


def test_compiled_and_uncompiled_code_call_a_c_function() -> None:
    seen = []

    def function(a: int, b: int, c: int) -> int:
        seen.append((a, b, c))
        return a + 10 * b

    callback = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 4)(function)
    address = ctypes.cast(callback, ctypes.c_void_p).value
    assert address is not None
    values = np.array([1, -2], np.int32)
    for caller in (calls_c, calls_c.python):
        seen.clear()
        assert caller(address, values, 1 << 40) == -1 + (20 << 40)
        assert seen == [(1, 1 << 40, -1), (-2, 1 << 40, -1)]
