"""Post-processing: gemmlowp's operations as blocks, and the results of a convolution.

The results of a convolution need a reader for the sums in C, the channel tables, and the lanes that scale sums to
codes.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.parts import Part, clear, drive, flags, ram
from tilewright.targets.cfu.config import Config
from tilewright.targets.cfu.isa.state import CHANNELS, FIELDS

from .image import ADDRESS, LAYER

INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
#: The bit of a product that decides the rounding if the product is divided by 2^31.
HALF = 30


class HighProduct(Part):
    """SRDHM: the rounded high half of twice a product of int32 values, saturated.

    `set` latches the product of `a` and `b`. `high` is valid in the next cycle.
    """

    def __init__(self) -> None:
        super().__init__(set=In(1), a=In(signed(32)), b=In(signed(32)), high=Out(signed(32)))

    def define(self, m: Module) -> None:
        product = Signal(signed(64), name="product")
        overflow = Signal(name="overflow")
        with m.If(self.set):
            m.d.sync += [product.eq(self.a * self.b), overflow.eq((self.a == INT_MIN) & (self.b == INT_MIN))]
        # gemmlowp adds 2^30 or 1 - 2^30, and truncates towards zero. This is the same as: add 2^30, and round down.
        rounded = (product >> (HALF + 1)) + product[HALF]
        m.d.comb += self.high.eq(Mux(overflow, INT_MAX, rounded))


class RoundingShift(Part):
    """RDBPOT: `x` / 2^`exponent`, to nearest, ties away from zero. Exponents above 31 give 0, or -1 for INT_MIN."""

    def __init__(self) -> None:
        super().__init__(x=In(signed(32)), exponent=In(32), result=Out(signed(32)))

    def define(self, m: Module) -> None:
        amount = self.exponent[:5]
        half = Signal(31, name="half")
        biased = Signal(signed(33), name="biased")
        m.d.comb += [
            half.eq((1 << amount) >> 1),
            biased.eq(self.x + half - ((self.x < 0) & (amount != 0))),
            self.result.eq(Mux(self.exponent[5:].any(), -(self.x == INT_MIN), biased >> amount)),
        ]


class OffsetClamp(Part):
    """off_maxmin: the int32 sum of `x` and `offset`, with wrap-around, clamped to int8."""

    def __init__(self) -> None:
        super().__init__(x=In(signed(32)), offset=In(signed(32)), result=Out(signed(8)))

    def define(self, m: Module) -> None:
        total = Signal(signed(32))
        inside = total[7:].all() | ~total[7:].any()
        m.d.comb += [
            total.eq(self.x + self.offset),
            self.result.eq(Mux(inside, total[:8], Cat((~total[31]).replicate(7), total[31]))),
        ]


def bounded(value: Value, low: Value, high: Value) -> Value:
    """Return `value` limited to the range `low` to `high`; the result is `high` if `low` exceeds `high`."""
    raised = Mux(value < low, low, value)
    return Mux(raised > high, high, raised)


#: The number of results per cycle, and of banks in the tables. Entry e is in bank e mod 4.
LANES = 4
SUM = 32
SHIFT = 6
ENTRY = 8
#: An operand of an addition ends with this number of zero bits.
EARLY = 20
#: An entry of the tables.
CHANNEL = data.StructLayout({"bias": signed(SUM), "multiplier": signed(SUM), "shift": signed(SHIFT)})


class ChannelTables(Part):
    """The tables of biases, multipliers and shifts of 256 channels, with four entries per cycle.

    `push_channel`, `push_shift` and `put` are high in the cycle of their command; `first` and `second` are its
    operands. `next` is the entry of the next push, which `restart` sets to 0. While `busy`, a push writes nothing. If
    `entry` is e in a cycle, the outputs `bank_0` to `bank_3` have the entries e to e + 3 in the next cycle. While
    `fill` is high, `fill_data` is written to entry `fill_entry`: bias and multiplier, or with `fill_half` the shift.
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
            # Four entries may lie in two rows: banks before the first entry's bank are read in the next row.
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
    """Scales `value` by `factor` * 2^(`shift` - 31) with gemmlowp's double rounding.

    The result is ready two cycles after the operands. If `again` is high in this cycle, the result plus `addend` is
    scaled by `again_factor` and `again_shift`, and the new result is ready in the next cycle. The output `code` is the
    result plus `offset`, clamped to `low` and `high`.

    With `early`, a second multiplier scales values with EARLY low bits of 0 in one cycle, so `again` is high one cycle
    after the operands. As both multipliers work in each cycle, an addition can begin in each cycle.
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
        right = Signal(SHIFT)  # the right shift of `product`
        later = Signal(SHIFT)  # the right shift for `value`, which becomes `product` in the next cycle
        scaled = Signal(signed(SUM + 1), name="scaled")
        moved = Signal(signed(SUM + 2), name="moved")
        first = scaled
        if self.early:
            first = Signal.like(scaled, name="first")
            early = Signal(signed(2 * SUM))
            early_right = Signal(SHIFT)
            shifted = (self.value << _left(self.shift))[EARLY:SUM].as_signed()
            m.d.sync += [early.eq((shifted * self.factor) << EARLY), early_right.eq(_right(self.shift))]
            m.d.comb += first.eq(_rounded(m, early, early_right))
        total = Signal(signed(SUM))
        again_left = Signal(signed(SUM))
        m.d.comb += [total.eq(first + self.addend), again_left.eq(total << _left(self.again_shift))]
        # One multiplier does both passes of a value. While `again` is high, it does the second pass.
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
    high = Signal(signed(SUM + 1))
    half = Signal(SUM - 1)
    m.d.comb += [high.eq((product >> (HALF + 1)) + product[HALF]), half.eq((1 << right[:5]) >> 1)]
    rounded = (high + half - ((high < 0) & (right != 0))) >> right[:5]
    return Mux(right[5], -(high == INT_MIN), rounded)


def _left(shift: Value) -> Value:
    return Mux(shift < 0, 0, shift)[: SHIFT - 1]


def _right(shift: Value) -> Value:
    return Mux(shift < 0, -shift, 0)[:SHIFT]


#: The destination of up to four results: the byte address of the first result, and the number of results.
PLACE = data.StructLayout({"valid": 1, "address": ADDRESS, "count": 3})


class ResultReader(Part):
    """Steps through the rows of sums in C, in the order in which the array has written them.

    `launch` begins a convolution. A tile begins in a cycle with `ready`, and `taken` is high in this cycle. In a cycle
    with `place.valid`, row `c_row` of C is read, and its sums 4 * `quad` to 4 * `quad` + 3 are requantised. `entry` is
    the table entry of the first of these sums, and `place` is the destination of the results. `last` is high with the
    last sums.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        ports: dict[str, Any] = {
            "launch": In(1),
            "ready": In(1),
            "layer": In(LAYER),
            "taken": Out(1),
            "place": Out(PLACE),
        }
        rows = ceil_log2(config.buffer_rows)
        quads = ceil_log2(config.array // LANES)
        super().__init__(**ports, c_row=Out(rows), quad=Out(quads), entry=Out(ENTRY), last=Out(1))

    def define(self, m: Module) -> None:
        layer = self.layer
        lanes = self.config.array
        pixel = data.StructLayout({"column": 10, "row": 10, "address": ADDRESS})
        here, marked, following = (Signal(pixel, name=name) for name in ("here", "marked", "following"))
        active = Signal(name="active")
        inside = Signal(name="inside")
        column = Signal(16, name="first_channel")
        number = Signal(range(lanes), name="number")
        left = Signal(16)  # the number of channels of this pixel that are not stored yet
        # The next tile has the next channels of the same pixels, so it begins at the pixel `marked` again.
        first = column + (self.quad << 2)
        last_x = here.column == layer.out_w - 1
        last_pixel = last_x & (here.row == layer.out_h - 1)
        last_quad = Signal()
        last_row = Signal()
        last_tile = Signal()
        m.d.comb += drive(
            self.place,
            valid=active & (inside | self.ready),
            address=here.address + first,
            count=Mux(left < LANES, left, LANES),
        )
        m.d.comb += drive(
            self,
            taken=self.place.valid & ~inside,
            entry=layer.table + first,
            last=self.place.valid & last_quad & last_pixel & last_tile,
        )
        m.d.comb += drive(
            following,
            address=here.address + layer.out_c,
            column=Mux(last_x, 0, here.column + 1),
            row=here.row + last_x,
        )
        m.d.comb += [
            left.eq(layer.out_c - first),
            last_quad.eq((left <= LANES) | (self.quad == lanes // LANES - 1)),
            last_row.eq((number == lanes - 1) | last_pixel),
            last_tile.eq(layer.out_c - column <= lanes),
        ]
        with m.If(self.place.valid):
            m.d.sync += [inside.eq(1), self.quad.eq(self.quad + 1)]
            with m.If(last_quad):
                m.d.sync += [self.quad.eq(0), self.c_row.eq(self.c_row + 1), number.eq(number + 1), here.eq(following)]
                with m.If(last_row):
                    m.d.sync += [*clear(number, inside), column.eq(column + lanes), here.eq(marked)]
                    with m.If(last_tile):
                        m.d.sync += [column.eq(0), here.eq(following), marked.eq(following)]
        with m.If(self.last):
            m.d.sync += active.eq(0)
        with m.If(self.launch):
            m.d.sync += [active.eq(1), *clear(self.c_row, column, number, self.quad, inside)]
            m.d.sync += [*clear(here, marked), here.address.eq(layer.output), marked.address.eq(layer.output)]
