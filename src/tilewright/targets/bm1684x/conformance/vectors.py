"""Golden vector files: arrays and descriptions, as they are; section "ops" of their README.

An InputError names the file and what it lacks.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tilewright import files
from tilewright.array import Array
from tilewright.errors import InputError
from tilewright.files import Entries

REMEDY = "give the files of tpu_vectors"


def arrays(path: Path) -> Mapping[str, Array]:
    """The arrays of an .npz. Raises InputError, also where one is asked for that it does not have."""
    try:
        return Entries(path, "array", REMEDY, files.arrays(path))
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(str(path), f"cannot be read: {error}", REMEDY) from None


def described(path: Path) -> Any:
    """A .json beside the arrays. Raises InputError, also where a key is asked for that an object does not have."""
    try:
        text = files.regular(path).read_text(encoding="utf-8")
        return json.loads(text, object_hook=partial(Entries, path, "key", REMEDY))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(str(path), f"cannot be read: {error}", REMEDY) from None
