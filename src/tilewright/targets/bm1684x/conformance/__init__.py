"""Replay golden vectors: inputs and outputs recorded from the vendor's functional model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tilewright.errors import InputError
from tilewright.files import untrusted
from tilewright.targets.base import ConformCase
from tilewright.targets.bm1684x.conformance import nets, ops
from tilewright.targets.bm1684x.conformance.vectors import REMEDY, replay_layouts


def conform(path: Path) -> Iterator[ConformCase]:
    """Replay the test cases in one .npz file of golden vectors, and yield the result of each case.

    The file tests layouts, a family of operations, or a compiled network. A file with only the inputs or outputs of a
    network yields nothing. Raises InputError if the file is no golden vector, or lacks an array or key.
    """
    with untrusted(path, REMEDY):
        if path.stem == "layout_addresses":
            yield from replay_layouts(path)
        elif path.name.endswith(".cmdbuf.npz"):
            yield from nets.replay(path)
        elif path.with_suffix(".json").is_file():
            yield from ops.replay(path)
        elif not (path.name == "input.npz" or path.name.endswith(".output.npz")):
            raise InputError(str(path), "is not a golden vector of the BM1684X", REMEDY)
