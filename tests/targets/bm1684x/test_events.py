"""Counted events of compiled networks against the addresses that each command touches."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.conftest import ROOT
from tests.dram import opened
from tilewright import targets
from tilewright.sim.events import Events
from tilewright.sim.passes import RunOptions
from tilewright.sim.steps import WRITE
from tilewright.targets.bm1684x.config import DDR_BASE, Config
from tilewright.targets.bm1684x.launch.run import PreparedLaunch, prepare


def counted(batch: int) -> tuple[PreparedLaunch, Config, Events]:
    program = tw.compile(ROOT / "examples" / "digits" / "digits.tflite", "bm1684x", None, {"batch": str(batch)})
    launch = program.launches[0]
    config = Config.read(program.config, {})
    found = targets.get("bm1684x").launch(program, launch, {}, RunOptions("estimate", values=False))
    assert found.events
    return prepare(launch, config), config, found.events()


@pytest.mark.parametrize("batch", [1, 3])
def test_accesses_are_those_of_the_touched_elements(batch: int) -> None:
    known, config, events = counted(batch)
    reads = writes = 0
    for command in known.program.commands:
        for mode, _, place in command.in_memory:
            if place.storage.is_local:
                each = -(-place.addresses.size * place.dtype.bytes // config.eu_bytes)
                reads, writes = reads + each * (mode != WRITE), writes + each * (mode == WRITE)
    (local,) = events.accesses
    assert (local.reads, local.writes) == (-(-reads // batch), -(-writes // batch))
    assert sum(work.count for work in events.macs) == -(-int(known.executed.sum()) // batch)


def test_rows_are_opened_in_the_order_of_the_commands() -> None:
    """The elements of each transfer in the order in which the commands start, one after the other."""
    known, _, events = counted(1)
    moved: list[tuple[int, int]] = []
    for step in np.argsort(known.trace.start, kind="stable").tolist():
        for _, _, place in known.program.commands[step].in_memory:
            if not place.storage.is_local:
                addresses = np.sort(place.addresses.reshape(-1)) - DDR_BASE
                moved += [(at, place.dtype.bytes) for at in addresses.tolist()]
    for row_bytes, banks in ((256, 1), (1024, 4), (8192, 8)):
        assert events.activations(row_bytes, banks) == opened(moved, row_bytes, banks)
