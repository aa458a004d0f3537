"""The document's state machines: one for the stages of a layer, and one for the steps of an iteration.

layer:                        IDLE -> CONV_1_1 | CONV_OTHER | POOL | FC_CAL -> FC_LAST -> FLUSH -> IDLE
iteration of a sum (not POOL): REQUEST -> LOAD (144) -> DELAY -> ACC -> REQUEST | WRITE -> REQUEST

The state machines advance while `moves` is 1. `moves` is 0 while the engine waits for a page.

A store outputs a word one cycle after its address. So the lanes of an iteration are requested in the state REQUEST and
in all cycles of LOAD except the last. The unit completes the sum 2 cycles after the last request. The accumulator adds
the sum 3 cycles after the last request (2 cycles with lat_use=0, which is too early). With control=direct, LOAD is one
cycle shorter. With `pruned`, DELAY is omitted as well, and with `pipelined` also ACC: the cycles after the last request
overlap with the next iteration.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import enum
from amaranth.lib.wiring import In, Out

from tilewright.hdl.parts import Part, after, clear, drive, flags
from tilewright.targets.zynq.config import LANES, Config
from tilewright.targets.zynq.isa.layer import Kind
from tilewright.targets.zynq.timing.walk import POOL_TAIL


class Stage(enum.Enum, shape=3):  # type: ignore[call-arg]
    """The stage of a layer. In FC_LAST, the last products of a sum do not fill all lanes. FLUSH moves the last page."""

    IDLE = 0
    CONV_1_1 = 1
    CONV_OTHER = 2
    POOL = 3
    FC_CAL = 4
    FC_LAST = 5
    FLUSH = 6


class Step(enum.Enum, shape=3):  # type: ignore[call-arg]
    """The states of an iteration, and of writing a result."""

    REQUEST = 0
    LOAD = 1
    DELAY = 2
    ACC = 3
    WRITE = 4


STAGES = {
    Kind.CONV_1_1: Stage.CONV_1_1,
    Kind.CONV_OTHER: Stage.CONV_OTHER,
    Kind.POOL: Stage.POOL,
    Kind.FC: Stage.FC_CAL,
}


def enter(m: Module, stage: Any, kind: Any) -> None:
    with m.Switch(kind):
        for number, first in STAGES.items():
            with m.Case(number):
                m.d.sync += stage.eq(first)


def late(config: Config) -> int:
    """Return the number of cycles between `writes` (a word is reserved) and the result's sum in the accumulator."""
    return 3 + config.lat_use - (config.iteration() - LANES) - (0 if config.write_behind else 1)


