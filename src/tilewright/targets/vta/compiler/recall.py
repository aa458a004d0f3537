"""Results of searches, kept on disk while machines are explored: studies repeat searches of earlier studies.

A result is kept by all that it depends on: layers, plans, machine, timing model.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from tilewright.program.remembered import Remembered

T = TypeVar("T")
#: What is remembered, by folder; and that of the innermost `with` block comes last.
_REMEMBERED: dict[Path, Remembered] = {}
_IN_USE: list[Remembered] = []


@contextmanager
def remembering(folder: Path) -> Iterator[None]:
    """Keep results of searches in a folder during a `with` block, and use those that are there."""
    if folder not in _REMEMBERED:
        _REMEMBERED[folder] = Remembered(folder, Path(__file__).resolve().parent.parent)
    _IN_USE.append(_REMEMBERED[folder])
    try:
        yield
    finally:
        _IN_USE.pop().flush()


def recalled(kind: str, made_from: tuple[Hashable, ...], make: Callable[[], T]) -> T:
    """Return what is remembered of a search; if nothing is, search by `make`. The result is a JSON value.

    Tuples come back as lists. Nothing is remembered outside of `remembering`.
    """
    if not _IN_USE:
        return make()
    key = " ".join([kind, *map(_text, made_from)])
    found: T | None = _IN_USE[-1].get(key)
    if found is None:
        found = make()
        _IN_USE[-1].put(key, found)
    return found


def _text(part: Hashable) -> str:
    """Return a text that only equal parts share."""
    return repr(part) if isinstance(part, str | int) or type(part) is tuple else _digest(part)


@lru_cache(maxsize=4096)
def _digest(part: Hashable) -> str:
    return sha256(repr(part).encode()).hexdigest()
