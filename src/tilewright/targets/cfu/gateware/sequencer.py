"""The sequencer of a launch: the addresses of the buffers in each cycle, tile by tile."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import enum
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.parts import Part, clear, drive
from tilewright.targets.cfu.config import Config

#: Bits of the sizes M, N and K of a product.
SIZE_BITS = 10


class Activity(enum.Enum, shape=2):  # type: ignore[call-arg]
    """What the array does: nothing, read operands, write sums to C, end a launch."""

    IDLE = 0
    FEED = 1
    DRAIN = 2
    LAST = 3


class Sequencer(Part):
    """Steps through the tiles of a launch, row of tiles by row of tiles.

    A tile takes K cycles to read A and B, n cycles until its first row of sums is complete, and a cycle per row of C.
    `launch` (a cycle) starts a launch, even while another one runs. The array works from the cycle after it on, for all
    tiles and one cycle more: `busy`. `last` is high in the cycle before the last one.

    `a_row` and `b_row` are the rows to read; `fed` is high if the rows that were read in the cycle before count.
    `clear` is high in the first cycle of a tile. In cycles with `write`, row `row` of the sums goes to row `c_row` - 1
    of C. `reads` is high while C must read row `c_row`: the next one to write. A launch without rows or columns never
    ends.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        rows = ceil_log2(config.buffer_rows)
        super().__init__(
            launch=In(1),
            **dict.fromkeys(("m", "n", "k"), In(SIZE_BITS)),
            busy=Out(1),
            last=Out(1),
            **dict.fromkeys(("a_row", "b_row", "c_row"), Out(rows)),
            fed=Out(1),
            clear=Out(1),
            row=Out(ceil_log2(config.array)),
            write=Out(1),
            reads=Out(1),
        )

    def define(self, m: Module) -> None:
        lanes = self.config.array
        rows = ceil_log2(self.config.buffer_rows)
        step = Signal(range((1 << SIZE_BITS) + lanes))
        row = Signal(range(lanes))
        m_left, n_left = (Signal(SIZE_BITS, name=name) for name in ("m_left", "n_left"))
        a_base, b_base, top, c_base = (Signal(rows, name=name) for name in ("a_base", "b_base", "top", "c_base"))
        # c_base: the tile's first row of C; top: that of the first tile in this row of tiles.
        last_m, last_n, last_row = (Signal(name=name) for name in ("last_m", "last_n", "last_row"))
        m.d.comb += [
            last_m.eq(m_left <= lanes),
            last_n.eq(n_left <= lanes),
            last_row.eq(row == Mux(last_m, m_left - 1, lanes - 1)[: len(row)]),
            *drive(self, a_row=a_base + step, b_row=b_base + step, row=row),
        ]
        endless = (self.m == 0) | (self.n == 0)
        state = Signal(Activity)
        m.d.sync += self.fed.eq(0)
        with m.Switch(state):
            with m.Case(Activity.FEED):
                m.d.comb += drive(self, reads=~self.launch, c_row=c_base, clear=step == 0)
                m.d.sync += self.fed.eq(step < self.k)
                with m.If(step != self.k + (lanes - 1)):
                    m.d.sync += step.eq(step + 1)
                with m.Elif(~endless):
                    m.d.sync += [state.eq(Activity.DRAIN), *clear(step, row)]
            with m.Case(Activity.DRAIN):
                m.d.comb += drive(self, reads=~self.launch, c_row=c_base + row + 1, write=~self.launch)
                m.d.sync += row.eq(row + 1)
                with m.If(last_row):
                    m.d.sync += state.eq(Activity.FEED)
                    with m.If(~last_n):
                        m.d.sync += [n_left.eq(n_left - lanes), b_base.eq(b_base + self.k), c_base.eq(c_base + self.m)]
                    with m.Elif(~last_m):
                        m.d.sync += [m_left.eq(m_left - lanes), n_left.eq(self.n), a_base.eq(a_base + self.k)]
                        m.d.sync += [b_base.eq(0), top.eq(top + lanes), c_base.eq(top + lanes)]
                    with m.Else():
                        m.d.comb += self.last.eq(1)
                        m.d.sync += state.eq(Activity.LAST)
            with m.Case(Activity.LAST):
                m.d.sync += state.eq(Activity.IDLE)
        with m.If(self.launch):
            m.d.sync += [state.eq(Activity.FEED), *clear(step, self.fed), m_left.eq(self.m), n_left.eq(self.n)]
            m.d.sync += [base.eq(0) for base in (a_base, b_base, top, c_base)]
        m.d.comb += self.busy.eq(state != Activity.IDLE)