class States(Part):
    """Both state machines. A pulse of `start` begins a layer of kind `kind`."""

    def __init__(self, config: Config) -> None:
        # While `requests` is 1, the loader requests the operands of lane `lane`; in the state REQUEST, `first` marks
        # the first lane of a sum. The unit latches its sum at `take`. The accumulator adds the unit's sum at
        # `accumulates`, to the bias if `begins` is 1. `writes` reserves a word for a result, whose sum is in the
        # accumulator late() cycles later. While `elements` is 1, the pool requests an element. `ends` marks the last
        # step of the layer.
        #
        # loader.Walker describes `complete`, `last` and `short`. `pool_last` marks the last element of the pool.
        # `flushed` is 1 when the last block of results has left the store.
        self.config = config
        super().__init__(
            **flags(In, "start", "moves", "complete", "last", "short", "pool_last", "flushed"),
            kind=In(Kind),
            stage=Out(Stage),
            step=Out(Step),
            lane=Out(range(LANES + 1)),
            is_fc=Out(1),
            **flags(Out, "requests", "first", "take", "accumulates", "begins", "writes", "elements", "ends"),
            **flags(Out, "next_lane", "next_iteration", "next_sum"),
        )

    def define(self, m: Module) -> None:
        config = self.config
        tail = Signal(range(POOL_TAIL + 1))
        is_sum = Signal()
        first = Signal()
        is_conv = (self.stage == Stage.CONV_1_1) | (self.stage == Stage.CONV_OTHER)
        requested = self.moves & self.requests & (self.lane == LANES - 1)
        m.d.comb += drive(
            self,
            is_fc=(self.stage == Stage.FC_CAL) | (self.stage == Stage.FC_LAST),
            requests=is_sum
            & (tail == 0)
            & ((self.step == Step.REQUEST) | (self.step == Step.LOAD) & (self.lane != LANES)),
            elements=(self.stage == Stage.POOL) & (tail == 0),
            next_lane=self.moves & self.requests,
            take=after(m, requested, 2),
            accumulates=after(m, requested, 2 + config.lat_use),
            begins=after(m, first, 2 + config.lat_use),
        )
        m.d.comb += is_sum.eq(is_conv | self.is_fc)
        with m.If(self.start):
            m.d.sync += [*drive(self, step=Step.REQUEST, first=1), *clear(self.lane, tail)]
            enter(m, self.stage, self.kind)
        with m.Elif(self.moves):
            with m.If(self.stage == Stage.POOL):
                with m.If((tail != 0) | self.pool_last):
                    m.d.sync += tail.eq(tail + 1)
                m.d.comb += self.ends.eq(tail == POOL_TAIL)
            with m.Elif(is_sum & (tail != 0)):
                m.d.comb += self.ends.eq(1)
            with m.Elif(is_sum):
                self._iteration(m, first, tail)
            with m.If(self.ends):
                m.d.sync += self.stage.eq(Stage.FLUSH)
        with m.Elif((self.stage == Stage.FLUSH) & self.flushed):
            m.d.sync += self.stage.eq(Stage.IDLE)

    def _iteration(self, m: Module, first: Signal, tail: Signal) -> None:
        """Add the states of an iteration. `first` marks the products that begin a sum. `tail` counts final cycles."""
        # `ends` lists the states after the last request. Each of them takes one cycle.
        others = self.config.iteration() - LANES  # cycles without a request
        ends: list[Any] = [Step.ACC, *([Step.DELAY] if self.config.lat_use else []), Step.LOAD][:others][::-1]
        with m.Switch(self.step):
            with m.Case(Step.REQUEST):
                m.d.sync += [*drive(self, step=Step.LOAD, lane=1, first=0), first.eq(self.first)]
                with m.If(self.is_fc):
                    m.d.sync += self.stage.eq(Stage.FC_CAL)
                    with m.If(self.short):
                        m.d.sync += self.stage.eq(Stage.FC_LAST)
            with m.Case(Step.LOAD):
                m.d.sync += self.lane.eq(self.lane + 1)
                with m.If(self.lane == (LANES if Step.LOAD in ends else LANES - 1)):
                    m.d.sync += self.lane.eq(0)
                    self._follow(m, [step for step in ends if step != Step.LOAD], tail)
            with m.Case(Step.DELAY):
                self._follow(m, [Step.ACC], tail)
            with m.Case(Step.ACC):
                self._follow(m, [], tail)
            with m.Case(Step.WRITE):
                self._written(m, tail)
                m.d.comb += self.ends.eq(self.last)

    def _follow(self, m: Module, left: list[Any], tail: Signal) -> None:
        """Enter the first state of `left`. If `left` is empty, go to the next iteration or to the result."""
        if left:
            m.d.sync += self.step.eq(left[0])
            return
        with m.If(~self.complete):
            m.d.comb += self.next_iteration.eq(1)
            m.d.sync += self.step.eq(Step.REQUEST)
        with m.Else():
            if self.config.write_behind:
                self._written(m, tail)
            else:
                m.d.sync += self.step.eq(Step.WRITE)

    def _written(self, m: Module, tail: Signal) -> None:
        """Reserve a word for a result. With write_behind, the last result needs another cycle."""
        m.d.comb += drive(self, writes=1, next_sum=1)
        m.d.sync += drive(self, step=Step.REQUEST, first=1)
        if self.config.write_behind:
            m.d.sync += tail.eq(self.last)
