"""Golden vector files: arrays and descriptions, as they are; section "ops" of their README."""

from __future__ import annotations

import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

from tilewright import files
from tilewright.array import Array
from tilewright.errors import InputError


def arrays(path: Path) -> dict[str, Array]:
    """The arrays of an .npz. Raises InputError."""
    try:
        return files.arrays(path)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(str(path), f"cannot be read: {error}", "give the .npz files of tpu_vectors") from None


def described(path: Path) -> Any:
    """A .json beside the arrays. Raises InputError."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(str(path), f"cannot be read: {error}", "give the files of tpu_vectors") from None
