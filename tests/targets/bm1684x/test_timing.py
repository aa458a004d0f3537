"""Cycles of every command of the stored networks, and of broadcasts, are those of the vendor's estimator."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.targets.bm1684x.vendor.calls import Noting, api
from tilewright.targets.bm1684x.capi import dim4
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.meaning import command_of
from tilewright.targets.bm1684x.isa.stream import EncodedCommand, decode
from tilewright.targets.bm1684x.timing.estimate import cycles
from tilewright.targets.bm1684x.values.dtypes import F32, U8, DType

CONFIG = Config()
#: Commands by format in all stored networks: none is left out.
COUNTS = {"AR": 890, "DMA_tensor": 274, "PorD": 160, "DMA_matrix": 116, "CONV": 53, "TRANS&BC": 37, "SFU": 37}
COUNTS |= {"RQ&DQ": 28, "MM": 20, "MM2": 12}


def commands(path: Path, engine: str) -> list[EncodedCommand]:
    """The commands of one engine, in order, without those that only close a queue."""
    with np.load(path) as vector:
        names = sorted(name for name in vector.files if name.startswith(f"{engine}_"))
        queues = [decode(engine, vector[name]) for name in names]
    return [command for queue in queues for command in queue if not command.is_end and command.format.name != "SYSID"]


def test_all_stored_commands(shared: Path) -> None:
    seen: Counter[str] = Counter()
    for path in sorted((shared / "tpu_vectors" / "nets").glob("*/*.cmdbuf.npz")):
        about = json.loads(path.with_name(path.name.replace(".cmdbuf.npz", ".json")).read_text())
        for engine in ("tiu", "dma"):
            shown = [row for row in about["timeline"] if row["type"].startswith("GDMA") == (engine == "dma")]
            for row, command in zip(
                sorted(shown, key=lambda row: row[f"{engine}_id"]), commands(path, engine), strict=True
            ):
                assert cycles(command_of(command, CONFIG), CONFIG) == row["cycles"], f"{path}: {command}"
                seen[command.format.name] += 1
    assert seen == COUNTS


#: Broadcasts (1, 7, 112, 112) or (3, 7, 10, 20), with local and far strides: the cycles of the vendor's estimator.
WIDE, NARROW = (1, 7, 112, 112), (3, 7, 10, 20)
BROADCASTS = (
    (WIDE, None, None, U8, 494),
    (WIDE, (12544, 12544, 112, 1), (37632, 12544, 112, 1), U8, 216),
    (WIDE, (12544, 12544, 112, 1), None, U8, 216),
    (WIDE, None, (12544, 12544, 112, 1), U8, 216),
    (WIDE, None, (12544, 0, 128, 1), U8, 494),
    (WIDE, (16384, 16384, 128, 1), (12544, 12544, 112, 1), U8, 494),
    (NARROW, None, None, F32, 132),
    (NARROW, (600, 208, 20, 1), (1000, 200, 20, 1), U8, 13),
    (NARROW, (600, 208, 20, 1), (1000, 200, 20, 1), F32, 41),
)


@pytest.mark.parametrize(("shape", "near", "far", "dtype", "expected"), BROADCASTS)
@pytest.mark.parametrize("way", ["S2L", "L2L"])
def test_a_broadcast_with_strides_moves_rows_without_gaps_at_once(
    shape: Sequence[int], near: Any, far: Any, dtype: DType, expected: int, way: str
) -> None:
    noting = Noting()
    steps = (dim4(*stride) if stride else None for stride in (near, far))
    source = 1 << 15 if way == "L2L" else 1 << 33
    getattr(api(noting), f"tpu_gdma_channel_bcast_{way}")(0, source, dim4(*shape), *steps, dtype)
    assert [cycles(command, CONFIG) for command in noting.commands] == [expected]
