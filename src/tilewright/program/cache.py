"""A cache of compiled programs on disk. Compiling the same network for the same machine again only reads a file.

The key of a program is a hash of everything that the program depends on: the graph with its constants, the target, the
configuration, the rounding mode, the timing model, the user's schedule, NumPy's version, and every file of Tilewright
and of the target's package. If the folder or the file is unusable, the program is compiled again.
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

#: The size limit of the cache, 4 GiB. The least recently used programs are deleted.
LIMIT = 1 << 32
#: Program files, and temporary files of killed processes (files.replacing). Other files in the folder are not deleted.
_FILES = re.compile(r"[0-9a-f]{64}\.twp|\.[0-9a-f]{64}\.twp\.[0-9a-f]{8}\.tmp")
PACKAGE = Path(__file__).resolve().parent.parent


class Cache:
    """A cache of compiled programs in one folder, which several processes may use at the same time."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self.folder = folder
        self.limit = limit

    def program(self, graph: Graph, made_from: Sequence[str], package: Path, make: Callable[[], Program]) -> Program:
        """Return the cached program of a graph. If it is not in the cache, `make` compiles it.

        The first three texts in `made_from` are the target, the hash of the configuration and the rounding mode. Other
        texts that the program depends on follow: the timing model and the user's schedule. `package` is the folder of
        the target's sources.
        """
        try:
            key = _key(graph, *made_from, np.__version__, sources(PACKAGE), sources(package))
        except (ProgramError, OSError):  # a program file cannot store a constant, or sources are unreadable
            return make()
        path = self.folder / f"{key}.twp"
        cached = _load(path)
        # The file is untrusted, so its content is compared, too.
        if cached and [cached.target, cached.digest, cached.rounding] == [*made_from[:3]]:
            return replace(cached, graph=graph)
        program = make()
        with suppress(OSError, ProgramError):  # the disk is full or read-only, or a file cannot store the program
            self.folder.mkdir(parents=True, exist_ok=True)
            file.save(program, path, compress=False)
            self._evict()
        return program

    def _evict(self) -> None:
        entries = [(item, item.stat()) for item in self.folder.iterdir() if _FILES.fullmatch(item.name)]
        # Delete the least recently used programs first: `_load` sets the modification time at each use.
        entries.sort(key=lambda entry: entry[1].st_mtime_ns)
        total = sum(status.st_size for _, status in entries)
        for item, status in entries:
            if total <= self.limit:
                break
            with suppress(OSError):  # already deleted, or open in another process (Windows)
                item.unlink()
            total -= status.st_size


def _load(path: Path) -> Program | None:
    """Load a program and update the time of its file. Return None if the file is missing or damaged."""
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
