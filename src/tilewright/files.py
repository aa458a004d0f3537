"""Where files are kept; output files, written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from platformdirs import user_cache_path

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
