"""The states of an engine with `window=1`, which computes one iteration per cycle.

IDLE -> CONV_1_1 | CONV_OTHER | POOL | FC_CAL -> FLUSH -> IDLE

A convolution consists of phases. In a phase, the engine computes the channels of a weight block for one position group,
and loads the data of the next group. The phase ends when the computation and the load are done. The first phase only
loads, and the last phase only computes. An FC layer computes one column after another.

A channel takes one cycle per iteration, but at least one cycle per result, because one result is written per cycle. The
state machine advances while `moves` is 1.
"""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.mac import product
from tilewright.hdl.parts import Part, clear, drive, flags
from tilewright.targets.zynq.config import GROUP, LANES, Config
from tilewright.targets.zynq.gateware.groups import SIDES
from tilewright.targets.zynq.gateware.loader import DESCRIPTOR
from tilewright.targets.zynq.gateware.states import Stage, enter
from tilewright.targets.zynq.isa.layer import Kind
from tilewright.targets.zynq.timing.walk import POOL_TAIL


class Sweep(Part):
    """The stages and loops. A pulse of `start` begins a layer of kind `kind`."""

    def __init__(self, config: Config) -> None:
        # While `iterates` is 1, iteration number `time` of channel (in an FC layer: column) `column` is computed. The
        # iteration reads line `line` of weight block `block`, and in an FC layer also line `time` of the data. `begins`
        # and `completes` mark the first and the last iteration of a sum. The iteration computes the sums of `count`
        # positions. For each position, `sides` has the sides of the image at which the position is. `half` selects the
        # half of the window buffer with the data of these positions.
        #
        # `ends_channel` marks the last cycle of a channel, and `is_last` marks the last channel of the layer. While
        # `elements` is 1, the pool requests an element; `pool_last` marks its last element. `ends` marks the last step
        # of the layer. `next` and `more` are inputs of Groups, and `filled`, `is_end`, `next_count` and `next_sides`
        # are outputs of Groups. `flushed` is 1 when the last block of results has left the store.
        self.config = config
        sides = len(SIDES) * config.outputs
        super().__init__(
            layer=In(DESCRIPTOR),
            **flags(In, "start", "moves", "filled", "is_end", "pool_last", "flushed"),
            kind=In(Kind),
            next_count=In(range(config.outputs + 1)),
            next_sides=In(sides),
            stage=Out(Stage),
            is_fc=Out(1),
            **flags(Out, "iterates", "begins", "completes", "ends_channel", "is_last", "half"),
            **flags(Out, "next", "more", "elements", "ends"),
            time=Out(18),
            column=Out(16),
            line=Out(max(1, ceil_log2(config.lines("weight")))),
            block=Out(config.block_bits),
            count=Out(range(config.outputs + 1)),
            sides=Out(sides),
        )

    def define(self, m: Module) -> None:
        tail = Signal(range(max(POOL_TAIL, self.config.outputs) + 1))
        loads = Signal()
        works = Signal()
        is_conv = (self.stage == Stage.CONV_1_1) | (self.stage == Stage.CONV_OTHER)
        m.d.comb += drive(
            self,
            is_fc=self.stage == Stage.FC_CAL,
            elements=(self.stage == Stage.POOL) & works,
            begins=self.iterates & (self.time == 0),
            ends=self.moves & (tail == 1),
        )
        m.d.comb += works.eq(tail == 0)
        with m.If(self.start):
            m.d.sync += clear(tail, self.time, self.column, self.line, self.block)
            enter(m, self.stage, self.kind)
        with m.Elif((self.stage == Stage.FLUSH) & self.flushed):
            m.d.sync += self.stage.eq(Stage.IDLE)
        with m.Elif(self.moves & ~works):
            m.d.sync += tail.eq(tail - 1)
            with m.If(self.ends):
                m.d.sync += self.stage.eq(Stage.FLUSH)
        with m.Elif(self.moves & self.elements), m.If(self.pool_last):
            m.d.sync += tail.eq(POOL_TAIL)
        with m.Elif(self.moves & self.is_fc):
            m.d.sync += drive(self, time=self.time + 1, line=self.line + 1)
            with m.If(self.ends_channel):
                m.d.sync += [self.time.eq(0), self.column.eq(self.column + 1)]
            with m.If(self.line == self.config.lines("weight") - 1):
                m.d.sync += [self.line.eq(0), self.block.eq(self.block + 1)]
            with m.If(self.ends_channel & self.is_last):
                m.d.sync += tail.eq(1)
        with m.Elif(self.moves & is_conv), m.If(self.next & ~loads):
            m.d.sync += tail.eq(self.count)  # wait until the last results are written
        self._convolution(m, is_conv & works, loads)
        self._fc(m, works)

    def _convolution(self, m: Module, active: Value, loads: Signal) -> None:
        """Add the loops of a convolution. `loads` is 1 if this phase loads a position group."""
        lines = self.config.lines("weight")
        depth = Signal(12)
        computes = Signal()
        done = Signal()
        count = Signal.like(self.count)
        # The weight block: its first channel, the first line of the current kernel, and whether it is the last block.
        top = Signal(16)
        base = Signal.like(self.line)
        is_last = Signal()
        single = Signal()
        kernels = Signal(16)
        opening = Signal()
        is_end = Signal()
        m.d.comb += depth.eq((self.layer.ic + (GROUP - 1)) >> ceil_log2(GROUP))
        m.d.sync += single.eq(product(self.layer.oc, depth, self.config.logic) <= lines)
        # `turn` is 1 while a channel is computed. `full` is 1 if the current kernel is the last kernel of its block or
        # of the layer. `over` is 1 if all channels of this phase are computed, so that it ends when its load is done.
        turn, iterates, ends_channel, full, over = (
            Signal(name=name) for name in ("turn", "conv_iterates", "conv_ends_channel", "full", "over")
        )
        following = Signal(17)
        block_kernels = Signal(16)
        next_is_last = Signal()
        m.d.comb += [
            turn.eq(active & computes & ~done),
            iterates.eq(turn & (self.time < depth)),
            ends_channel.eq(turn & (self.time + 1 == Mux(depth > count, depth, count))),
            full.eq((base + (depth << 1) > lines) | (self.column == self.layer.oc - 1)),
            over.eq(~computes | done | (ends_channel & full)),
            self.next.eq(active & self.moves & over & self.filled),
            # The first position group counts the kernels of a weight block.
            following.eq(self.column + 1),
            block_kernels.eq(Mux(opening, following, kernels)),
            next_is_last.eq(Mux(computes, Mux(is_end, following + block_kernels >= self.layer.oc, is_last), single)),
            self.more.eq(loads & ~(self.is_end & next_is_last)),
        ]
        with m.If(~self.is_fc):
            m.d.comb += drive(self, iterates=iterates, completes=iterates & (self.time + 1 == depth))
            m.d.comb += drive(self, ends_channel=ends_channel, is_last=full & ~loads)
        m.d.comb += self.count.eq(Mux(active, count, 1))
        with m.If(self.start):
            m.d.sync += [*clear(computes, done, top, base), loads.eq(1), opening.eq(1)]
        with m.Elif(self.next):
            m.d.sync += [computes.eq(loads), loads.eq(self.more), *clear(done, self.time), self.half.eq(~self.half)]
            m.d.sync += [count.eq(self.next_count), self.sides.eq(self.next_sides), is_end.eq(self.is_end)]
            m.d.sync += [is_last.eq(next_is_last), *clear(base, self.line), self.column.eq(top)]
            with m.If(computes):
                m.d.sync += [opening.eq(0), kernels.eq(block_kernels)]
                with m.If(is_end):
                    m.d.sync += [*drive(self, column=following, block=self.block + 1), top.eq(following)]
        with m.Elif(turn & self.moves):
            m.d.sync += drive(self, time=self.time + 1, line=self.line + iterates)
            with m.If(ends_channel):
                m.d.sync += self.time.eq(0)
                with m.If(full):
                    m.d.sync += done.eq(1)
                with m.Else():
                    m.d.sync += [self.column.eq(following), base.eq(base + depth)]

    def _fc(self, m: Module, works: Signal) -> None:
        taken = Signal(25)
        ends_column = Signal()
        m.d.comb += ends_column.eq(taken + LANES >= self.layer.r)
        with m.If(self.is_fc):
            m.d.comb += drive(self, iterates=works, completes=works & ends_column)
            m.d.comb += self.ends_channel.eq(works & ends_column)
            m.d.comb += self.is_last.eq(self.column == self.layer.l - 1)
        with m.If(self.start):
            m.d.sync += taken.eq(0)
        with m.Elif(self.iterates & self.moves):
            m.d.sync += taken.eq(Mux(ends_column, 0, taken + LANES))
