"""The way of results of an engine with `window=1`: several sums are complete at once, and are written one per cycle.

The places of a group's results are taken when its channel ends; the codes follow some cycles later. When a block's last
place has been taken, or a layer has ended, the block leaves. A channel whose results begin a block waits for a frame.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hdl.parts import after, clear, drive
from tilewright.targets.zynq.config import FACTORS, Config
from tilewright.targets.zynq.gateware import requantiser
from tilewright.targets.zynq.gateware.loader import field
from tilewright.targets.zynq.gateware.requantiser import FIELDS, requantiser_of
from tilewright.targets.zynq.gateware.stores import FRAMES, ResultStore
from tilewright.targets.zynq.timing.walk import POOL_TAIL


def latency(config: Config) -> int:
    """Return after how many cycles from `complete` the last of the group's results is in the store."""
    return config.outputs + requantiser.LATENCY


class GroupResults(wiring.Component):
    """Writes results. `complete`: `sums` are `sum_count` complete sums of channel `column`.

    `begins` and `ends_group` are the first and the last cycle of a group of `count` results. `pools`: the pool's result
    is complete in two cycles. `is_last`: they are the layer's last results. `start` begins a layer, `ends` ends it.
    `leaves`: a block has to leave. `done`: it has left. `full`: the group must not begin.

    `factor_write` sets word `factor_address` of the requantisation factors, two words (low, high) per channel.
    """

    def __init__(self, config: Config, beat: int) -> None:
        self.config = config
        self.store = ResultStore(config.result_bits, beat, FRAMES)
        pulses = ("start", "complete", "begins", "ends_group", "pools", "is_last", "ends", "done", "factor_write")
        super().__init__(
            {
                **{name: In(field(name)) for name in FIELDS},
                **{name: In(1) for name in pulses},
                **{name: In(range(config.outputs + 1)) for name in ("count", "sum_count")},
                "sums": In(config.outputs * requantiser.BITS),
                "column": In(16),
                "pool_result": In(8),
                "factor_address": In(range(2 * FACTORS)),
                "factor_data": In(32),
                "page_address": In(range(max(2, self.store.lines))),
                "page_result": Out(beat),
                "full": Out(1),
                "leaves": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        requant, factor = requantiser_of(m, self)
        # One of the complete sums per cycle goes to the requantiser.
        sums, left, column = Signal.like(self.sums), Signal.like(self.sum_count), Signal(16)
        with m.If(self.complete):
            m.d.sync += [sums.eq(self.sums), left.eq(self.sum_count), column.eq(self.column)]
        with m.Elif(left != 0):
            m.d.sync += [sums.eq(sums >> requantiser.BITS), left.eq(left - 1)]
        m.d.comb += [
            factor.eq(Mux(self.complete, self.column, column)),
            requant.sum.eq(sums[: requantiser.BITS].as_signed()),
        ]
        self._store(m, requant.result, after(m, left != 0, requantiser.LATENCY))
        self._places(m)
        return m

    def _store(self, m: Module, code: Signal, arrives: Signal) -> None:
        """Write codes to the store in order: those of sums, or the pool's."""
        m.submodules.result_store = store = self.store
        pooled = after(m, self.pools, POOL_TAIL)
        place, leaving = Signal(self.config.result_bits + 1), Signal()
        m.d.comb += [
            *drive(
                store,
                en=arrives | pooled,
                code=Mux(pooled, self.pool_result, code),
                leaving=leaving,
                address=self.page_address,
            ),
            Cat(store.offset, store.frame).eq(place),
            self.page_result.eq(store.data),
        ]
        with m.If(self.start):
            m.d.sync += clear(place, leaving)
        with m.Else():
            m.d.sync += [place.eq(place + store.en), leaving.eq(leaving ^ self.done)]

    def _places(self, m: Module) -> None:
        """Count the places that are taken, and the complete blocks that have not left."""
        words = self.config.block_words("result")
        offset, blocks = Signal(self.config.result_bits), Signal(2)
        end, complete = Signal(self.config.result_bits + 1), Signal()
        taken = self.ends_group | self.pools
        m.d.comb += [
            end.eq(offset + self.count),
            complete.eq(taken & ((end > words) | (end == words) & ~self.is_last)),
            *drive(
                self,
                leaves=blocks != 0,
                full=self.begins & (((offset == 0) & (blocks == FRAMES)) | (end > words) & (blocks != 0)),
            ),
        ]
        with m.If(self.start):
            m.d.sync += clear(offset, blocks)
        with m.Else():
            m.d.sync += blocks.eq(blocks + (complete | self.ends) - self.done)
            with m.If(taken):
                m.d.sync += offset.eq(end)
