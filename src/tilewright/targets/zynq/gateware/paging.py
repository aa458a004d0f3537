"""Page requests: `waiting`, the block register and `done`, as the document names them.

An access to a block that its store does not hold stops the engine in the same cycle; `waiting` is set from the next one
until `done`. A request therefore stops the engine from the miss to the cycle of `done`. Several misses in a cycle are
served one after another, in the order of ORDER.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hdl.parts import Part, drive, flags
from tilewright.targets.zynq.config import STORES, Config

#: A complete result block leaves first.
ORDER = ("result", "data", "weight", "bias")


class Pages(wiring.Signature):
    """A store's page requests. `miss`: its access misses block `block`, or the result block is complete.

    `ready`, with two frames: the store has a free frame, or a block that has to leave. `done` is high in the cycle in
    which the PS has moved the block.
    """

    def __init__(self, block_bits: int) -> None:
        super().__init__({"miss": Out(1), "block": Out(block_bits), "ready": Out(1), "done": In(1)})


class Paging(Part):
    """Requests pages. `stalls`: the engine must not move. With `hold`, no new request begins."""

    def __init__(self, config: Config) -> None:
        super().__init__(
            **{store: In(Pages(config.block_bits)) for store in STORES},
            **flags(Out, "stalls", "waiting", "write"),
            store=Out(2),
            block=Out(config.block_bits),
            done=In(1),
            hold=In(1),
        )

    def define(self, m: Module) -> None:
        served = self.waiting & self.done
        with m.If(self.waiting):
            m.d.comb += self.stalls.eq(1)
            with m.If(self.done):
                m.d.sync += self.waiting.eq(0)
        for number, store in enumerate(STORES):
            m.d.comb += getattr(self, store).done.eq(served & (self.store == number))
        for place, store in enumerate(ORDER):
            pages, number = getattr(self, store), STORES.index(store)
            with m.If(pages.miss) if place == 0 else m.Elif(pages.miss):
                m.d.comb += self.stalls.eq(1)
                with m.If(~self.waiting & ~self.hold):
                    m.d.sync += drive(self, waiting=1, store=number, block=pages.block, write=store == "result")


class Ahead(Part):
    """Two frames: the PS moves blocks ahead, in an order that it knows. The engine waits only for blocks that are late.

    The PS sets `job` to the store of its next page. When `ready` is set, it moves the page, and then pulses `done`.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(
            **{store: In(Pages(config.block_bits)) for store in STORES},
            stalls=Out(1),
            job=In(2),
            ready=Out(1),
            done=In(1),
        )

    def define(self, m: Module) -> None:
        stores = [getattr(self, store) for store in STORES]
        m.d.comb += self.stalls.eq(Cat(pages.miss for pages in stores).any())
        with m.Switch(self.job):
            for number, pages in enumerate(stores):
                with m.Case(number):
                    m.d.comb += [self.ready.eq(pages.ready), pages.done.eq(self.done)]
