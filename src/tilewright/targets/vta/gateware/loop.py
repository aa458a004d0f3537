"""The micro-op sequencer: two loops over a list of micro-ops, with the tile offsets of each iteration."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Elaboratable, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import ITER_BITS
from tilewright.targets.vta.steps.micro_kernel import FACTOR_TILES

OPERANDS = ("dst", "src", "wgt")


def offsets(config: Config) -> data.StructLayout:
    """An offset for each operand of a micro-op."""
    bits = config.index_bits
    return data.StructLayout({"dst": bits.acc, "src": max(bits.acc, bits.inp), "wgt": bits.wgt})


def nest(config: Config) -> data.StructLayout:
    """What an instruction says of its loops; `cycles` that each micro-op takes, less one; `factors`: it is a REQ."""
    uop = config.index_bits.uop
    return data.StructLayout(
        {
            "begin": uop,
            "end": uop + 1,
            "iter_out": ITER_BITS,
            "iter_in": ITER_BITS,
            "out": offsets(config),
            "in": offsets(config),
            "cycles": 16,
            "factors": 1,
        }
    )


class Sequencer(wiring.Component):
    """Loaded by `start`, it issues from the next cycle on: `valid` with the micro-op's `index` and `offset`.

    A micro-op stays for its cycles; `first` and `last` of them are marked. `ends` with the last of all; a nest without
    micro-ops issues nothing. All waits while `go` is low. An outer iteration of REQ begins with its factors:
    `factor` 1 to 3, each with the offset of its own tile of parameters.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "nest": In(nest(config)),
                "start": In(1),
                "go": In(1, init=1),
                "valid": Out(1),
                "index": Out(config.index_bits.uop),
                "offset": Out(offsets(config)),
                "first": Out(1),
                "last": Out(1),
                "factor": Out(range(FACTOR_TILES + 1)),
                "ends": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        n, outer = Signal(nest(self.config)), Signal(offsets(self.config))
        inner_left, outer_left, phase = Signal(ITER_BITS), Signal(ITER_BITS), Signal(16)
        last_uop, issues = Signal(), Signal()
        m.d.comb += [
            issues.eq(self.valid & (self.factor == 0)),
            self.first.eq(issues & (phase == 0)),
            self.last.eq(issues & (phase == n.cycles)),
            last_uop.eq(self.index == (n.end - 1)[: len(self.index)]),
            self.ends.eq(self.last & self.go & last_uop & (inner_left == 1) & (outer_left == 1)),
        ]
        with m.If(issues & self.go):
            m.d.sync += phase.eq(Mux(self.last, 0, phase + 1))
        with m.If(self.last & self.go):
            m.d.sync += self.index.eq(self.index + 1)
            with m.If(last_uop):
                m.d.sync += [self.index.eq(n.begin), inner_left.eq(inner_left - 1)]
                m.d.sync += [self.offset[name].eq(self.offset[name] + n["in"][name]) for name in OPERANDS]
                with m.If(inner_left == 1):
                    m.d.sync += [inner_left.eq(n.iter_in), outer_left.eq(outer_left - 1), self.factor.eq(n.factors)]
                    for name in OPERANDS:
                        following = outer[name] + n.out[name]
                        m.d.sync += [outer[name].eq(following), self.offset[name].eq(following)]
        if self.config.has_parameters:
            with m.If((self.factor != 0) & self.go):
                m.d.sync += self.factor.eq(Mux(self.factor == FACTOR_TILES, 0, self.factor + 1))
                m.d.sync += self.offset.wgt.eq(self.offset.wgt + 1)
        with m.If(self.ends):
            m.d.sync += [self.valid.eq(0), self.factor.eq(0)]
        with m.If(self.start):
            new = self.nest
            some = (new.begin < new.end) & (new.iter_out != 0) & (new.iter_in != 0)
            m.d.sync += [n.eq(new), self.valid.eq(some), self.index.eq(new.begin), phase.eq(0)]
            m.d.sync += [inner_left.eq(new.iter_in), outer_left.eq(new.iter_out), self.offset.eq(0), outer.eq(0)]
            m.d.sync += self.factor.eq(some & new.factors)
        return m
