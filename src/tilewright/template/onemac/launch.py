"""A launch: the memory ranges that each instruction reads or writes (its footprint), and the places of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.array import Array
from tilewright.program.launch_image import Dram
from tilewright.program.placement import Placement
from tilewright.sim.costs import Simulated
from tilewright.sim.steps import READ, WRITE, TokenQueue
from tilewright.sim.walk import Scratchpad
from tilewright.targets.launched import Stored
from tilewright.targets.stream import Stream

from . import timing
from .config import Config
from .isa import ISA, UNIT, Opcode, Unit
from .machine import Machine

#: Numbers of the memories in footprints. An element of ACC is an accumulator; an element of another memory is a byte.
BUF, ACC = range(2)


class OneMacLaunch(Stream[Config]):
    """One launch of OneMac. Its methods are documented in tilewright/targets/stream.py."""

    isa = ISA
    unit_of = UNIT
    units = ("dma", "mac")
    works = "mac"

    @property
    def memories(self) -> Sequence[Scratchpad]:
        return (
            Scratchpad("buf", self.config.buffer_bytes, (), "int8", "one byte", BUF),
            Scratchpad("acc", self.config.accumulators, (), "int32", "one sum", ACC),
        )

    @property
    def stored(self) -> Sequence[Stored]:
        if not self.sites:
            return ()
        x = self.sites[0].input(0)
        y = self.sites[0].output
        node = self.sites[0].node.name
        sums = Stored("acc", y, Placement.of(y.shape, "<i4"), node, sums=True)
        return Stored("x", x, Placement.of(x.shape)), sums

    @property
    def queues(self) -> tuple[TokenQueue, ...]:
        depth = self.config.token_depth
        return TokenQueue("dma->mac", Unit.DMA, Unit.MAC, depth), TokenQueue("mac->dma", Unit.MAC, Unit.DMA, depth)

    def tokens(self, unit: Array) -> tuple[Array, Array]:
        # Bit q of a mask stands for queue q. Unit u pushes to queue u, and pops from the queue of the other unit.
        return self.columns["pop"] << (1 - unit), self.columns["push"] << unit

    def touches(self, row: Mapping[str, int], dram: tuple[int, int]) -> Sequence[tuple[int, int, int, int]]:
        space, first = dram
        length = row["length"]
        count = row["count"]
        if row["opcode"] == Opcode.LOAD:
            return (BUF, WRITE, row["buf"], length), (space, READ, first, length)
        if row["opcode"] == Opcode.STORE:
            return (ACC, READ, row["acc"], count), (space, WRITE, first, 4 * count)
        # A DOT that does not clear the accumulators also reads them.
        sums = WRITE if row["clear"] else READ | WRITE
        return (
            (BUF, READ, row["buf"], length),
            (BUF, READ, row["wgt"], length * count),
            (ACC, sums, row["acc"], count),
        )

    def simulated(self) -> Simulated:
        return timing.simulated(self.columns, self.config, timing.MODELS[self.timing])

    def machine(self, dram: Dram, samples: int) -> Machine:
        return Machine(self.config, dram, samples)

    @property
    def macs(self) -> int:
        return int((self.columns["length"] * self.columns["count"]).sum())
