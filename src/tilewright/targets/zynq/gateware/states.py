"""The state machines of the document: convolutions, pools and FC layers, and the states of an iteration.

    IDLE -> CONV_1_1 | CONV_OTHER | POOL | FC_CAL -> FC_LAST -> FLUSH -> IDLE
    of a convolution and of FC: REQUEST -> LOAD (144) -> DELAY -> ACC -> REQUEST | WRITE -> REQUEST

A state makes a step in each cycle in which `moves` is set: in no cycle in which the engine waits for a page.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from tilewright.targets.zynq.config import LANES, Config
from tilewright.targets.zynq.isa.layer import Kind
from tilewright.targets.zynq.timing.walk import POOL_TAIL


class Stage(enum.Enum, shape=3):  # type: ignore[call-arg]
    """Which state machine runs. FC_LAST: the last products of an FC sum do not fill all lanes. FLUSH: the last page."""

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


class States(wiring.Component):
    """The states. `start` begins a layer of kind `kind`.

    `requests`: the loader requests the operands of lane `lane`, the `first` of a sum in the state REQUEST. `take`: the
    unit takes its sum. `accumulates`: the sum is added. `writes`: the accumulated sum is a result. `elements`: the pool
    requests an element. `ends`: the layer's last step. The inputs `complete` and `last` are the loader's (loader.py),
    `short`: fewer products are left than the unit has lanes, `pool_last` the pool's; `flushed`: its block has left.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                **{name: In(1) for name in ("start", "moves", "complete", "last", "short", "pool_last", "flushed")},
                "kind": In(Kind),
                "stage": Out(Stage),
                "step": Out(Step),
                "lane": Out(range(LANES + 1)),
                "is_fc": Out(1),
                **{name: Out(1) for name in ("requests", "first", "take", "accumulates", "writes", "elements", "ends")},
                **{f"next_{name}": Out(1) for name in ("lane", "iteration", "sum")},
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m, wait = Module(), self.config.lat_use
        tail, is_sum = Signal(range(POOL_TAIL + 1)), Signal()
        is_conv = (self.stage == Stage.CONV_1_1) | (self.stage == Stage.CONV_OTHER)
        m.d.comb += [
            self.is_fc.eq((self.stage == Stage.FC_CAL) | (self.stage == Stage.FC_LAST)),
            is_sum.eq(is_conv | self.is_fc),
            self.requests.eq(is_sum & ((self.step == Step.REQUEST) | (self.step == Step.LOAD) & (self.lane != LANES))),
            self.elements.eq((self.stage == Stage.POOL) & (tail == 0)),
            self.next_lane.eq(self.moves & self.requests),
        ]
        with m.If(self.start):
            m.d.sync += [self.step.eq(Step.REQUEST), self.lane.eq(0), self.first.eq(1), tail.eq(0)]
            with m.Switch(self.kind):
                for kind, stage in STAGES.items():
                    with m.Case(kind):
                        m.d.sync += self.stage.eq(stage)
        with m.Elif(self.moves):
            with m.If(self.stage == Stage.POOL):
                with m.If((tail != 0) | self.pool_last):
                    m.d.sync += tail.eq(tail + 1)
                m.d.comb += self.ends.eq(tail == POOL_TAIL)
            with m.If(is_sum):
                self._iteration(m, wait)
            with m.If(self.ends):
                m.d.sync += self.stage.eq(Stage.FLUSH)
        with m.Elif((self.stage == Stage.FLUSH) & self.flushed):
            m.d.sync += self.stage.eq(Stage.IDLE)
        return m

    def _iteration(self, m: Module, wait: int) -> None:
        with m.Switch(self.step):
            with m.Case(Step.REQUEST):
                m.d.sync += [self.step.eq(Step.LOAD), self.lane.eq(1), self.first.eq(0)]
                with m.If(self.is_fc):
                    m.d.sync += self.stage.eq(Stage.FC_CAL)
                    with m.If(self.short):
                        m.d.sync += self.stage.eq(Stage.FC_LAST)
            with m.Case(Step.LOAD):
                m.d.sync += self.lane.eq(self.lane + 1)
                with m.If(self.lane == LANES):
                    m.d.sync += [self.lane.eq(0), self.step.eq(Step.DELAY if wait else Step.ACC)]
            with m.Case(Step.DELAY):
                m.d.comb += self.take.eq(1)
                m.d.sync += self.step.eq(Step.ACC)
            with m.Case(Step.ACC):
                m.d.comb += [self.accumulates.eq(1), self.take.eq(0 if wait else 1)]
                with m.If(self.complete):
                    m.d.sync += self.step.eq(Step.WRITE)
                with m.Else():
                    m.d.comb += self.next_iteration.eq(1)
                    m.d.sync += self.step.eq(Step.REQUEST)
            with m.Case(Step.WRITE):
                m.d.comb += [self.writes.eq(1), self.next_sum.eq(1), self.ends.eq(self.last)]
                m.d.sync += [self.step.eq(Step.REQUEST), self.first.eq(1)]
