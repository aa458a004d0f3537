"""A queue of dependency tokens: they carry nothing, so two counters are all of it."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class TokenQueue(wiring.Component):
    """At most `depth` tokens. A producer reserves a place, later pushes into it; all outputs are registers.

    `room`: a place is free. `available`: there is a token. A push in cycle t is available in t + 1, a pop in t gives
    room in t + 1.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        super().__init__({"reserve": In(1), "push": In(1), "pop": In(1), "room": Out(1), "available": Out(1)})

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        tokens, places = Signal(range(self.depth + 1)), Signal(range(self.depth + 1), init=self.depth)
        m.d.sync += [tokens.eq(tokens + self.push - self.pop), places.eq(places + self.pop - self.reserve)]
        m.d.comb += [self.available.eq(tokens != 0), self.room.eq(places != 0)]
        return m
