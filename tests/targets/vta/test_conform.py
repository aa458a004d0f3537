"""Upstream's golden vectors: every one whose primary reference is the HLS model."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from tilewright.errors import InputError
from tilewright.targets.vta.conform import conform


def vectors(shared: Path, primary: bool) -> list[Path]:
    """Vector files whose primary reference is hls; `primary` False: the broken programs."""
    found = []
    for path in sorted((shared / "vta_vectors").glob("*.npz")):
        with np.load(path) as archive:
            meta = json.loads(str(archive["meta"]))
        if ("expect" not in meta and meta["primary"] == "hls") if primary else "expect" in meta:
            found.append(path)
    assert found
    return found


def test_programs_give_the_bytes_of_the_hls_model(shared: Path) -> None:
    failures = [(case.name, case.reason) for path in vectors(shared, True) if not (case := conform(path)).passed]
    assert not failures


def test_broken_programs_get_the_right_diagnosis(shared: Path) -> None:
    failures = [(case.name, case.reason) for path in vectors(shared, False) if not (case := conform(path)).passed]
    assert not failures


def test_a_wrong_byte_is_seen(shared: Path, tmp_path: Path) -> None:
    path = vectors(shared, True)[0]
    with np.load(path) as archive:
        data = dict(archive)
    data["out_after"] = data["out_after"].copy()
    data["out_after"][3, 1] ^= 1
    np.savez(tmp_path / "wrong.npz", **data)
    case = conform(tmp_path / "wrong.npz")
    assert not case.passed
    assert "out[3]" in case.reason


def test_what_is_not_a_vector_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    np.save(tmp_path / "array.npy", np.zeros(3))
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps({}))
    np.savez(tmp_path / "objects.npz", meta=np.array([{}], object))
    for name in ("array.npy", "text.npz", "pickle.npz", "objects.npz"):
        with pytest.raises(InputError, match=f"{name}: is damaged or not an .npz archive: ") as caught:
            conform(tmp_path / name)
        assert "unsafe" not in str(caught.value)
    with pytest.raises(InputError, match=r"other.npz: has no array 'meta' \(found: x\); give the .npz files"):
        conform(tmp_path / "other.npz")
    with pytest.raises(InputError, match=r"absent.npz: is not a file: No such file"):
        conform(tmp_path / "absent.npz")


@pytest.mark.parametrize("name", ["insn", "uop", "inp", "out_before", "out_after", "primary"])
def test_what_a_vector_lacks_is_named(name: str, shared: Path, tmp_path: Path) -> None:
    path, source = tmp_path / "less.npz", vectors(shared, True)[0]
    with np.load(source) as archive:
        data = dict(archive)
    if name == "primary":
        meta = json.loads(str(data["meta"]))
        del meta[name]
        data["meta"] = np.array(json.dumps(meta))
    else:
        del data[name]
    np.savez(path, **data)
    case = conform(path)
    assert not case.passed
    assert case.reason.startswith(
        f"{path}: has no {'key of `meta`' if name == 'primary' else 'array'} '{name}' (found: "
    )


def test_arrays_of_another_kind_are_the_files_fault(shared: Path, tmp_path: Path) -> None:
    path, source = tmp_path / "odd.npz", vectors(shared, True)[0]
    with np.load(source) as archive:
        data = dict(archive)
    for name, odd in (("insn", np.zeros(3)), ("out_after", np.zeros((2, 2), np.uint8)), ("out_before", np.array("x"))):
        np.savez(path, **{**data, name: odd})
        case = conform(path)
        assert (case.passed, bool(case.reason)) == (False, True), name
