"""The results of a convolution: which sums are read from C, four per cycle, and where they are stored."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.parts import Part, clear, drive
from tilewright.targets.cfu.config import Config

from .layer import ADDRESS, LAYER
from .requantise import ENTRY, LANES

#: Up to four results of a cycle: the byte address of the first, and their number.
PLACE = data.StructLayout({"valid": 1, "address": ADDRESS, "count": 3})


class ResultReader(Part):
    """Walks over the rows of sums in C in the order in which the array wrote them: tile by tile, row by row.

    `launch` begins. A tile begins in a cycle with `ready`: `taken` is then high. In a cycle with `place.valid`, row
    `c_row` of C is read, of which the sums from 4 * `quad` on belong to `place`, and to the channels from entry `entry`
    of the tables on. `last` is high with the last ones.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        ports: dict[str, Any] = {
            "launch": In(1),
            "ready": In(1),
            "layer": In(LAYER),
            "taken": Out(1),
            "place": Out(PLACE),
        }
        rows, quads = ceil_log2(config.buffer_rows), ceil_log2(config.array // LANES)
        super().__init__(**ports, c_row=Out(rows), quad=Out(quads), entry=Out(ENTRY), last=Out(1))

    def define(self, m: Module) -> None:
        layer, lanes = self.layer, self.config.array
        pixel = data.StructLayout({"column": 10, "row": 10, "address": ADDRESS})
        here, marked, following = (Signal(pixel, name=name) for name in ("here", "marked", "following"))
        active, inside = Signal(name="active"), Signal(name="inside")
        column, number = Signal(16, name="first_channel"), Signal(range(lanes), name="number")
        left = Signal(16)  # channels of this row from here on
        first = column + (self.quad << 2)
        last_x = here.column == layer.out_w - 1
        last_pixel = last_x & (here.row == layer.out_h - 1)
        last_quad, last_row, last_tile = Signal(), Signal(), Signal()
        m.d.comb += drive(
            self.place,
            valid=active & (inside | self.ready),
            address=here.address + first,
            count=Mux(left < LANES, left, LANES),
        )
        m.d.comb += drive(
            self,
            taken=self.place.valid & ~inside,
            entry=layer.table + first,
            last=self.place.valid & last_quad & last_pixel & last_tile,
        )
        m.d.comb += drive(
            following,
            address=here.address + layer.out_c,
            column=Mux(last_x, 0, here.column + 1),
            row=here.row + last_x,
        )
        m.d.comb += [
            left.eq(layer.out_c - first),
            last_quad.eq((left <= LANES) | (self.quad == lanes // LANES - 1)),
            last_row.eq((number == lanes - 1) | last_pixel),
            last_tile.eq(layer.out_c - column <= lanes),
        ]
        with m.If(self.place.valid):
            m.d.sync += [inside.eq(1), self.quad.eq(self.quad + 1)]
            with m.If(last_quad):
                m.d.sync += [self.quad.eq(0), self.c_row.eq(self.c_row + 1), number.eq(number + 1), here.eq(following)]
                with m.If(last_row):
                    m.d.sync += [*clear(number, inside), column.eq(column + lanes), here.eq(marked)]
                    with m.If(last_tile):
                        m.d.sync += [column.eq(0), here.eq(following), marked.eq(following)]
        with m.If(self.last):
            m.d.sync += active.eq(0)
        with m.If(self.launch):
            m.d.sync += [active.eq(1), *clear(self.c_row, column, number, self.quad, inside)]
            m.d.sync += [*clear(here, marked), here.address.eq(layer.output), marked.address.eq(layer.output)]
