"""The micro-op sequencer: two loops over a list of micro-ops, with the tile offsets of each iteration."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Elaboratable, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import ITER_BITS

OPERANDS = ("dst", "src", "wgt")


def offsets(config: Config) -> data.StructLayout:
    """An offset for each operand of a micro-op."""
    bits = config.index_bits
    return data.StructLayout({"dst": bits.acc, "src": max(bits.acc, bits.inp), "wgt": bits.wgt})


def nest(config: Config) -> data.StructLayout:
    """What an instruction says of its loops; `cycles` that each micro-op takes, less one."""
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
        }
    )


class Sequencer(wiring.Component):
    """Loaded by `start`, it issues from the next cycle on: `valid` with the micro-op's `index` and `offset`.

    A micro-op stays for its cycles; `first` and `last` of them are marked. `ends` with the last of all; a nest without
    micro-ops issues nothing.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "nest": In(nest(config)),
                "start": In(1),
                "valid": Out(1),
                "index": Out(config.index_bits.uop),
                "offset": Out(offsets(config)),
                "first": Out(1),
                "last": Out(1),
                "ends": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        n, outer = Signal(nest(self.config)), Signal(offsets(self.config))
        inner_left, outer_left, phase = Signal(ITER_BITS), Signal(ITER_BITS), Signal(16)
        last_uop = Signal()
        m.d.comb += [
            self.first.eq(phase == 0),
            self.last.eq(phase == n.cycles),
            last_uop.eq(self.index == (n.end - 1)[: len(self.index)]),
            self.ends.eq(self.valid & self.last & last_uop & (inner_left == 1) & (outer_left == 1)),
        ]
        with m.If(self.valid):
            m.d.sync += phase.eq(Mux(self.last, 0, phase + 1))
        with m.If(self.valid & self.last):
            m.d.sync += self.index.eq(self.index + 1)
            with m.If(last_uop):
                m.d.sync += [self.index.eq(n.begin), inner_left.eq(inner_left - 1)]
                m.d.sync += [self.offset[name].eq(self.offset[name] + n["in"][name]) for name in OPERANDS]
                with m.If(inner_left == 1):
                    m.d.sync += [inner_left.eq(n.iter_in), outer_left.eq(outer_left - 1)]
                    for name in OPERANDS:
                        following = outer[name] + n.out[name]
                        m.d.sync += [outer[name].eq(following), self.offset[name].eq(following)]
        with m.If(self.ends):
            m.d.sync += self.valid.eq(0)
        with m.If(self.start):
            new = self.nest
            some = (new.begin < new.end) & (new.iter_out != 0) & (new.iter_in != 0)
            m.d.sync += [n.eq(new), self.valid.eq(some), self.index.eq(new.begin), phase.eq(0)]
            m.d.sync += [inner_left.eq(new.iter_in), outer_left.eq(new.iter_out), self.offset.eq(0), outer.eq(0)]
        return m
