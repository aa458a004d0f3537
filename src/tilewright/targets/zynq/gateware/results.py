"""The ways of results: from the accumulators through the requantiser, or from the pool, to the result store.

A result's place is taken when its sum is written; the code follows some cycles later. When a block's last place has
been taken, or a layer has ended, the block leaves. With one frame, the engine stops until the PS has moved it; with
two, a group that begins a block waits until a frame is free.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import In, Out

from tilewright.hdl.parts import Part, add, after, clear, drive, flags, ports, ram
from tilewright.targets.zynq.config import FACTORS, Config
from tilewright.targets.zynq.gateware.loader import DESCRIPTOR
from tilewright.targets.zynq.gateware.requantiser import BITS, FIELDS, LATENCY, Requantiser
from tilewright.targets.zynq.gateware.states import late
from tilewright.targets.zynq.gateware.stores import FRAMES, ResultStore
from tilewright.targets.zynq.timing.walk import POOL_TAIL

#: The inputs that set the requantisation factors: word `factor_address`, of two words (low, high) per channel.
FACTOR_PORTS = ("factor_address", "factor_data", "factor_write")


class ResultWriter(Part):
    """What both ways of results have in common, beside the `members` of each.

    `pools`: the pool's result is complete in two cycles. `start` begins a layer, `ends` ends it. `leaves`: a block has
    to leave. `done`: it has left. `column`: the channel of a result. FACTOR_PORTS set the requantisation factors.
    """

    def __init__(self, config: Config, beat: int, **members: Any) -> None:
        self.config = config
        self.store = ResultStore(config.result_bits, beat, config.frames)
        super().__init__(
            layer=In(DESCRIPTOR),
            **flags(In, "start", "pools", "ends", "done", "factor_write"),
            column=In(16),
            pool_result=In(8),
            factor_address=In(range(2 * FACTORS)),
            factor_data=In(32),
            page_address=In(range(max(2, self.store.lines))),
            page_result=Out(beat),
            full=Out(1),
            leaves=Out(1),
            **members,
        )

    def requantised(self, m: Module, total: Value, column: Value) -> Value:
        """Add a requantiser; return the codes of the sums `total`. `column` is the channel of the next cycle's sum."""
        writes, reads = ram(m, "factors", 64, FACTORS, 32)
        m.d.comb += reads.addr.eq(column)
        m.d.comb += drive(
            writes,
            addr=self.factor_address >> 1,
            data=self.factor_data.replicate(2),
            en=self.factor_write << self.factor_address[0],
        )
        fields = ports(self.layer, *FIELDS)
        unit = Requantiser(self.config.logic)
        return add(m, "requantiser", unit, **fields, sum=total, factor=reads.data).result

    def write(self, m: Module, arrives: Value, code: Value) -> tuple[ResultStore, Value]:
        """Write the codes that arrive, and the pool's. Return the store, and whether the pool's result arrives."""
        pooled = after(m, self.pools, POOL_TAIL)
        code = Mux(pooled, self.pool_result, code)
        store = add(m, "result_store", self.store, en=arrives | pooled, code=code, address=self.page_address)
        m.d.comb += self.page_result.eq(store.data)
        return store, pooled


