"""The multiply-accumulate array: a tile of inputs times a tile of weights."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

#: Cycles from operands to sums.
MAC_LATENCY = 2


class MacArray(wiring.Component):
    """sums[b][o] = sum over i of inp[b][i] * wgt[o][i], exact, MAC_LATENCY cycles later; one product a cycle.

    Operands are row-major, first value in the low bits; sums have `sum_bits`, wide enough for any operands.
    """

    def __init__(self, batch: int, block: int, inp_bits: int, wgt_bits: int) -> None:
        self.batch, self.block, self.inp_bits, self.wgt_bits = batch, block, inp_bits, wgt_bits
        self.sum_bits = inp_bits + wgt_bits + (block - 1).bit_length()
        super().__init__(
            {
                "inp": In(batch * block * inp_bits),
                "wgt": In(block * block * wgt_bits),
                "sums": Out(batch * block * self.sum_bits),
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        sums = []
        for row in range(self.batch):
            left = _values(self.inp, self.inp_bits)[row * self.block : (row + 1) * self.block]
            for column in range(self.block):
                right = _values(self.wgt, self.wgt_bits)[column * self.block : (column + 1) * self.block]
                products = []
                for place, (a, b) in enumerate(zip(left, right, strict=True)):
                    product = Signal(signed(self.inp_bits + self.wgt_bits), name=f"p{row}_{column}_{place}")
                    m.d.sync += product.eq(a * b)
                    products.append(product)
                total = Signal(signed(self.sum_bits), name=f"s{row}_{column}")
                m.d.sync += total.eq(reduce(add, products))
                sums.append(total)
        m.d.comb += self.sums.eq(Cat(sums))
        return m


def _values(word: Value, bits: int) -> list[Value]:
    return [word[at : at + bits].as_signed() for at in range(0, len(word), bits)]
