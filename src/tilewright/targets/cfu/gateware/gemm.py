"""The matrix unit: the array, the buffers A, B and C, and the sequencer that addresses the buffers tile by tile."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import enum
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.modules import part
from tilewright.hdl.parts import Part, add, clear, drive, expose, flags, ports, ram
from tilewright.targets.cfu import bill
from tilewright.targets.cfu.config import Config

from .array import LEFT_BITS, SUM_BITS, VALUE, WORD, HalfRow, OperandBuffer, SystolicArray
from .coupled import ArrayControl

#: Bits of the sizes M, N and K of a product.
SIZE_BITS = 10


class Activity(enum.Enum, shape=2):  # type: ignore[call-arg]
    """The activity of the array: idle, read operands, write sums to C, end a launch."""

    IDLE = 0
    FEED = 1
    DRAIN = 2
    LAST = 3


class Sequencer(Part):
    """Steps through the tiles of a launch: the outer loop is over rows of tiles, the inner loop over columns.

    A tile takes K cycles to read A and B, n cycles until its first row of sums is complete, and a cycle per row of C.
    A cycle with `launch` starts a launch, even while another launch runs. The array works (`busy`) from the next cycle
    on, for all tiles and one additional cycle. `last` is high in the cycle before the last busy cycle. A launch without
    rows or columns never ends.

    `a_row` and `b_row` are the rows of A and B to read. In the next cycle, `fed` shows whether they are operands.
    `clear` is high in the first cycle of a tile. While `write` is high, row `row` of the sums is written to row
    `c_row` - 1 of C. `reads` is high while C must read row `c_row`, the next row that is written.
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
        # c_base is the first row of C of this tile, and top is the first row of C of the first tile in this row.
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
                    # The next row of tiles: the next K rows of A, and all rows of B again.
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


#: The bit in start_GEMM's first operand for an addition to C. The lower bits have K, N and M.
ACCUMULATE = 30


