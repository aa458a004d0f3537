"""What the reservation station orders, against a graph of all starts and ends, and against the clock."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.gemmini.programs import LOAD, STORE, WS, Program, encoded, findings, mvin, mvout, pair, program
from tests.targets.gemmini.reference import NOTHING
from tests.targets.gemmini.schedules import Tracked, meet, tracked
from tilewright.array import Array
from tilewright.errors import HazardError
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.hazards.order import ordered
from tilewright.targets.gemmini.passes import Passes

SMALL = Config(dim=4, spad_rows=64, acc_rows=128, dma_bytes=32)
SIZE = 1024
ACC = 1 << 31
SEEDS = [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 200))]


def graph(commands: Program, ranges: list[Tracked]) -> Array:
    """Return which event comes before which one, bool [2 n, 2 n]: event i is the start of command i, n + i its end."""
    n = len(commands)
    before = np.zeros((2 * n, 2 * n), np.bool_)
    before[np.arange(n), n + np.arange(n)] = True
    for late, after in enumerate(ranges):
        for early, earlier in enumerate(ranges[:late]):
            same = after.queue == earlier.queue
            before[early, late] |= same
            before[n + early, late] |= same and (after.queue == "store" or after.drain)
            writes = meet(earlier.writes, [*after.reads, *after.writes]) or meet(earlier.reads, after.writes)
            before[n + early, late] |= writes and not same
    for at, (name, fields) in enumerate(commands):
        if name == "preload" and fields["c"] != NOTHING:
            compute = next(late for late in range(at, n) if commands[late][0].startswith("compute"))
            before[n + compute, n + at] = True
    for by in range(2 * n):
        before |= before[:, by, None] & before[by]
    return before


@pytest.mark.parametrize("seed", SEEDS)
def test_all_pairs_of_a_random_program(seed: int) -> None:
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    commands = program(rng, SMALL, SIZE, 14)
    order = Passes(encoded(commands), SMALL).hazards._order
    n, before = len(commands), graph(commands, tracked(commands, SMALL.dim, SMALL.acc_rows // SMALL.acc_banks))
    for late in range(n):
        for early in range(late):
            is_before = bool(ordered(order, early, late, int(order.queue[late])))
            assert is_before == before[n + early, late], (commands[early], commands[late])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_preload_with_a_result_is_done_after_its_compute(seed: int) -> None:
    """The clock is that of the RTL (test_machine.py)."""
    print(f"seed {seed}")
    commands = program(np.random.default_rng(seed), Config(), 1 << 14, 14)
    passes = Passes(encoded(commands), Config())
    try:
        done, computes = passes.times.done, passes.work.computes
    except HazardError:  # ws behind os without a result
        return
    paired = (computes.c.garbage == 0) & (done[computes.step] >= 0)
    assert (done[computes.preload[paired]] > done[computes.step[paired]]).all()


@pytest.mark.parametrize("place", ["a", "b", "d", "elsewhere"])
@pytest.mark.parametrize("order", ["abd", "dba"])
def test_a_product_that_is_stored_over_its_operand(place: str, order: str) -> None:
    """The compute waits for A and D, the preload for B; the product is there when both are done."""
    dram = {name: 0x8000_0000 + 0x400 * at for at, name in enumerate(("a", "b", "d", "elsewhere"))}
    rows = {"a": 0, "b": 16, "d": 32}
    loads = [command for name in order for command in mvin(rows[name], dram[name])]
    start = [*LOAD, *STORE, *WS, *loads, *pair(0, ACC, 16, d=32)]
    assert findings([*start, *mvout(ACC, dram[place])]) == ()
    if place != "elsewhere":  # a store of other rows waits for none of the loads
        assert [finding.kind for finding in findings([*start, *mvout(ACC | 512, dram[place])])] == ["race"]


def test_a_product_without_a_result_orders_nothing() -> None:
    loads = [*mvin(0, 0x8000_0000), *mvin(16, 0x8000_0400)]
    commands = [*LOAD, *STORE, *WS, *loads, *pair(0, NOTHING, 16), *mvout(ACC, 0x8000_0000)]
    assert [finding.kind for finding in findings(commands)] == ["race"]
