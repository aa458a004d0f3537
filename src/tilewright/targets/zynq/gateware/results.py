"""The way of results: from the accumulator through the requantiser, or from the pool, to the result store.

A result's place is taken when its sum is written; the code follows some cycles later. When a block's last place has
been taken, or a layer has ended, the block leaves. With one frame, the engine stops until the PS has moved it; with
two, a group that begins a block waits until a frame is free.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Elaboratable, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hdl.parts import after, clear, drive
from tilewright.targets.zynq.config import FACTORS, Config
from tilewright.targets.zynq.gateware import requantiser
from tilewright.targets.zynq.gateware.loader import field
from tilewright.targets.zynq.gateware.requantiser import FIELDS, requantiser_of
from tilewright.targets.zynq.gateware.states import late
from tilewright.targets.zynq.gateware.stores import ResultStore
from tilewright.targets.zynq.timing.walk import POOL_TAIL


class Results(wiring.Component):
    """Writes results. `writes` takes a place for a result of channel `column`; its sum is at `sum` late() cycles later.

    `pools`: the pool's result is complete in two cycles. `last`: it is the layer's last result. `start` begins a layer,
    `ends` ends it. `leaves`: block `block` has to leave. `done`: it has left. `full`: the engine must not go on. With
    two frames, it must not begin a result.

    `factor_write` sets word `factor_address` of the requantisation factors, two words (low, high) per channel.
    """

    def __init__(self, config: Config, beat: int) -> None:
        self.config = config
        self.store = ResultStore(config.result_bits, beat, config.frames)
        super().__init__(
            {
                **{name: In(field(name)) for name in FIELDS},
                **{name: In(1) for name in ("start", "writes", "pools", "last", "ends", "done", "factor_write")},
                "sum": In(signed(requantiser.BITS)),
                "column": In(16),
                "pool_result": In(8),
                "factor_address": In(range(2 * FACTORS)),
                "factor_data": In(32),
                "page_address": In(range(max(2, self.store.lines))),
                "page_result": Out(beat),
                "full": Out(1),
                "leaves": Out(1),
                "block": Out(config.block_bits),
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        m.submodules.result_store = store = self.store
        requant, factor = requantiser_of(m, self)
        m.d.comb += [
            factor.eq(after(m, self.column, max(0, late(self.config) - 1))),
            requant.sum.eq(self.sum),
        ]
        offset, later = Signal(self.config.result_bits), late(self.config) + requantiser.LATENCY
        pooled = after(m, self.pools, POOL_TAIL)
        m.d.comb += [
            *drive(
                store,
                en=after(m, self.writes, later) | pooled,
                code=Mux(pooled, self.pool_result, requant.result),
                offset=Mux(pooled, after(m, offset, POOL_TAIL), after(m, offset, later)),
                address=self.page_address,
            ),
            self.page_result.eq(store.data),
        ]
        # Blocks that have to leave, and the one that is filled.
        count, filled, frames = Signal(2), Signal(), self.config.frames
        complete = (self.writes | self.pools) & ~self.last & (offset == self.config.block_words("result") - 1)
        m.d.comb += [
            *drive(self, leaves=count != 0, full=count != 0 if frames == 1 else (count == frames) & (offset == 0)),
            *drive(
                store,
                frame=Mux(pooled, after(m, filled, POOL_TAIL), after(m, filled, later)) if frames > 1 else 0,
                leaving=self.block[0] if frames > 1 else 0,
            ),
        ]
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
        return m
