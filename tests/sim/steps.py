"""Step tables and costs."""

from __future__ import annotations

import numpy as np

from tests.sim.programs import table
from tilewright.array import Array
from tilewright.sim.costs import Channel, Costs, Fetch
from tilewright.sim.steps import READ, StepTable, runs

L2C = 1


PORT = Channel(beat_bytes=8, latency=10, burst=4)


FETCH = Fetch(insn_bytes=16, depth=8)


def steps_of(unit: list[int], pops: list[int] | None = None, pushes: list[int] | None = None) -> StepTable:
    none = [0] * len(unit)
    return table(unit, pops or none, pushes or none, [runs(0, READ, np.arange(1)) for _ in unit])


def costs(busy: list[int], rows: list[int] | None = None, row_bytes: list[int] | None = None, lead: int = 0) -> Costs:
    none = [0] * len(busy)
    columns: list[Array] = [
        np.array(c, np.int64) for c in ([lead] * len(busy), busy, rows or none, row_bytes or none, none)
    ]
    return Costs.of(*columns)