class Results(ResultWriter):
    """Writes results one by one. `writes` takes a place; the result's sum is at `sum` late() cycles later.

    `last`: it is the layer's last result. `block` is the one that has to leave. `full`: the engine must not go on, or
    with two frames, not begin a result.
    """

    def __init__(self, config: Config, beat: int) -> None:
        blocks = Out(config.block_bits)
        super().__init__(config, beat, writes=In(1), last=In(1), sum=In(signed(BITS)), block=blocks)

    def define(self, m: Module) -> None:
        config, frames = self.config, self.config.frames
        code = self.requantised(m, self.sum, after(m, self.column, max(0, late(config) - 1)))
        offset, later = Signal(config.result_bits), late(config) + LATENCY
        store, pooled = self.write(m, after(m, self.writes, later), code)
        # Blocks that have to leave, and the one that is filled.
        count, filled = Signal(2), Signal()
        complete = (self.writes | self.pools) & ~self.last & (offset == config.block_words("result") - 1)
        m.d.comb += store.offset.eq(Mux(pooled, after(m, offset, POOL_TAIL), after(m, offset, later)))
        m.d.comb += self.leaves.eq(count != 0)
        if frames == 1:
            m.d.comb += self.full.eq(self.leaves)
        else:
            m.d.comb += self.full.eq((count == frames) & (offset == 0))
            frame = Mux(pooled, after(m, filled, POOL_TAIL), after(m, filled, later))
            m.d.comb += drive(store, frame=frame, leaving=self.block[0])
        with m.If(self.start):
            m.d.sync += clear(offset, self.block, count, filled)
        with m.Else():
            m.d.sync += count.eq(count + (complete | self.ends) - self.done)
            with m.If(self.writes | self.pools):
                m.d.sync += offset.eq(offset + 1)
            with m.If(complete):
                m.d.sync += filled.eq(~filled)
            with m.If(self.done):
                m.d.sync += self.block.eq(self.block + 1)


class GroupResults(ResultWriter):
    """Writes the results of an engine with `window=1`: several sums are complete at once, one is written per cycle.

    `complete`: `sums` are `sum_count` complete sums. `begins` and `ends_group` are the first and the last cycle of a
    group of `count` results, whose places are taken when it ends. `is_last`: they are the layer's last results. `full`:
    the group must not begin.
    """

    def __init__(self, config: Config, beat: int) -> None:
        pulses = flags(In, "complete", "begins", "ends_group", "is_last")
        counts = {name: In(range(config.outputs + 1)) for name in ("count", "sum_count")}
        super().__init__(config, beat, **pulses, **counts, sums=In(config.outputs * BITS))

    def define(self, m: Module) -> None:
        # One of the complete sums per cycle goes to the requantiser.
        sums, left, column = Signal.like(self.sums), Signal.like(self.sum_count), Signal(16)
        with m.If(self.complete):
            m.d.sync += [sums.eq(self.sums), left.eq(self.sum_count), column.eq(self.column)]
        with m.Elif(left != 0):
            m.d.sync += [sums.eq(sums >> BITS), left.eq(left - 1)]
        code = self.requantised(m, sums[:BITS].as_signed(), Mux(self.complete, self.column, column))
        store, _ = self.write(m, after(m, left != 0, LATENCY), code)
        place, leaving = Signal(self.config.result_bits + 1), Signal()
        m.d.comb += [Cat(store.offset, store.frame).eq(place), store.leaving.eq(leaving)]
        with m.If(self.start):
            m.d.sync += clear(place, leaving)
        with m.Else():
            m.d.sync += [place.eq(place + store.en), leaving.eq(leaving ^ self.done)]
        self._places(m)

    def _places(self, m: Module) -> None:
        """Count the places that are taken, and the complete blocks that have not left."""
        words = self.config.block_words("result")
        offset, blocks = Signal(self.config.result_bits), Signal(2)
        end, complete = Signal(self.config.result_bits + 1), Signal()
        taken = self.ends_group | self.pools
        m.d.comb += [
            end.eq(offset + self.count),
            complete.eq(taken & ((end > words) | (end == words) & ~self.is_last)),
            self.leaves.eq(blocks != 0),
            self.full.eq(self.begins & (((offset == 0) & (blocks == FRAMES)) | (end > words) & (blocks != 0))),
        ]
        with m.If(self.start):
            m.d.sync += clear(offset, blocks)
        with m.Else():
            m.d.sync += blocks.eq(blocks + (complete | self.ends) - self.done)
            with m.If(taken):
                m.d.sync += offset.eq(end)
