"""Cycles of every command of the stored networks are those of the vendor's timelines, to the cycle."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np

from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.meaning import command_of
from tilewright.targets.bm1684x.isa.stream import Encoded, decode
from tilewright.targets.bm1684x.timing.estimate import cycles

CONFIG = Config()
#: Commands by format in all stored networks: none is left out.
COUNTS = {"AR": 890, "DMA_tensor": 274, "PorD": 160, "DMA_matrix": 116, "CONV": 53, "TRANS&BC": 37, "SFU": 37}
COUNTS |= {"RQ&DQ": 28, "MM": 20, "MM2": 12}


def commands(path: Path, engine: str) -> list[Encoded]:
    """The commands of one engine, in order, without those that only close a queue."""
    with np.load(path) as vector:
        names = sorted(name for name in vector.files if name.startswith(f"{engine}_"))
        queues = [decode(engine, vector[name]) for name in names]
    return [one for queue in queues for one in queue if not one.is_end and one.format.name != "SYSID"]


def test_all_stored_commands(shared: Path) -> None:
    seen: Counter[str] = Counter()
    for path in sorted((shared / "tpu_vectors" / "nets").glob("*/*.cmdbuf.npz")):
        about = json.loads(path.with_name(path.name.replace(".cmdbuf.npz", ".json")).read_text())
        for engine in ("tiu", "dma"):
            shown = [row for row in about["timeline"] if row["type"].startswith("GDMA") == (engine == "dma")]
            for row, one in zip(
                sorted(shown, key=lambda row: row[f"{engine}_id"]), commands(path, engine), strict=True
            ):
                assert cycles(command_of(one, CONFIG), CONFIG) == row["cycles"], f"{path}: {one}"
                seen[one.format.name] += 1
    assert seen == COUNTS
