"""Numbers kept on disk by key, for processes and sessions that would compute them again: times of plans, for example.

A file belongs to one version of the sources. If the folder or the file is unusable, nothing is remembered.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from tilewright.program.cache import PACKAGE, sources

#: Bytes of a file (1 GiB) above which nothing is added, and how many files of other versions are kept.
LIMIT, VERSIONS = 1 << 30, 2
#: Seconds to wait for other processes that write.
PATIENCE = 10.0
_OURS = re.compile(r"[0-9a-f]{16}\.sqlite")
_TABLE = "CREATE TABLE IF NOT EXISTS numbers (key BLOB PRIMARY KEY, value REAL, extra INTEGER) WITHOUT ROWID"


class Remembered:
    """Pairs of a float and an integer, by text. Several processes may use a folder at the same time."""

    def __init__(self, folder: Path, package: Path, limit: int = LIMIT) -> None:
        """Open the file for the sources of Tilewright and of `package`; new pairs go to it with `flush`."""
        self._new: dict[bytes, tuple[float, int]] = {}
        self._limit = limit
        self._file: sqlite3.Connection | None = None
        with suppress(OSError, sqlite3.Error):
            name = blake2b((sources(PACKAGE) + sources(package)).encode(), digest_size=8).hexdigest()
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{name}.sqlite"
            if not path.exists():
                _forget(folder)
            self._file = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
            self._file.execute("PRAGMA journal_mode=WAL")
            self._file.execute("PRAGMA synchronous=NORMAL")
            self._file.execute(_TABLE)

    def get(self, key: str) -> tuple[float, int] | None:
        """Return the pair of a key; None if it is not known."""
        if self._file is None:
            return None
        name = _name(key)
        found = self._new.get(name)
        if found is None:
            with suppress(sqlite3.Error):
                found = self._file.execute("SELECT value, extra FROM numbers WHERE key = ?", (name,)).fetchone()
        return found

    def put(self, key: str, value: float, extra: int) -> None:
        """Remember a pair in this process; `flush` writes it to the file."""
        if self._file is not None:
            self._new[_name(key)] = value, extra

    def flush(self) -> None:
        """Write the new pairs to the file, unless it is full."""
        if self._file is None or not self._new:
            return
        rows = [(key, *pair) for key, pair in self._new.items()]
        with suppress(sqlite3.Error):  # full disk, or locked for too long: they stay in memory
            pages, size = (self._file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
            if pages * size < self._limit:
                with self._file:  # commits, or rolls back
                    self._file.execute("BEGIN IMMEDIATE")
                    self._file.executemany("INSERT OR IGNORE INTO numbers VALUES (?, ?, ?)", rows)
            self._new.clear()

    def close(self) -> None:
        """Close the file."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None


def _name(key: str) -> bytes:
    return blake2b(key.encode(), digest_size=16).digest()


def _forget(folder: Path) -> None:
    """Delete the files of older versions, but for the newest."""
    mine = sorted(
        (path for path in folder.iterdir() if _OURS.fullmatch(path.name)), key=lambda path: -path.stat().st_mtime
    )
    for path in mine[VERSIONS:]:
        for end in ("", "-wal", "-shm"):
            with suppress(OSError):
                path.with_name(path.name + end).unlink()
