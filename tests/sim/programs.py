"""Random step tables for tests of the simulation kernel."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.sim.steps import READ, WRITE, Footprints, Space, StepTable, TokenQueue, runs

UNITS = ("load", "compute", "store")
QUEUES = (
    TokenQueue("load->compute", 0, 1, 1024),
    TokenQueue("compute->load", 1, 0, 1024),
    TokenQueue("compute->store", 1, 2, 1024),
    TokenQueue("store->compute", 2, 1, 1024),
)


def table(
    unit: list[int], pops: list[int], pushes: list[int], footprints: list[Array], size: int = 8, filled: bool = True
) -> StepTable:
    """One memory of `size` elements, one footprint a step."""
    space = Space("sram", size, ((0, size),) if filled else ())
    units, popped, pushed = (np.array(column, np.int64) for column in (unit, pops, pushes))
    own = np.arange(len(unit), dtype=np.int64)
    return StepTable(UNITS, QUEUES, (space,), units, popped, pushed, own, Footprints.of(footprints))


def random_table(rng: np.random.Generator, steps: int, size: int = 8) -> StepTable:
    """Units, tokens and accesses at random; tokens mostly pushed before they are popped."""
    unit = rng.integers(0, 3, steps).tolist()
    pops, pushes = [0] * steps, [0] * steps
    waiting = [0] * len(QUEUES)
    for step in range(steps):
        for index, queue in enumerate(QUEUES):
            if queue.consumer == unit[step] and waiting[index] and rng.random() < 0.6:
                pops[step] |= 1 << index
                waiting[index] -= 1
            if queue.producer == unit[step] and rng.random() < 0.4:
                pushes[step] |= 1 << index
                waiting[index] += 1
    accesses = []
    for _ in range(steps):
        low = int(rng.integers(0, size))
        mode = int(rng.choice([READ, WRITE, READ | WRITE]))
        accesses.append(runs(0, mode, np.arange(low, min(size, low + int(rng.integers(1, 4))))))
    return table(unit, pops, pushes, accesses, size)
