"""The lanes of machine.json: each computes one value of an ALU operation, in gateware.

Ports: `dst`, `src` and `imm` are the operands, and `result` comes `latency` cycles later (0: in the same cycle). A lane
gets new operands at most every `cycles` cycles. Ports that a lane does not need are left out.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class AbsDiff(wiring.Component):
    """abs(dst - src) >> imm, two cycles after its operands: first the difference, then its size, then the shift."""

    def __init__(self) -> None:
        word = In(signed(32))
        super().__init__({"dst": word, "src": word, "imm": In(signed(16)), "result": Out(signed(32))})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        difference, size = Signal(signed(33)), Signal(33)
        by, later = Signal(signed(16)), Signal(signed(16))
        m.d.sync += [difference.eq(self.dst - self.src), by.eq(self.imm)]
        m.d.sync += [size.eq(Mux(difference < 0, -difference, difference)), later.eq(by)]
        shifted = size >> later[:6].as_unsigned()
        m.d.comb += self.result.eq(Mux(later[6:] == 0, shifted, 0))  # shifts of 64 and more, or less than 0, leave 0
        return m


class Leaky(wiring.Component):
    """dst if dst >= 0 else dst >> imm, in the cycle of its operands."""

    def __init__(self) -> None:
        super().__init__({"dst": In(signed(32)), "imm": In(signed(16)), "result": Out(signed(32))})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        shifted = Mux(self.imm[6:] == 0, self.dst >> self.imm[:6].as_unsigned(), -1)
        m.d.comb += self.result.eq(Mux(self.dst < 0, shifted, self.dst))
        return m
