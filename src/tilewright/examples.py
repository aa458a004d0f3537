"""The example programs and models that ship with Tilewright."""

from __future__ import annotations

from pathlib import Path

from tilewright.errors import InputError
from tilewright.files import write_folder
from tilewright.install import checkout

#: Folders that tools create beside the examples.
LEFT_OUT = ("__pycache__", ".mypy_cache", ".ruff_cache")


def folder() -> Path:
    """Return the folder of the examples. Raises InputError if this installation has no examples."""
    root = checkout()
    examples = root / "examples" if root else Path(__file__).parent / "_examples"
    if not examples.is_dir():
        raise InputError("examples", f"this installation has none: {examples} is missing", "install Tilewright again")
    return examples


def files() -> list[Path]:
    root = folder()
    paths = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return sorted(path for path in paths if not set(LEFT_OUT) & set(path.parts))


def copy(into: Path) -> list[Path]:
    """Copy the examples into a new or empty folder, and return their paths relative to this folder.

    Raises InputError if the folder is not empty or cannot be written.
    """
    try:
        if into.exists() and any(into.iterdir()):
            raise InputError(into, "is not empty, and files are never overwritten", "name a new folder")
    except OSError as error:
        raise InputError(into, f"cannot be written: {error.strerror or error}") from None
    paths = files()
    write_folder(into, {str(path): (folder() / path).read_bytes() for path in paths})
    return paths
