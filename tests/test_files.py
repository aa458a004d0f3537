"""Output files: whole or not at all, and devices as they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tilewright import files
from tilewright.errors import InputError


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old")
    with pytest.raises(RuntimeError), files.replacing(path) as file:
        file.write(b"half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["f"]


def test_a_device_is_written_in_place() -> None:
    with files.replacing(os.devnull) as file:
        file.write(b"x")
    assert Path(os.devnull).is_char_device()


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with files.replacing(tmp_path / "link") as file:
        file.write(b"x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"x"


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none" / "f"):
        with pytest.raises(InputError, match=f"{path}: cannot be written: "), files.replacing(path):
            pass
