"""A store of results on disk for reuse by later processes, such as the cycles of plans.

Each version of the sources has a separate file, because other versions may compute other results. If the folder or the
file is unusable, nothing is stored.
"""

from __future__ import annotations

import json
import re
import sqlite3
import zlib
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from time import monotonic
from typing import Any

from tilewright.files import sources
from tilewright.program.cache import PACKAGE

#: When a file has this size (1 GiB), no more results are added to it.
LIMIT = 1 << 30
#: The number of files to keep: one for each of the last versions of the sources.
VERSIONS = 2
#: The number of seconds to wait while another process writes to the file.
PATIENCE = 10.0
#: New results are written to the file at intervals of this many seconds.
SOON = 0.25
#: Values with more bytes than this are compressed.
LONG = 256
_FILES = re.compile(r"[0-9a-f]{16}\.sqlite")
_TABLE = "CREATE TABLE IF NOT EXISTS results (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID"


class Remembered:
    """A store of JSON values under text keys. Several processes may use the store at the same time."""

    def __init__(self, folder: Path, package: Path, limit: int = LIMIT) -> None:
        """Open the file of the present sources of Tilewright and of `package`."""
        self._new: dict[bytes, bytes] = {}
        self._limit = limit
        self._written = monotonic()
        self._file: sqlite3.Connection | None = None
        with suppress(OSError, sqlite3.Error):
            name = blake2b((sources(PACKAGE) + sources(package)).encode(), digest_size=8).hexdigest()
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{name}.sqlite"
            # The sources are new, so files of older sources may be deleted.
            if not path.exists():
                _forget(folder)
            self._file = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
            self._file.execute("PRAGMA journal_mode=WAL")
            self._file.execute("PRAGMA synchronous=NORMAL")
            self._file.execute(_TABLE)

    def get(self, key: str) -> Any:
        if self._file is None:
            return None
        name = _name(key)
        data = self._new.get(name)
        if data is None:
            with suppress(sqlite3.Error):
                row = self._file.execute("SELECT value FROM results WHERE key = ?", (name,)).fetchone()
                data = row and row[0]
        with suppress(ValueError, zlib.error):  # a damaged value
            return None if data is None else _unpacked(data)
        return None

    def put(self, key: str, value: Any) -> None:
        """Store a value in memory. A call of `flush`, or a later `put` (see SOON), writes the value to the file."""
        if self._file is not None:
            self._new[_name(key)] = _packed(value)
            if monotonic() > self._written + SOON:
                self.flush()

    def flush(self) -> None:
        """Write the new values to the file, unless the file has reached its limit."""
        if self._file is None or not self._new:
            return
        with suppress(sqlite3.Error):  # the disk is full, or the file is locked: keep the values in memory
            pages, size = (self._file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
            if pages * size < self._limit:
                with self._file:  # commits or rolls back
                    self._file.execute("BEGIN IMMEDIATE")
                    self._file.executemany("INSERT OR IGNORE INTO results VALUES (?, ?)", list(self._new.items()))
            self._new.clear()
        self._written = monotonic()

    def close(self) -> None:
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None


def _name(key: str) -> bytes:
    return blake2b(key.encode(), digest_size=16).digest()


def _packed(value: Any) -> bytes:
    # zlib's data begins with `x`, and JSON does not, so `_unpacked` can tell them apart.
    data = json.dumps(value, separators=(",", ":")).encode()
    return zlib.compress(data, 1) if len(data) > LONG else data


def _unpacked(data: bytes) -> Any:
    return json.loads(zlib.decompress(data) if data[:1] == b"x" else data)


def _forget(folder: Path) -> None:
    files = sorted(
        (path for path in folder.iterdir() if _FILES.fullmatch(path.name)), key=lambda path: -path.stat().st_mtime
    )
    for path in files[VERSIONS:]:
        for end in ("", "-wal", "-shm"):
            with suppress(OSError):
                path.with_name(path.name + end).unlink()
