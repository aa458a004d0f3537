"""Runs blocks in Amaranth's own simulator, testbench by testbench."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from amaranth.hdl import ClockDomain, Elaboratable, Module
from amaranth.lib import wiring
from amaranth.sim import Simulator

Testbench = Callable[[Any], Awaitable[None]]


class Together(Elaboratable):
    """Blocks under one clock, with some of their interfaces connected."""

    def __init__(self, blocks: Sequence[Any], connections: Sequence[tuple[Any, Any]]) -> None:
        self.blocks, self.connections = blocks, connections

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.domains.sync = ClockDomain()
        m.submodules += list(self.blocks)
        for pair in self.connections:
            wiring.connect(m, *pair)
        return m


def simulate(blocks: Any, *testbenches: Testbench, connections: Sequence[tuple[Any, Any]] = ()) -> None:
    """A cycle of a testbench is one of the blocks: set inputs, get outputs, `await ctx.tick()`."""
    together = Together(blocks if isinstance(blocks, tuple) else (blocks,), connections)
    simulator = Simulator(together)
    simulator.add_clock(1e-6)
    for testbench in testbenches:
        simulator.add_testbench(testbench)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulator.run()
