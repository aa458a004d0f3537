"""Replays golden vectors of a target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tilewright.errors import InputError, TilewrightError
from tilewright.files import regular
from tilewright.targets.base import ConformCase, Target


def replay(target: Target, paths: Sequence[str | Path]) -> Iterator[ConformCase]:
    """Each vector's outcome; folders are searched for .npz. Raises InputError where a path holds none.

    A vector that cannot be read is one that did not pass.
    """
    for path in _vectors(paths):
        try:
            found = target.conform(path)
            yield from (found,) if isinstance(found, ConformCase) else found
        except TilewrightError as error:
            yield ConformCase(path.stem, False, str(error))


def _vectors(paths: Sequence[str | Path]) -> list[Path]:
    found: dict[Path, None] = {}
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(path.rglob("*.npz"))
            if not inside:
                raise InputError(str(path), "holds no .npz file")
            found.update(dict.fromkeys(inside))
        else:
            found[regular(path)] = None
    return list(found)
