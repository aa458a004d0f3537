"""Arithmetic on tiles: the multiply-accumulate array, and the tensor ALU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import enum
from amaranth.lib.wiring import In, Out

from tilewright.errors import ConfigError
from tilewright.hdl.multipliers import MULTIPLIERS, NARROW, WIDE, packs
from tilewright.hdl.parts import Part

#: The number of cycles from operands to sums.
MAC_LATENCY = 2


class MacArray(Part):
    """Computes sums[b][o] = sum over i of inp[b][i] * wgt[o][i] exactly.

    The array accepts operands in every cycle. Their sums appear MAC_LATENCY cycles later. Operands are row-major, with
    the first value in the low bits. Sums have `sum_bits` bits, so they never overflow. `multipliers` ("single",
    "packed" or "logic") selects the implementation of products; sums and timing are the same. Raises ConfigError if
    `multipliers` is unknown, or if it is "packed" and two products do not fit one multiplier block.
    """

    def __init__(self, batch: int, block: int, inp_bits: int, wgt_bits: int, multipliers: str = "single") -> None:
        if multipliers not in MULTIPLIERS:
            raise ConfigError("MAC array", f"unknown multipliers {multipliers!r}", f"choose {', '.join(MULTIPLIERS)}")
        self.batch = batch
        self.block = block
        self.inp_bits = inp_bits
        self.wgt_bits = wgt_bits
        self.multipliers = multipliers
        self.product_bits = inp_bits + wgt_bits
        if multipliers == "packed" and not packs(inp_bits, wgt_bits):
            reason = f"two products of {inp_bits} and {wgt_bits} bits do not fit a block of {WIDE}x{NARROW}"
            raise ConfigError("MAC array", reason, "choose single multipliers")
        self.sum_bits = self.product_bits + (block - 1).bit_length()
        super().__init__(
            inp=In(batch * block * inp_bits), wgt=In(block * block * wgt_bits), sums=Out(batch * block * self.sum_bits)
        )

    def define(self, m: Module) -> None:
        block = self.block
        inp = signed_values(self.inp, self.inp_bits)
        wgt = signed_values(self.wgt, self.wgt_bits)
        # "packed": a multiplier block multiplies one input by the weights of two outputs.
        together = 2 if self.multipliers == "packed" and block > 1 else 1
        sums = []
        for row in range(self.batch):
            left = inp[row * block : (row + 1) * block]
            for column in range(0, block, together):
                rights = [wgt[at * block : (at + 1) * block] for at in range(column, column + together)]
                logic = self.multipliers == "logic"
                terms_of_pairs = [
                    products(m, a, b, f"p{row}_{column}_{place}", logic)
                    for place, (a, *b) in enumerate(zip(left, *rights, strict=True))
                ]
                # The sum of an output has one product from each pair.
                for number, terms in enumerate(zip(*terms_of_pairs, strict=True)):
                    total = Signal(signed(self.sum_bits), name=f"s{row}_{column + number}")
                    m.d.sync += total.eq(reduce(add, terms))
                    sums.append(total)
        m.d.comb += self.sums.eq(Cat(sums))


def products(m: Module, shared: Value, others: Sequence[Value], name: str, logic: bool = False) -> list[Value]:
    """Return the products of `shared` with `others` (one or two, signed), a cycle later. `logic` is as in `product`."""
    first = others[0]
    bits = len(shared) + len(first)
    if len(others) == 1:
        product = Signal(signed(bits), name=name)
        m.d.sync += product.eq(by_logic(shared, first) if logic else shared * first)
        return [product]
    # One multiplier block computes both products.
    both = Signal(signed(bits + len(first) + 1), name=f"{name}_both")
    product = Signal(signed(len(both) + len(shared)), name=name)
    m.d.comb += both.eq((others[1] << bits) + first)
    m.d.sync += product.eq(shared * both)
    # `both` = second * 2**bits + first, so the wide product contains both products side by side (Xilinx's white paper
    # WP486). A negative lower product has borrowed 1 from the upper product; adding its sign bit restores it.
    return [product[:bits].as_signed(), (product[bits:].as_signed() + product[bits - 1])[:bits].as_signed()]


def by_logic(a: Value, b: Value) -> Value:
    """Return `a * b` as a sum of partial products, which synthesis does not map to a multiplier block."""
    # The highest bit of `b` has a negative weight (two's complement), so its partial product is subtracted.
    *low, sign = (Mux(bit, a << place, 0) for place, bit in enumerate(b))
    return (reduce(add, low) if low else 0) - sign


def product(a: Value, b: Value, logic: bool) -> Value:
    """Return the product of two unsigned values. With `logic`, the product needs no multiplier block."""
    if not logic:
        return a * b
    return by_logic(Cat(a, 0).as_signed(), Cat(b, 0).as_signed()).as_unsigned()[: len(a) + len(b)]


def signed_values(word: Value, bits: int) -> list[Value]:
    """Split a word into signed values of `bits` bits, the lowest bits first."""
    return [word[at : at + bits].as_signed() for at in range(0, len(word), bits)]


class Operation(enum.Enum, shape=3):  # type: ignore[call-arg]
    """An operation of TensorAlu. SHR shifts right by the low bits of the second operand (left if they are negative)."""

    MIN = 0
    MAX = 1
    ADD = 2
    SHR = 3
    NONE = 4  # the result is the first operand


class TensorAlu(Part):
    """Applies one operation to `lanes` pairs of signed values of 2^`log_bits` bits, combinationally. Sums wrap.

    With `signed_amounts`, the sign of a lane's shift amount selects the direction of SHR. Otherwise, the input `left`
    selects the direction for all lanes.
    """

    def __init__(self, lanes: int, log_bits: int, signed_amounts: bool = True) -> None:
        self.lanes = lanes
        self.log_bits = log_bits
        self.bits = 1 << log_bits
        self.signed_amounts = signed_amounts
        word = lanes * self.bits
        ports = {"op": In(Operation), "left": In(1), "first": In(word), "second": In(word), "result": Out(word)}
        super().__init__(**ports)

    def define(self, m: Module) -> None:
        results = []
        for lane in range(self.lanes):
            part = slice(lane * self.bits, (lane + 1) * self.bits)
            a, b = self.first[part].as_signed(), self.second[part].as_signed()
            amount = b[: self.log_bits].as_signed()
            # The opposite of the least amount fits only an unsigned number.
            to_left = (-amount)[: self.log_bits].as_unsigned()
            left = amount < 0 if self.signed_amounts else self.left
            result = Signal(signed(self.bits), name=f"r{lane}")
            with m.Switch(self.op):
                with m.Case(Operation.MIN):
                    m.d.comb += result.eq(Mux(a < b, a, b))
                with m.Case(Operation.MAX):
                    m.d.comb += result.eq(Mux(a < b, b, a))
                with m.Case(Operation.ADD):
                    m.d.comb += result.eq(a + b)
                with m.Case(Operation.SHR):
                    m.d.comb += result.eq(Mux(left, a << to_left, a >> amount[: self.log_bits].as_unsigned()))
                with m.Default():
                    m.d.comb += result.eq(a)
            results.append(result)
        m.d.comb += self.result.eq(Cat(results))
