"""Where files are kept; input files, which are regular files; output files, written whole or not at all; archives."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import numpy as np
from platformdirs import user_cache_path

from tilewright.array import Array
from tilewright.errors import InputError, TilewrightError


def user_folder() -> Path:
    """$TILEWRIGHT_CACHE_DIR, else `tilewright` in the user's cache folder ($XDG_CACHE_HOME, ~/.cache)."""
    given = os.environ.get("TILEWRIGHT_CACHE_DIR")
    return Path(given) if given else user_cache_path("tilewright", appauthor=False)


#: What is found in the place of a file, by the type of its inode.
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def regular(path: str | Path, error: type[TilewrightError] = InputError) -> Path:
    """The path of an input file, which must be a regular one or a link to one. Raises `error` naming what it is.

    Every file that a user names is checked here before it is opened: a pipe may never be written to, and a device may
    never end.
    """
    path = Path(path)
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except (OSError, ValueError) as found:  # ValueError: a null character
        reason = found.strerror if isinstance(found, OSError) else str(found)
        raise error(str(path), f"is not a file: {reason}") from None
    if kind != stat.S_IFREG:
        remedy = "" if kind == stat.S_IFDIR else "save what it gives to a file first"
        raise error(str(path), f"is not a file but {KINDS.get(kind, 'something else')}", remedy)
    return path


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
    """The arrays of an .npz. Raises InputError for what is no regular file.

    Raises ValueError for another file, where NumPy's error advises to load it unsafely.
    """
    with regular(path).open("rb") as file:
        if file.read(4) not in (b"PK\3\4", b"PK\5\6"):
            raise ValueError("it is no .npz archive")
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
