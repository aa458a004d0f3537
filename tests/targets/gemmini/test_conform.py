"""`conform` on golden vectors, and on vectors that were made wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import SHARED
from tests.targets.gemmini.vectors import FOLDER, names
from tilewright.array import Array
from tilewright.errors import InputError
from tilewright.targets.gemmini.conformance import conform

pytestmark = pytest.mark.golden
#: One program of each kind, the quick ones.
QUICK = (
    "default__div_relu_negscale",
    "default__div_ld_ld_waw",
    "default__mmws_00",
    "dim8__norm_softmax",
    "dim4__loopdw_01",
)


@pytest.mark.parametrize("name", QUICK)
def test_golden_programs_pass(name: str) -> None:
    case = conform(FOLDER / f"{name}.npz")
    assert case.passed, case.reason


@pytest.mark.slow
def test_all_golden_programs_pass() -> None:
    failed = [case for name in names() if not (case := conform(FOLDER / f"{name}.npz")).passed]
    assert not failed, failed[0].reason


SIZES = SHARED / "gemmini_sizes"
#: The clock assumes that no sum is 0, and that a second softmax waits for the first.
INEXACT = {"norm8__norm_layernorm_zero", "norm4__norm_softmax_pairs", "norm8__norm_softmax_pairs"}


def test_programs_of_upstreams_chisel_in_other_sizes_pass() -> None:
    """Both revisions, all bytes, totals and times of commands."""
    cases = [conform(path) for path in sorted(SIZES.glob("*.npz"))]
    if not cases:
        pytest.skip(f"{SIZES} is missing")
    assert {case.name for case in cases if not case.passed} == INEXACT
    assert {"norm8__norm_softmax_8", "dim8_2025__mvout_03", "mixB__os_06"} < {case.name for case in cases}
    totals = {name: count for case in cases if case.passed for name, count in case.counts.items()}
    assert {name.rpartition(", ")[2] for name in totals} >= {f"u25 at latency {latency}" for latency in (16, 100)}


def _changed(tmp_path: Path, name: str, **arrays: Array) -> Path:
    """Return a copy of a vector with other arrays, and without an index."""
    path = tmp_path / f"{name}.npz"
    with np.load(FOLDER / f"{name}.npz") as vector:
        np.savez(path, **{**dict(vector), **arrays})
    return path


@pytest.mark.parametrize("name", ["default__div_relu_negscale", "dim4__loopdw_01"])
def test_a_wrong_byte_is_found(name: str, tmp_path: Path) -> None:
    with np.load(FOLDER / f"{name}.npz") as vector:
        data = vector["out_bytes"].copy()
    data[3] ^= 1
    case = conform(_changed(tmp_path, name, out_bytes=data))
    assert not case.passed
    assert case.reason.startswith("functional: 1 bytes differ, the first at 0x8")


def test_a_wrong_byte_of_the_rtl_is_found(tmp_path: Path) -> None:
    name = "default__div_relu_negscale"
    with np.load(FOLDER / f"{name}.npz") as vector:
        data = vector["out_bytes_both_16"].copy()
    data[3] ^= 1
    case = conform(_changed(tmp_path, name, out_bytes_both_16=data))
    assert case.reason.startswith("RTL both, latency 16: 1 bytes differ")


def test_a_hazard_in_a_program_that_agrees_is_found(tmp_path: Path) -> None:
    name = "default__div_ld_ld_waw"
    with np.load(FOLDER / f"{name}.npz") as vector:
        kept = {key: value for key, value in vector.items() if not key.startswith("out_bytes_")}
    path = tmp_path / f"{name}.npz"
    np.savez(path, **kept)
    assert "the check reports a correct program: race" in conform(path).reason


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(b"no archive")
    with pytest.raises(InputError, match="is damaged or not an"):
        conform(path)
    shutil.copy(FOLDER / f"{QUICK[0]}.npz", tmp_path / "nothing__x.npz")
    assert "there is no preset" in conform(tmp_path / "nothing__x.npz").reason
