"""The processes that a process has started, as /proc lists them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def descendants(process: int) -> list[int]:
    """Return the running processes that `process` has started, and those that these have."""
    parents = dict[int, int]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent, *_ = path.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
            if state != "Z":
                parents[int(path.parent.name)] = int(parent)
    found = [process]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]
