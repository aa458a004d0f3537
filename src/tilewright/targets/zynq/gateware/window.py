"""The window buffer: the pixels of a position group, in memory made of logic, beside those of the group before.

The kernels of a weight block take their operands from it in turn, 16 channels of all pixels per cycle, while the data
store's port loads the next group. It has a memory for each pixel and for even and odd groups of channels.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from tilewright.hdl.parts import Part, after, drive, flags
from tilewright.targets.zynq.config import DEEPEST, GROUP, LINE, Config
from tilewright.targets.zynq.gateware.groups import ROWS, SLOTS, columns
from tilewright.targets.zynq.gateware.loader import DESCRIPTOR

#: Bits of 16 channels of a pixel.
PIXEL = 8 * GROUP


class WindowBuffer(Part):
    """Holds two groups of positions, numbers 0 and 1.

    A request of Groups (`asks` .. `pair`) for position group `fills` is followed by its line `line` a cycle later. The
    words of uint8 become int8 numbers. `pixels` are those of channel group `group` of position group `uses`, in the
    same cycle: row by row, 16 channels each.
    """

    def __init__(self, config: Config) -> None:
        self.columns = columns(config)
        super().__init__(
            **flags(In, "asks", "pair", "fills", "uses"),
            layer=In(DESCRIPTOR),
            slot=In(range(SLOTS)),
            row=In(range(ROWS)),
            column=In(range(self.columns)),
            asked=In(range(DEEPEST)),
            line=In(8 * LINE["data"]),
            group=In(range(DEEPEST)),
            pixels=Out(ROWS * self.columns * PIXEL),
        )

    def define(self, m: Module) -> None:
        request = (self.asks, self.pair, self.slot, self.row, self.column, Cat(self.asked, self.fills))
        arrives, pair, slot, row, column, place = (after(m, each, 1) for each in request)
        two = self.line.word_select(slot >> 1, 2 * PIXEL)
        one = two.word_select(slot[0], PIXEL)
        sign = Mux(self.layer.x_signed, 0, 128).replicate(GROUP)
        pixels = []
        for number in range(ROWS * self.columns):
            halves = []
            for half in range(2):
                m.submodules[f"pixel{number}_{half}"] = memory = Memory(shape=PIXEL, depth=DEEPEST, init=[])
                writes, reads = memory.write_port(), memory.read_port(domain="comb")
                mine = (row == number // self.columns) & (column == number % self.columns)
                word = Mux(pair, two.word_select(half, PIXEL), one) ^ sign
                m.d.comb += drive(writes, en=arrives & mine & (pair | (place[0] == half)), addr=place >> 1, data=word)
                m.d.comb += reads.addr.eq(Cat(self.group[1:], self.uses))
                halves.append(reads.data)
            pixels.append(Mux(self.group[0], halves[1], halves[0]))
        m.d.comb += self.pixels.eq(Cat(pixels))
