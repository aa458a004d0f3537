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
    result = targets.get("bm1684x").launch(program, launch, {}, RunOptions("estimate", values=False))
    assert result.events
    return prepare(launch, config), config, result.events()


@pytest.mark.parametrize("batch", [1, 3])
def test_accesses_are_those_of_the_touched_elements(batch: int) -> None:
    prepared, config, events = counted(batch)
    reads = writes = 0
    for command in prepared.program.commands:
        for mode, _, place in command.in_memory:
            if place.storage.is_local:
                accesses = -(-place.addresses.size * place.dtype.bytes // config.eu_bytes)
                reads, writes = reads + accesses * (mode != WRITE), writes + accesses * (mode == WRITE)
    (local,) = events.accesses
    assert (local.reads, local.writes) == (-(-reads // batch), -(-writes // batch))
    assert sum(work.count for work in events.macs) == -(-int(prepared.executed.sum()) // batch)


def test_rows_are_opened_in_the_order_of_the_commands() -> None:
    """The elements of each transfer in the order in which the commands start, one after the other."""
    prepared, _, events = counted(1)
    moved: list[tuple[int, int]] = []
    for step in np.argsort(prepared.trace.start, kind="stable").tolist():
        for _, _, place in prepared.program.commands[step].in_memory:
            if not place.storage.is_local:
                addresses = np.sort(place.addresses.reshape(-1)) - DDR_BASE
                moved += [(at, place.dtype.bytes) for at in addresses.tolist()]
    for row_bytes, banks in ((256, 1), (1024, 4), (8192, 8)):
        assert events.activations(row_bytes, banks) == opened(moved, row_bytes, banks)
