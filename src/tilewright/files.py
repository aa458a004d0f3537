"""Where files are kept; output files, written whole or not at all; archives of arrays."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import numpy as np
from platformdirs import user_cache_path

from tilewright.array import Array
from tilewright.errors import InputError


def user_folder() -> Path:
    """$TILEWRIGHT_CACHE_DIR, else `tilewright` in the user's cache folder ($XDG_CACHE_HOME, ~/.cache)."""
    given = os.environ.get("TILEWRIGHT_CACHE_DIR")
    return Path(given) if given else user_cache_path("tilewright", appauthor=False)


@contextmanager
def replacing(path: str | Path) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of `path` when the block ends without an error.

    What is no plain file (a pipe, /dev/null) is written in place. Raises InputError where it cannot be written.
    """
    path = Path(path)
    temporary = None
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                yield file
            return
        target = path.resolve()
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        with temporary.open("xb") as file:
            yield file
        temporary.replace(target)
    except OSError as error:
        raise InputError(str(path), f"cannot be written: {error.strerror or error}") from None
    finally:
        if temporary:
            with suppress(OSError):
                temporary.unlink()


def arrays(path: Path) -> dict[str, Array]:
    """The arrays of an .npz. Raises ValueError for another file, where NumPy's error advises to load it unsafely."""
    with path.open("rb") as file:
        if file.read(4) not in (b"PK\3\4", b"PK\5\6"):
            raise ValueError("it is no .npz archive")
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
