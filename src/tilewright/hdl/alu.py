"""Lanes of the tensor ALU: one value in, one out, in the same cycle."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value, signed
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out


class Operation(enum.Enum, shape=3):  # type: ignore[call-arg]
    """What a lane does; SHR shifts by the low bits of its second operand, to the left by a negative amount."""

    MIN = 0
    MAX = 1
    ADD = 2
    SHR = 3
    NONE = 4  # gives the first operand


class TensorAlu(wiring.Component):
    """`lanes` values of 2^`log_bits`, signed; sums wrap.

    With `signed_amounts`, SHR's amount says by its sign which way; without, the input `left` says it for all lanes.
    """

    def __init__(self, lanes: int, log_bits: int, signed_amounts: bool = True) -> None:
        self.lanes, self.log_bits, self.bits, self.signed_amounts = lanes, log_bits, 1 << log_bits, signed_amounts
        word = lanes * self.bits
        ports = {"op": In(Operation), "left": In(1), "first": In(word), "second": In(word), "result": Out(word)}
        super().__init__(ports)

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        results = []
        for lane in range(self.lanes):
            part = slice(lane * self.bits, (lane + 1) * self.bits)
            a, b = self.first[part].as_signed(), self.second[part].as_signed()
            result = Signal(signed(self.bits), name=f"r{lane}")
            with m.Switch(self.op):
                with m.Case(Operation.MIN):
                    m.d.comb += result.eq(Mux(a < b, a, b))
                with m.Case(Operation.MAX):
                    m.d.comb += result.eq(Mux(a < b, b, a))
                with m.Case(Operation.ADD):
                    m.d.comb += result.eq(a + b)
                with m.Case(Operation.SHR):
                    m.d.comb += result.eq(self._shifted(a, b))
                with m.Default():
                    m.d.comb += result.eq(a)
            results.append(result)
        m.d.comb += self.result.eq(Cat(results))
        return m

    def _shifted(self, value: Value, operand: Value) -> Value:
        amount = operand[: self.log_bits].as_signed()
        to_left = (-amount)[: self.log_bits].as_unsigned()
        left = amount < 0 if self.signed_amounts else self.left
        return Mux(left, value << to_left, value >> amount[: self.log_bits].as_unsigned())
