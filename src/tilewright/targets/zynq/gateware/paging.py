"""Page requests: `waiting`, the block register and `done`, as the document names them.

An access to a block that its store does not hold stops the engine in the same cycle; `waiting` is set from the next one
until `done`. A request therefore stops the engine from the miss to the cycle of `done`. Several misses in a cycle are
served one after another, in the order of ORDER.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hdl.parts import drive
from tilewright.targets.zynq.config import STORES, Config

#: A complete result block leaves first.
ORDER = ("result", "data", "weight", "bias")


class Paging(wiring.Component):
    """Requests pages. STORE_miss and STORE_block: a store's access misses this block, or the result block is complete.

    `stalls`: the engine must not move. With `hold`, no new request begins. STORE_done is high in the cycle in which the
    PS has moved the store's block.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(
            {
                **{f"{store}_miss": In(1) for store in STORES},
                **{f"{store}_block": In(config.block_bits) for store in STORES},
                **{f"{store}_done": Out(1) for store in STORES},
                "stalls": Out(1),
                "waiting": Out(1),
                "store": Out(2),
                "block": Out(config.block_bits),
                "write": Out(1),
                "done": In(1),
                "hold": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        misses = {store: getattr(self, f"{store}_miss") for store in STORES}
        served = self.waiting & self.done
        m.d.comb += [
            getattr(self, f"{store}_done").eq(served & (self.store == STORES.index(store))) for store in STORES
        ]
        with m.If(self.waiting):
            m.d.comb += self.stalls.eq(1)
            with m.If(self.done):
                m.d.sync += self.waiting.eq(0)
        for place, store in enumerate(ORDER):
            with m.If(misses[store]) if place == 0 else m.Elif(misses[store]):
                m.d.comb += self.stalls.eq(1)
                with m.If(~self.waiting & ~self.hold):
                    m.d.sync += drive(
                        self,
                        waiting=1,
                        store=STORES.index(store),
                        block=getattr(self, f"{store}_block"),
                        write=int(store == "result"),
                    )
        return m


class Ahead(wiring.Component):
    """Two frames: the PS moves blocks ahead, in an order that it knows. The engine waits only for blocks that are late.

    The PS sets `job` to the store of its next page. When `ready` is set, it moves the page, and then pulses `done`.
    STORE_ready: the store has a free frame, or a block that has to leave. STORE_miss: the store's block is late.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                **{f"{store}_miss": In(1) for store in STORES},
                **{f"{store}_ready": In(1) for store in STORES},
                **{f"{store}_done": Out(1) for store in STORES},
                "stalls": Out(1),
                "job": In(2),
                "ready": Out(1),
                "done": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        m.d.comb += self.stalls.eq(Cat(getattr(self, f"{store}_miss") for store in STORES).any())
        with m.Switch(self.job):
            for number, store in enumerate(STORES):
                with m.Case(number):
                    m.d.comb += self.ready.eq(getattr(self, f"{store}_ready"))
                    m.d.comb += getattr(self, f"{store}_done").eq(self.done)
        return m
