"""The table of digests: digests.txt."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).with_name("digests.txt")
#: Chunks of every family: their numbers, from which the random calls follow, and their lengths.
CHUNKS = ((0, 12), (1, 60), (2, 1000))


class Line(NamedTuple):
    """A chunk of random calls, and the digest of what they change."""

    family: str
    chunk: int
    length: int
    digest: str

    def __str__(self) -> str:
        return " ".join([self.digest, str(self.chunk), str(self.length), self.family])


def lines() -> list[Line]:
    """Return the table."""
    columns = (line.split(maxsplit=3) for line in TABLE.read_text(encoding="utf-8").splitlines())
    return [Line(family, int(chunk), int(length), digits) for digits, chunk, length, family in columns]
