"""A cache of compiled programs on disk. Compiling the same network for the same machine again only reads a file.

The key of a program is a hash of everything that the program depends on: the graph with its constants, the target, the
configuration, the rounding mode, the timing model, the user's schedule, NumPy's version, and every file of Tilewright
and of the target's package. If the folder or a file in it is unusable, the program is compiled.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np

from tilewright.errors import ProgramError
from tilewright.files import sources
from tilewright.graph.ir import Graph
from tilewright.program import file
from tilewright.program.program import Program
from tilewright.program.serial import graph_to_data

#: The size limit of the cache in bytes (4 GiB). Above it, the least recently used programs are deleted.
LIMIT = 1 << 32
#: Names of program files, and of temporary files that a killed writer left (files.replacing). Other files are kept.
_FILES = re.compile(r"[0-9a-f]{64}\.twp|\.[0-9a-f]{64}\.twp\.[0-9a-f]{8}\.tmp")
PACKAGE = Path(__file__).resolve().parent.parent


class Cache:
    """A cache of compiled programs in one folder, which several processes may use at the same time."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self.folder = folder
        self.limit = limit

    def program(self, graph: Graph, made_from: Sequence[str], package: Path, make: Callable[[], Program]) -> Program:
        """Return the cached program of a graph. If missing, the program is compiled by `make`, and stored.

        `made_from` has the target, the hash of the configuration and the rounding mode, followed by the other texts
        that the program depends on: the timing model and the user's schedule. `package` is the folder of the target's
        sources.
        """
        try:
            key = _key(graph, *made_from, np.__version__, sources(PACKAGE), sources(package))
        except (ProgramError, OSError):  # a constant has no form in a program file, or sources are unreadable
            return make()
        path = self.folder / f"{key}.twp"
        cached = _load(path)
        # The file is untrusted: if the program is for another machine, it is not used.
        if cached and [cached.target, cached.digest, cached.rounding] == [*made_from[:3]]:
            return replace(cached, graph=graph)
        program = make()
        with suppress(OSError, ProgramError):  # the disk is full or read-only, or the program has no file form
            self.folder.mkdir(parents=True, exist_ok=True)
            file.save(program, path, compress=False)
            self._evict()
        return program

    def _evict(self) -> None:
        """Delete the least recently used programs until the cache's size is within the limit."""
        entries = [(item, item.stat()) for item in self.folder.iterdir() if _FILES.fullmatch(item.name)]
        entries.sort(key=lambda entry: entry[1].st_mtime_ns)  # `_load` sets this time to the last use
        total = sum(status.st_size for _, status in entries)
        for item, status in entries:
            if total <= self.limit:
                break
            with suppress(OSError):  # already deleted, or open in another process (Windows)
                item.unlink()
            total -= status.st_size


def _load(path: Path) -> Program | None:
    """Load a cached program and mark its file as used now. Return None for a missing or damaged file."""
    try:
        program = file.load(path)
    except ProgramError:
        return None
    with suppress(OSError):
        os.utime(path)
    return program


def _key(graph: Graph, *others: str) -> str:
    data, arrays = graph_to_data(graph)
    digest = sha256(json.dumps([data, *others], sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.data)
    return digest.hexdigest()
