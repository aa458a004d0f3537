"""The matrix unit: buffers A, B and C around the array, and the sequencer that addresses them."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, signed
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.modules import part
from tilewright.targets.cfu import bill
from tilewright.targets.cfu.config import Config

from .array import LEFT_BITS, SUM_BITS, SystolicArray
from .buffers import VALUE, WORD, OperandBuffer
from .sequencer import SIZE_BITS, Sequencer

#: The bit of the first operand of start_GEMM that makes the launch add to C. K, N and M are in the bits below.
ACCUMULATE = 30


class MatrixUnit(wiring.Component):
    """The instructions of the array. `set_a`, `set_b`, `start` and `get` are high in the cycle of their command.

    The cycle after `start`, the launch, has the operands in registers. The array works from the next one on: `busy`;
    `last` is high in the cycle before the last one. `sum` is the sum for `get`: in the same cycle, or, with
    readout=random, in the next one. While the array works, it is a sum of the row that the array writes next.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        commands = dict.fromkeys(("set_a", "set_b", "start", "get"), In(1))
        operands = dict.fromkeys(("first", "second"), In(WORD))
        super().__init__({**commands, **operands, "busy": Out(1), "last": Out(1), "sum": Out(SUM_BITS)})

    def elaborate(self, platform: Any) -> Elaboratable:
        m, config = Module(), self.config
        launch, accumulate = Signal(name="launch"), Signal(name="accumulate")
        offset = Signal(signed(LEFT_BITS))
        sizes = [Signal(SIZE_BITS, name=name) for name in "knm"]
        m.d.sync += launch.eq(self.start)
        with m.If(self.start):
            m.d.sync += [size.eq(self.first.word_select(at, SIZE_BITS)) for at, size in enumerate(sizes)]
            m.d.sync += [accumulate.eq(self.first[ACCUMULATE]), offset.eq(self.second)]
        k, n, height = sizes

        sequencer = Sequencer(config)
        m.submodules.sequencer = part(sequencer, "Sequencer")
        m.d.comb += [sequencer.launch.eq(launch), sequencer.m.eq(height), sequencer.n.eq(n), sequencer.k.eq(k)]
        m.d.comb += [self.busy.eq(sequencer.busy), self.last.eq(sequencer.last)]
        a, b = (OperandBuffer(config, stays_enabled=stays) for stays in (True, False))
        m.submodules.buffer_a, m.submodules.buffer_b = part(a, "BufferA"), part(b, "BufferB")
        for buffer, set_, row in ((a, self.set_a, sequencer.a_row), (b, self.set_b, sequencer.b_row)):
            m.d.comb += [
                buffer.set.eq(set_),
                buffer.first.eq(self.first),
                buffer.second.eq(self.second),
                buffer.start.eq(self.start),
                buffer.launch.eq(launch),
                buffer.busy.eq(sequencer.busy),
                buffer.row.eq(row),
            ]
        array = SystolicArray(config.array, int(bill.bill(config)["products_in_logic"]))
        m.submodules.array = part(array, "SystolicArray")
        lefts = [(a.data.word_select(lane, VALUE).as_signed() + offset)[:LEFT_BITS] for lane in range(config.array)]
        m.d.comb += [
            array.left.eq(Cat(Mux(sequencer.fed, left, 0) for left in lefts)),
            array.top.eq(b.data),
            array.clear.eq(sequencer.clear),
            array.row.eq(sequencer.row),
        ]
        self._buffer_c(m, sequencer, array, accumulate, height)
        return m

    def _buffer_c(
        self, m: Module, sequencer: Sequencer, array: SystolicArray, accumulate: Signal, height: Signal
    ) -> None:
        """Add buffer C. Its write goes to the row before the one that it reads, whose old sums are then there."""
        config, lanes = self.config, self.config.array
        m.submodules.buffer_c = rows = memory.Memory(shape=SUM_BITS * lanes, depth=config.buffer_rows, init=[])
        write, read = rows.write_port(), rows.read_port()
        sums = [array.sums.word_select(lane, SUM_BITS) for lane in range(lanes)]
        old = [Mux(accumulate, read.data.word_select(lane, SUM_BITS), 0) for lane in range(lanes)]
        m.d.comb += [
            write.addr.eq(sequencer.c_row - 1),
            write.data.eq(Cat((new + before)[:SUM_BITS] for new, before in zip(sums, old, strict=True))),
            write.en.eq(sequencer.write),
        ]
        bits = ceil_log2(lanes)
        lane, row = Signal(bits, name="lane"), Signal(len(read.addr), name="row")
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
        m.d.comb += [
            read.addr.eq(Mux(sequencer.reads, sequencer.c_row, row)),
            self.sum.eq(read.data.word_select(lane, SUM_BITS)),
        ]
