"""Where a 2-D transfer lies on chip: rows of tiles, with zeros around them."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Elaboratable, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

INDEX_BITS = 16
WHICH_BITS = 2

#: `rows` of `columns` tiles of data within zeros, from tile `index` on; any of the counts may be 0.
#: A row begins `offset` tiles into its first beat, the next one `step` further (modulo the tiles of a beat).
WINDOW = data.StructLayout(
    dict.fromkeys(("index", "rows", "columns", "offset", "step"), INDEX_BITS)
    | dict.fromkeys(("top", "bottom", "left", "right"), 4)
)
#: A window as runs of tiles in memory `which`. `rows` is 0 where there is no data, else it begins at `index`.
#: Zeros: `zeros` from tile `zero` on, then `middle` times `between` of them, each run `columns` behind the last,
#: then `behind` of them, `skip` further.
PLACEMENT = data.StructLayout(
    {"which": WHICH_BITS, "between": 5, "zeros": 22, "behind": 22}
    | dict.fromkeys(("index", "rows", "columns", "offset", "step", "zero", "middle", "skip"), INDEX_BITS)
)


class Placer(wiring.Component):
    """The placement of a window, in the same cycle; `padded`: there are zeros."""

    def __init__(self) -> None:
        super().__init__({"window": In(WINDOW), "which": In(WHICH_BITS), "placement": Out(PLACEMENT), "padded": Out(1)})

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        w, p = self.window, self.placement
        width, first, last = Signal(17), Signal(22), Signal(22)
        between, from_rows = Signal(5), Signal()
        m.d.comb += [
            width.eq(w.left + w.columns + w.right),
            between.eq(w.left + w.right),
            from_rows.eq((between != 0) & (w.rows > 1)),
            first.eq(Mux(w.rows == 0, (w.top + w.bottom) * width, w.top * width + w.left)),
            last.eq(Mux(w.rows == 0, 0, w.bottom * width + w.right)),
            self.padded.eq((first != 0) | (last != 0)),  # what is between rows is in one of them too
            p.which.eq(self.which),
            p.index.eq(w.index + first),
            p.rows.eq(Mux(w.columns == 0, 0, w.rows)),
            p.columns.eq(w.columns),
            p.offset.eq(w.offset),
            p.step.eq(w.step),
            p.between.eq(between),
            p.skip.eq(Mux(between == 0, w.rows * w.columns, w.columns)),
            p.zero.eq(w.index),
            p.zeros.eq(first),
            p.middle.eq(Mux(from_rows, w.rows - 1, 0)),
            p.behind.eq(last),
        ]
        with m.If(first == 0):
            with m.If(from_rows):
                m.d.comb += [p.zero.eq(w.index + w.columns), p.zeros.eq(between), p.middle.eq(w.rows - 2)]
            with m.Else():
                m.d.comb += [p.zero.eq(w.index + p.skip), p.zeros.eq(last), p.behind.eq(0)]
        return m
