"""Requantisation: the channel tables, and the lanes that scale sums to codes."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from tilewright.hdl.parts import Part, drive, flags, ram
from tilewright.targets.cfu.isa.state import CHANNELS, FIELDS

from .post import HALF, INT_MIN, bounded

#: Results per cycle. The tables have as many banks: entry e is in bank e mod 4.
LANES = 4
SUM, SHIFT, ENTRY = 32, 6, 8
#: Low bits that are 0 in an operand of an addition.
EARLY = 20
#: An entry of the tables.
CHANNEL = data.StructLayout({"bias": signed(SUM), "multiplier": signed(SUM), "shift": signed(SHIFT)})


class ChannelTables(Part):
    """The tables of biases, multipliers and shifts of 256 channels. They give four entries per cycle.

    `push_channel`, `push_shift` and `put` are high in the cycle of their command, with its operands in `first` and
    `second`; while `busy`, a push writes nothing. `restart`: the next push is of entry 0. `bank_b` is the entry in bank
    b of the four from number `entry` of the cycle before on. While `fill` is high, `fill_data` is written to entry
    `fill_entry`: bias and multiplier, or with `fill_half` the shift. `next` is the entry of the next push.
    """

    def __init__(self) -> None:
        commands = flags(In, "put", "push_channel", "push_shift", "busy", "restart")
        operands = dict.fromkeys(("first", "second"), In(32))
        filling = {"fill": In(1), "fill_half": In(1), "fill_entry": In(ENTRY), "fill_data": In(2 * SUM)}
        banks = {f"bank_{bank}": Out(CHANNEL) for bank in range(LANES)}
        super().__init__(**commands, **operands, entry=In(ENTRY), **filling, next=Out(ENTRY), **banks)

    def define(self, m: Module) -> None:
        channel = Signal(ENTRY, name="channel")
        with m.If(self.push_shift):
            m.d.sync += channel.eq(channel + 1)
        with m.If(self.put & (self.first == FIELDS["CHANNEL"])):
            m.d.sync += channel.eq(self.second)
        with m.If(self.restart):
            m.d.sync += channel.eq(0)
        m.d.comb += self.next.eq(channel)
        at = Mux(self.fill, self.fill_entry, channel)
        content = Mux(self.fill, self.fill_data, Cat(self.first, self.second))
        for bank in range(LANES):
            entry = getattr(self, f"bank_{bank}")
            row = (self.entry[2:] + (self.entry[:2] > bank))[: ENTRY - 2]
            for name, bits in (("factors", 2 * SUM), ("shifts", SHIFT)):
                write, read = ram(m, f"{name}_{bank}", bits, CHANNELS // LANES)
                is_shift = name == "shifts"
                pushes = (self.push_shift if is_shift else self.push_channel) & ~self.busy
                fills = self.fill & (self.fill_half == is_shift)
                m.d.comb += drive(write, addr=at[2:], en=(pushes | fills) & (at[:2] == bank), data=content)
                m.d.comb += read.addr.eq(row)
                if is_shift:
                    m.d.comb += entry.shift.eq(read.data.as_signed())
                else:
                    m.d.comb += drive(entry, bias=read.data[:SUM], multiplier=read.data[SUM:])


class ScalingLane(Part):
    """Scales `value` by `factor` * 2^(`shift` - 31) with gemmlowp's double rounding. Each step takes a cycle.

    The three are given in a cycle; their product is there after the next one, and `scaled` then, two cycles after the
    operands. In the cycle of `scaled`, with `again`, `scaled` + `addend` is scaled by `again_factor` and `again_shift`:
    `scaled` of the next cycle is the result. `code` is `scaled` + `offset`, clamped to `low` and `high`.

    With `early`, there is another multiplier, for values of which the low EARLY bits are 0. Its `scaled` is there one
    cycle after the operands, and `again` belongs to this one: a value can then be scaled twice in each cycle.
    """

    def __init__(self, early: bool = False) -> None:
        self.early = early
        super().__init__(
            value=In(signed(SUM)),
            factor=In(signed(SUM)),
            shift=In(signed(SHIFT)),
            again=In(1),
            addend=In(signed(SUM)),
            again_factor=In(signed(SUM)),
            again_shift=In(signed(SHIFT)),
            offset=In(signed(9)),
            low=In(signed(8)),
            high=In(signed(8)),
            code=Out(signed(8)),
        )

    def define(self, m: Module) -> None:
        value, factor, product = (Signal(Shape(bits, True)) for bits in (SUM, SUM, 2 * SUM))
        right, later = Signal(SHIFT), Signal(SHIFT)  # shifts to the right, of the product and of `value`
        scaled, moved = Signal(signed(SUM + 1), name="scaled"), Signal(signed(SUM + 2), name="moved")
        first = scaled
        if self.early:
            first, early, early_right = Signal.like(scaled, name="first"), Signal(signed(2 * SUM)), Signal(SHIFT)
            shifted = (self.value << _left(self.shift))[EARLY:SUM].as_signed()
            m.d.sync += [early.eq((shifted * self.factor) << EARLY), early_right.eq(_right(self.shift))]
            m.d.comb += first.eq(_rounded(m, early, early_right))
        total, again_left = Signal(signed(SUM)), Signal(signed(SUM))
        m.d.comb += [total.eq(first + self.addend), again_left.eq(total << _left(self.again_shift))]
        m.d.sync += [
            value.eq(self.value << _left(self.shift)),
            factor.eq(self.factor),
            later.eq(_right(self.shift)),
            product.eq(Mux(self.again, again_left, value) * Mux(self.again, self.again_factor, factor)),
            right.eq(Mux(self.again, _right(self.again_shift), later)),
        ]
        m.d.comb += [scaled.eq(_rounded(m, product, right)), moved.eq(scaled + self.offset)]
        m.d.comb += self.code.eq(bounded(moved, self.low, self.high))


def _rounded(m: Module, product: Value, right: Value) -> Value:
    """Return `product` * 2^(-31 - `right`), with gemmlowp's double rounding."""
    high, half = Signal(signed(SUM + 1)), Signal(SUM - 1)
    m.d.comb += [high.eq((product >> (HALF + 1)) + product[HALF]), half.eq((1 << right[:5]) >> 1)]
    rounded = (high + half - ((high < 0) & (right != 0))) >> right[:5]
    return Mux(right[5], -(high == INT_MIN), rounded)


def _left(shift: Value) -> Value:
    """Return by how much a shift is to the left."""
    return Mux(shift < 0, 0, shift)[: SHIFT - 1]


def _right(shift: Value) -> Value:
    """Return by how much a shift is to the right."""
    return Mux(shift < 0, -shift, 0)[:SHIFT]
