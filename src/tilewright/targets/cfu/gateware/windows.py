"""The windows of a convolution: each lane of the array reads its own window from the image memory, byte by byte."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from tilewright.hdl.parts import Part, drive, flags

from .array import LEFT_BITS
from .image import IN_PAIR, PAIR
from .layer import ADDRESS, LAYER

#: Bits of the coordinate of a window element, which may lie outside of the image.
COORDINATE = 15
#: A pixel of the output: its column and row, and the column, row and byte address of its window's first element.
#: `line` is the address of the first window in this row of the output.
PIXEL = data.StructLayout(
    {"column": 10, "row": 10, "x": signed(COORDINATE), "y": signed(COORDINATE), "address": ADDRESS, "line": ADDRESS}
)
#: What the lanes do in a cycle, passed on from lane to lane: `active`: read an element; `first`: of a new window;
#: `last_c`: of its pixel, the last element; `last_x`: of this row of the window, the last pixel.
STEP = data.StructLayout({"active": 1, "first": 1, "last_c": 1, "last_x": 1})


class WindowLane(Part):
    """A lane of the array: it reads the elements of one window, one per cycle, as `step` says.

    With `step.first` the window begins at `pixel`. `address` is that of an element. In the next cycle `pair` has it,
    and `value` is the element plus its offset, or 0 if it lies outside of the image. `next_step` is `step` of the cycle
    before, for the next lane.
    """

    def __init__(self) -> None:
        super().__init__(
            step=In(STEP),
            next_step=Out(STEP),
            pixel=In(PIXEL),
            layer=In(LAYER),
            address=Out(ADDRESS),
            pair=In(PAIR),
            value=Out(signed(LEFT_BITS)),
        )

    def define(self, m: Module) -> None:
        step, layer = self.step, self.layer
        address = Signal(ADDRESS)
        x, y = (Signal(signed(COORDINATE), name=name) for name in "xy")
        here_x, here_y = (Signal(signed(COORDINATE), name=f"here_{name}") for name in "xy")
        m.d.comb += [
            self.address.eq(Mux(step.first, self.pixel.address, address)),
            here_x.eq(Mux(step.first, self.pixel.x, x)),
            here_y.eq(Mux(step.first, self.pixel.y, y)),
        ]
        below = step.last_c & step.last_x
        m.d.sync += [
            self.next_step.eq(step),
            address.eq(self.address + Mux(below, layer.row_jump, 1)),
            x.eq(Mux(below, here_x - layer.kernel_w + 1, here_x + step.last_c)),
            y.eq(here_y + below),
        ]
        inside, place = Signal(name="inside"), Signal(IN_PAIR)
        in_x, in_y = (here_x >= 0) & (here_x < layer.in_w), (here_y >= 0) & (here_y < layer.in_h)
        m.d.sync += [inside.eq(step.active & in_x & in_y), place.eq(self.address)]
        value = (self.pair.word_select(place, 8).as_signed() + layer.input_offset)[:LEFT_BITS]
        m.d.comb += self.value.eq(Mux(inside, value, 0).as_signed())


class PixelWalker(Part):
    """Walks over the pixels of the output, row by row: `pixel` is the current one; `last`: no other follows.

    `launch`: go to the first one. `next`: go on. `again`: go back to the first pixel of the tile; `mark`: the tile
    begins at the current one.
    """

    def __init__(self) -> None:
        commands = flags(In, "launch", "next", "again", "mark")
        super().__init__(**commands, layer=In(LAYER), pixel=Out(PIXEL), last=Out(1))

    def define(self, m: Module) -> None:
        layer, pixel = self.layer, self.pixel
        marked, first = Signal(PIXEL), Signal(PIXEL)
        last_column = pixel.column == layer.out_w - 1
        m.d.comb += [
            self.last.eq(last_column & (pixel.row == layer.out_h - 1)),
            *drive(first, x=-layer.pad_w, y=-layer.pad_h, address=layer.origin, line=layer.origin),
        ]
        with m.If(self.next):
            m.d.sync += drive(
                pixel, column=pixel.column + 1, x=pixel.x + layer.stride_w, address=pixel.address + layer.step_x
            )
            with m.If(last_column):
                below = (pixel.line + layer.step_y)[:ADDRESS]
                m.d.sync += drive(pixel, row=pixel.row + 1, x=first.x, column=0)
                m.d.sync += drive(pixel, y=pixel.y + layer.stride_h, address=below, line=below)
        with m.If(self.again):
            m.d.sync += pixel.eq(marked)
        with m.If(self.mark):
            m.d.sync += marked.eq(pixel)
        with m.If(self.launch):
            m.d.sync += [pixel.eq(first), marked.eq(first)]
