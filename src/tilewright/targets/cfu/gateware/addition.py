"""The sequencer of an addition: groups of four elements, from two tensors in the image memory to a third."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from tilewright.hdl.parts import Part, clear, drive, flags

from .layer import ADDRESS, LAYER
from .results import PLACE


class Addition(Part):
    """Walks over the elements of a tensor, four per group, a group every two cycles.

    `start` is high in the cycle of the command, in which `now` describes the layer; `layer` is the same from the next
    cycle on. The first group is read in the first cycle after `start` without `hold`. In a cycle with `place.valid`,
    the bytes from `address_x` and `address_y` on are read, and `place` is where their sums go. With `four`, large
    tensors have a group in each cycle. `busy` is high until the last sum is stored, and one cycle more.
    """

    def __init__(self, four: bool = False) -> None:
        self.four = four
        addresses = dict.fromkeys(("address_x", "address_y"), Out(ADDRESS))
        layers = dict.fromkeys(("now", "layer"), In(LAYER))
        super().__init__(**flags(In, "start", "hold"), busy=Out(1), **addresses, **layers, place=Out(PLACE))

    def define(self, m: Module) -> None:
        layer = self.layer
        index, left = Signal(ADDRESS, name="index"), Signal.like(self.now.size, name="left")
        active, pause, ending = Signal(name="active"), Signal(name="pause"), Signal(5)
        fast = layer.all_banks if self.four else 0
        valid, last = self.place.valid, left <= 4
        m.d.comb += [
            valid.eq(active & ~pause & ~self.hold),
            *drive(self, address_x=layer.input + index, address_y=layer.input2 + index, busy=active | ending.any()),
            *drive(self.place, address=layer.output + index, count=Mux(last, left, 4)),
        ]
        m.d.sync += [pause.eq(valid & ~fast), ending.eq(ending >> 1)]
        with m.If(valid):
            m.d.sync += [index.eq(index + 4), left.eq(left - 4)]
            with m.If(last):  # busy for four or five cycles more
                m.d.sync += [active.eq(0), ending.eq(Mux(fast, 0b01000, 0b10000))]
        with m.If(self.start):
            m.d.sync += [active.eq(1), *clear(pause, index), left.eq(self.now.size)]
