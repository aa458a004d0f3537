"""Two sequencers for tensors in the image memory: the mean over all pixels, and the addition."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, signed
from amaranth.lib import enum
from amaranth.lib.wiring import In, Out

from tilewright.hdl.parts import Part, after, clear, drive, flags, step_loops
from tilewright.targets.cfu.isa.coupled import DIVIDE

from .image import ADDRESS, LAYER
from .results import PLACE, bounded

LANES = 4  # channels whose sums are computed at the same time
COUNT = 20  # the bits of a number of pixels
SUM = 28  # the bits of a sum of int8 values


class PoolState(enum.Enum, shape=2):  # type: ignore[call-arg]
    """The state of the unit: idle, read and add, divide, end."""

    IDLE = 0
    READ = 1
    DIVIDE = 2
    END = 3


class MeanPool(Part):
    """Computes the mean of each channel over all pixels, with ties away from zero.

    `start` is high in the cycle of the command. The layer is described by `now` in this cycle, and by `layer` in all
    later cycles. The first pixel is read in the first cycle after `start` without `hold`. `word` has the bytes at the
    `address` of the previous cycle. In cycles with `place.valid`, `code` is stored at `place`.
    """

    def __init__(self) -> None:
        layers = dict.fromkeys(("now", "layer"), In(LAYER))
        memory = {"address": Out(ADDRESS), "word": In(32), "place": Out(PLACE), "code": Out(signed(8))}
        super().__init__(**flags(In, "start", "hold"), busy=Out(1), **layers, **memory)

    def define(self, m: Module) -> None:
        layer = self.layer
        state = Signal(PoolState)
        x, y = (Signal(10, name=name) for name in "xy")
        channel = Signal(16, name="first_channel")
        count = Signal(COUNT, name="count")
        lane = Signal(range(LANES))
        step = Signal(range(DIVIDE))
        reads = (state == PoolState.READ) & ~self.hold
        last_x = x == layer.in_w - 1
        last_lane = (lane == LANES - 1) | (channel + lane == layer.in_c - 1)
        m.d.comb += self.busy.eq(state != PoolState.IDLE)
        with m.If(reads):
            m.d.sync += [self.address.eq(self.address + layer.in_c), count.eq(count + 1)]
            step_loops(m, (x, last_x))
            with m.If(last_x):
                m.d.sync += y.eq(y + 1)
                with m.If(y == layer.in_h - 1):
                    m.d.sync += [state.eq(PoolState.DIVIDE), *clear(lane, step)]
        with m.If(state == PoolState.DIVIDE):
            m.d.sync += step.eq(step + 1)
            with m.If(step == DIVIDE - 1):
                m.d.sync += [step.eq(0), lane.eq(lane + 1)]
                with m.If(last_lane):
                    ended = channel + LANES >= layer.in_c
                    m.d.sync += [state.eq(Mux(ended, PoolState.END, PoolState.READ)), *clear(x, y, count)]
                    m.d.sync += [channel.eq(channel + LANES), self.address.eq(layer.input + channel + LANES)]
        with m.If(state == PoolState.END):
            m.d.sync += state.eq(PoolState.IDLE)
        with m.If(self.start):
            m.d.sync += [state.eq(PoolState.READ), *clear(x, y, count, channel)]
            m.d.sync += self.address.eq(self.now.input)
        # A pixel arrives in the cycle after its read.
        arrived = after(m, reads, 1)
        is_first = after(m, count == 0, 1)
        sums = [Signal(signed(SUM), name=f"sum_{lane}") for lane in range(LANES)]
        with m.If(arrived):
            for number, total in enumerate(sums):
                m.d.sync += total.eq(Mux(is_first, 0, total) + self.word.word_select(number, 8).as_signed())
        self._divide(m, Array(sums)[lane], count, step)
        m.d.comb += drive(
            self.place,
            valid=(state == PoolState.DIVIDE) & (step == DIVIDE - 1),
            address=layer.output + channel + lane,
            count=1,
        )

    def _divide(self, m: Module, total: Any, count: Signal, step: Signal) -> None:
        """Divide a sum by the number of pixels, a bit per cycle from step 2 on, and clamp the quotient."""
        rest = Signal(COUNT)
        # `quotient` begins with the dividend. In each step, the highest bit of the dividend moves to `rest`, and a new
        # bit of the quotient enters at the low end.
        quotient = Signal(SUM, name="quotient")
        negative = Signal(name="negative")
        shifted = Signal(COUNT + 1, name="shifted")
        m.d.comb += shifted.eq(Cat(quotient[-1], rest))
        fits = shifted >= count
        with m.If(step == 1):
            m.d.sync += [negative.eq(total < 0), rest.eq(0), quotient.eq(Mux(total < 0, -total, total) + (count >> 1))]
        with m.Elif((step > 1) & (step <= SUM + 1)):
            m.d.sync += [rest.eq(Mux(fits, shifted - count, shifted)), quotient.eq(Cat(fits, quotient))]
        mean = Signal(signed(10))
        m.d.comb += mean.eq(Mux(negative, -quotient[:8], quotient[:8]))
        m.d.comb += self.code.eq(bounded(mean, self.layer.low, self.layer.high))


class Addition(Part):
    """Steps through the elements of a tensor in groups of four, with a group every two cycles.

    With `four`, there is a group in each cycle if the tensor is large enough for this. `start` is high in the cycle of
    the command. The layer is described by `now` in this cycle, and by `layer` in all later cycles. The first group is
    read in the first cycle after `start` without `hold`. In a cycle with `place.valid`, the operands at `address_x` and
    `address_y` are read, and `place` is the destination of their sums. `busy` is high until one cycle after the last
    sum is stored.
    """

    def __init__(self, four: bool = False) -> None:
        self.four = four
        addresses = dict.fromkeys(("address_x", "address_y"), Out(ADDRESS))
        layers = dict.fromkeys(("now", "layer"), In(LAYER))
        super().__init__(**flags(In, "start", "hold"), busy=Out(1), **addresses, **layers, place=Out(PLACE))

    def define(self, m: Module) -> None:
        layer = self.layer
        index = Signal(ADDRESS, name="index")
        left = Signal.like(self.now.size, name="left")
        active = Signal(name="active")
        pause = Signal(name="pause")
        ending = Signal(5)
        fast = layer.all_banks if self.four else 0
        valid = self.place.valid
        last = left <= 4
        m.d.comb += [
            valid.eq(active & ~pause & ~self.hold),
            *drive(self, address_x=layer.input + index, address_y=layer.input2 + index, busy=active | ending.any()),
            *drive(self.place, address=layer.output + index, count=Mux(last, left, 4)),
        ]
        m.d.sync += [pause.eq(valid & ~fast), ending.eq(ending >> 1)]
        with m.If(valid):
            m.d.sync += [index.eq(index + 4), left.eq(left - 4)]
            with m.If(last):  # the last group is in the pipeline for four or five more cycles
                m.d.sync += [active.eq(0), ending.eq(Mux(fast, 0b01000, 0b10000))]
        with m.If(self.start):
            m.d.sync += [active.eq(1), *clear(pause, index), left.eq(self.now.size)]