class MatrixUnit(Part):
    """The instructions of the array. `set_a`, `set_b`, `start` and `get` are high in the cycle of their command.

    The launch is the cycle after `start`, in which registers have the operands. The array works (`busy`) from the next
    cycle on; `last` is high in the cycle before the last busy cycle. `sum` is the answer of `get`, in the same cycle or
    (with readout=random) in the next cycle. While the array works, the answer is a sum of the row that the array writes
    next.

    With an image memory, the port `other_busy` is high while a command on the image memory runs. During this time,
    buffers are not written, and `sum` is 0. With im2col, a convolution drives the array and C through the port
    `convolution`; `sums` is the row of C that the convolution reads. With a DMA, `filled` writes halves of rows of B,
    and rows of the CPU wait while the DMA is `fetching`.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        commands = flags(In, "set_a", "set_b", "start", "get")
        operands = dict.fromkeys(("first", "second"), In(WORD))
        members: dict[str, Any] = {**commands, **operands, "busy": Out(1), "last": Out(1), "sum": Out(SUM_BITS)}
        self.shared = bool(config.extensions)
        self.convolves = "im2col" in config.extension_names
        if self.shared:
            members["other_busy"] = In(1)
        self.fetches = bool(bill.fetches(config))
        if self.fetches:
            members |= {"filled": In(HalfRow(config)), "fetching": In(1)}
        if self.convolves:
            members |= {"convolution": In(ArrayControl(config)), "sums": Out(config.array * SUM_BITS)}
        super().__init__(**members)

    def define(self, m: Module) -> None:
        config = self.config
        launch = Signal(name="launch")
        accumulate = Signal(name="accumulate")
        offset = Signal(signed(LEFT_BITS))
        sizes = [Signal(SIZE_BITS, name=name) for name in "knm"]
        m.d.sync += launch.eq(self.start)
        with m.If(self.start):
            m.d.sync += [size.eq(self.first.word_select(at, SIZE_BITS)) for at, size in enumerate(sizes)]
            m.d.sync += [accumulate.eq(self.first[ACCUMULATE]), offset.eq(self.second)]
        k, n, height = sizes
        sequencer = add(m, "sequencer", Sequencer(config), launch=launch, m=height, n=n, k=k)
        m.d.comb += drive(self, **ports(sequencer, "busy", "last"))
        busy = sequencer.busy | self.other_busy if self.shared else sequencer.busy
        common = {**ports(self, "first", "second"), "launch": launch}
        a = part(OperandBuffer(config, stays_enabled=True), "BufferA")
        b = part(OperandBuffer(config, False, self.fetches), "BufferB")
        add(m, "buffer_a", a, **common, set=self.set_a, start=self.start, row=sequencer.a_row, busy=busy)
        add(m, "buffer_b", b, **common, set=self.set_b, busy=busy | self.fetching if self.fetches else busy)
        if self.fetches:
            expose(m, b.filled, self.filled)
        array = SystolicArray(config.array, int(bill.bill(config)["products_in_logic"]), self.convolves)
        # Without `fed`, zeros must enter: otherwise the offset alone would change the sums.
        lefts = [(a.data.word_select(lane, VALUE).as_signed() + offset)[:LEFT_BITS] for lane in range(config.array)]
        add(m, "array", array, left=Cat(Mux(sequencer.fed, left, 0) for left in lefts), top=b.data)
        start = self.start
        b_row = sequencer.b_row
        clear = sequencer.clear
        row = sequencer.row
        if self.convolves:
            convolution = self.convolution
            start = start | convolution.begins
            clear = clear | convolution.clear
            b_row = Mux(convolution.active, convolution.b_row, b_row)
            row = Mux(convolution.active, convolution.row, row)
            m.d.comb += drive(array, is_late=convolution.active, late=convolution.left)
        m.d.comb += drive(b, start=start, row=b_row)
        m.d.comb += drive(array, clear=clear, row=row)
        self._buffer_c(m, sequencer, array, accumulate, height)

    def _buffer_c(
        self, m: Module, sequencer: Sequencer, array: SystolicArray, accumulate: Signal, height: Signal
    ) -> None:
        # The row that is written was read in the previous cycle, so its old sums are available for an addition.
        config = self.config
        lanes = self.config.array
        write, read = ram(m, "buffer_c", SUM_BITS * lanes, config.buffer_rows)
        sums = [array.sums.word_select(lane, SUM_BITS) for lane in range(lanes)]
        old = [Mux(accumulate, read.data.word_select(lane, SUM_BITS), 0) for lane in range(lanes)]
        m.d.comb += drive(
            write,
            addr=sequencer.c_row - 1,
            data=Cat((new + before)[:SUM_BITS] for new, before in zip(sums, old, strict=True)),
            en=sequencer.write,
        )
        read_row = Signal(len(read.addr))
        m.d.comb += read.addr.eq(read_row)
        if self.convolves:
            convolution = self.convolution
            m.d.comb += self.sums.eq(read.data)
            with m.If(convolution.active):
                m.d.comb += drive(write, addr=convolution.write_row, data=array.sums, en=convolution.write)
            with m.If(convolution.reads):
                m.d.comb += read.addr.eq(convolution.read_row)
        bits = ceil_log2(lanes)
        lane = Signal(bits, name="lane")
        row = Signal(len(read.addr), name="row")
        if config.readout == "random":
            with m.If(self.get):
                m.d.sync += lane.eq(self.second)
            m.d.comb += row.eq((self.second >> bits)[: len(row)] * height + self.first)
        else:
            with m.If(self.get):
                m.d.sync += lane.eq(lane + 1)
                with m.If(lane == lanes - 1):
                    m.d.sync += row.eq(row + 1)
            with m.If(self.start):
                m.d.sync += row.eq(0)
        quiet: Value = Const(0)
        if self.shared:
            quiet = self.other_busy
            if config.readout == "random":
                quiet = Signal(name="quiet")
                m.d.sync += quiet.eq(self.other_busy)
        m.d.comb += [
            read_row.eq(Mux(sequencer.reads, sequencer.c_row, row)),
            self.sum.eq(Mux(quiet, 0, read.data.word_select(lane, SUM_BITS))),
        ]
