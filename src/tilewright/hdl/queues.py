"""Queues: a FIFO in block RAM, and a queue of dependency tokens."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from tilewright.hdl.parts import Part, drive, ram


class StreamFifo(Part):
    """A FIFO of `depth` elements (at least 1) of `shape`.

    An element written in cycle t can be read in t + 1. A full FIFO accepts an element in the cycle of a read.
    """

    def __init__(self, shape: ShapeLike, depth: int) -> None:
        self.shape, self.depth = shape, depth
        super().__init__(i=In(stream.Signature(shape)), o=Out(stream.Signature(shape)), level=Out(range(depth + 1)))

    def define(self, m: Module) -> None:
        write, read = ram(m, "memory", self.shape, self.depth, transparent=True)
        first, last = Signal(range(self.depth)), Signal(range(self.depth))
        takes, gives = Signal(), Signal()
        m.d.comb += [
            *drive(self.o, valid=self.level != 0, payload=read.data),
            gives.eq(self.o.valid & self.o.ready),
            self.i.ready.eq((self.level != self.depth) | gives),
            takes.eq(self.i.valid & self.i.ready),
            *drive(write, addr=last, data=self.i.payload, en=takes),
            read.addr.eq(first),
        ]
        following = Signal.like(first)
        m.d.comb += following.eq(_next(first, self.depth))
        with m.If(gives):
            m.d.sync += first.eq(following)
            m.d.comb += read.addr.eq(following)  # the element on `o` in the next cycle
        with m.If(takes):
            m.d.sync += last.eq(_next(last, self.depth))
        m.d.sync += self.level.eq(self.level + takes - gives)


def _next(pointer: Signal, depth: int) -> Value:
    return Mux(pointer == depth - 1, 0, pointer + 1)


class TokenQueue(Part):
    """A queue of at most `depth` dependency tokens. Tokens carry no data, so the queue consists of two counters.

    The producer reserves a place and later pushes a token into this place. Outputs depend on registers only.

    `room`: a place is free. `available`: a token is present. A push in cycle t makes a token available in t + 1; a pop
    in t frees its place in t + 1.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        super().__init__(reserve=In(1), push=In(1), pop=In(1), room=Out(1), available=Out(1))

    def define(self, m: Module) -> None:
        tokens, places = Signal(range(self.depth + 1)), Signal(range(self.depth + 1), init=self.depth)
        m.d.sync += [tokens.eq(tokens + self.push - self.pop), places.eq(places + self.pop - self.reserve)]
        m.d.comb += drive(self, available=tokens != 0, room=places != 0)
