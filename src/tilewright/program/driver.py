"""The files of a host driver in C: templates with @name@ placeholders, and the folder that they are written to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.errors import InputError


def filled(folder: Path, names: Sequence[str], values: Mapping[str, object]) -> dict[str, bytes]:
    """Return the templates `names` of a folder with the values in the place of their placeholders, by name."""
    texts = {name: (folder / name).read_text("ascii") for name in names}
    for key, value in values.items():
        texts = {name: text.replace(f"@{key}@", str(value)) for name, text in texts.items()}
    return {name: text.encode("ascii") for name, text in texts.items()}


def write(files: Mapping[str, bytes], folder: str | Path) -> None:
    """Write files to a folder, which is made. Raises InputError if it cannot be written."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        raise InputError(str(folder), f"cannot be written: {error.strerror or error}") from None
