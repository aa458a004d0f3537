"""Lanes of the extended tensor ALU: exact requantisation of int32 values by fixed-point or float32 factors.

graph/rounding.py defines the rules: gemmlowp's rounding doubling high multiply, the rounding shift with ties away from
zero, and the product with a float32 factor, rounded half to even.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import enum
from amaranth.lib.wiring import In, Out

from tilewright.hdl.parts import Part, after, drive

#: float32: the bits of the mantissa with its leading 1, the exponent bias, and the exponent of infinities and NaN.
MANTISSA = 24
BIAS = 127
SPECIAL = 255
#: Results saturate at the largest and smallest float32 in the range of int32.
MOST = (1 << 31) - 128
LEAST = -(1 << 31)
#: The number of cycles from `value` to `result` of FloatScale.
SCALE_LATENCY = 3
BITS = 32
HIGHEST = (1 << BITS - 1) - 1
LOWEST = -(1 << BITS - 1)
#: The number of cycles from operands to the result of Rescaler.
RESCALE_LATENCY = 5


class FloatScale(Part):
    """Computes graph.rounding.round_half_even(float32(value) * factor) in SCALE_LATENCY cycles, one value per cycle.

    With an infinite factor or NaN, the result saturates (graph.rounding leaves NaN undefined). With a subnormal factor,
    the result is 0, because the product with any int32 rounds to 0.
    """

    def __init__(self) -> None:
        super().__init__(value=In(signed(32)), factor=In(32), result=Out(signed(32)))

    def define(self, m: Module) -> None:
        # Stage 0: shift the magnitude until its highest bit is set.
        size = Signal(32)
        m.d.comb += size.eq(Mux(self.value < 0, -self.value, self.value))
        fraction = Signal(32)
        zeros = Signal(5)
        sign = Signal()
        shifted, count = normalised(m, size)
        m.d.sync += [fraction.eq(shifted), zeros.eq(count), sign.eq(self.value < 0)]
        factor = Signal(32)
        m.d.sync += factor.eq(self.factor)
        # Stage 1: round the magnitude to float32, and multiply the mantissas.
        mantissa, carry = rounded(m, fraction, "value")
        biased = factor[23:31]
        product = Signal(2 * MANTISSA)
        exponent = Signal(signed(10))
        negative = Signal()
        # Exponent 0 means zero or a subnormal number, and SPECIAL means infinity or NaN.
        nothing = Signal()
        huge = Signal()
        m.d.sync += [
            product.eq(mantissa * Cat(factor[: MANTISSA - 1], 1)),
            exponent.eq(31 - zeros + carry + biased.as_unsigned() - BIAS),
            negative.eq(sign ^ factor[31]),
            nothing.eq(~fraction[31] | (biased == 0)),
            huge.eq(biased == SPECIAL),
        ]
        # Stage 2: round the product to float32.
        # The highest bit of a product of two mantissas has one of two positions.
        above = product[-1]
        front = Signal(2 * MANTISSA)
        m.d.comb += front.eq(Mux(above, product, product << 1))
        mantissa, carry = rounded(m, front, "product")
        whole = Signal(MANTISSA)
        power = Signal(signed(11))
        is_negative = Signal()
        is_nothing = Signal()
        is_huge = Signal()
        m.d.sync += [
            whole.eq(mantissa),
            power.eq(exponent + above + carry),
            is_negative.eq(negative),
            is_nothing.eq(nothing),
            is_huge.eq(huge),
        ]
        # Stage 3: round to an integer. `below` is the first bit after the binary point. `rest` is 1 if any later bit is
        # set.
        point = Signal(2 * MANTISSA + 8)
        m.d.comb += point.eq((whole << (MANTISSA + 1)) >> Mux(power < 23, (23 - power)[:6], 0))
        below = point[MANTISSA]
        rest = point[:MANTISSA] != 0
        nearest = point[MANTISSA + 1 :]
        integer = Signal(32)
        m.d.comb += integer.eq(Mux(power >= 23, whole << (power - 23)[:3], nearest + (below & (rest | nearest[0]))))
        # A magnitude below 1/2 becomes 0. From 2**31 on, it saturates.
        none = is_nothing | (power < -1)
        over = is_huge | (power > 30)
        m.d.comb += self.result.eq(
            Mux(none, 0, Mux(over, Mux(is_negative, LEAST, MOST), Mux(is_negative, -integer, integer)))
        )


def normalised(m: Module, word: Value) -> tuple[Value, Value]:
    """Shift a 32-bit word left until its highest bit is set. Return the shifted word and the number of bits."""
    count: list[Value] = []
    for step in (16, 8, 4, 2, 1):
        clear = Signal(name=f"clear{step}")
        shifted = Signal(32, name=f"shifted{step}")
        m.d.comb += [clear.eq(word[32 - step :] == 0), shifted.eq(Mux(clear, word << step, word))]
        count.insert(0, clear)
        word = shifted
    return word, Cat(count)


def rounded(m: Module, word: Value, name: str, bits: int = MANTISSA) -> tuple[Value, Value]:
    """Round a word with its highest bit set to `bits` bits, half to even. Return the mantissa and the carry bit."""
    cut = len(word) - bits
    kept = word[cut:]
    half = word[cut - 1]
    rest = word[: cut - 1] != 0
    total = Signal(bits + 1, name=f"{name}_rounded")
    m.d.comb += total.eq(kept + (half & (rest | kept[0])))
    carry = total[bits]
    return Mux(carry, 1 << (bits - 1), total[:bits]), carry


class Rescale(enum.Enum, shape=2):  # type: ignore[call-arg]
    """An operation of Rescaler on the int32 values `first` and `second`.

    MULH returns the high half of twice the product. RSHR shifts `first` right by `second` and rounds, or shifts left if
    `second` is negative. REQ rescales `first + second` by the factors of the column, adds the zero point of the column,
    and clips.
    """

    NONE = 0
    MULH = 1
    RSHR = 2
    REQ = 3


class Rescaler(Part):
    """Applies `op` to `rows` x `columns` values per cycle. `result` follows RESCALE_LATENCY cycles later.

    REQ uses three 32-bit words per column. `multiplier` is the factor. `scaling` has the left shift (byte 0), the right
    shift (byte 1) and the zero point (upper half). `bounds` has the smallest (lower half) and the largest result (upper
    half); results are not clipped if the smallest exceeds the largest. While no operation begins, the three words may
    be changed in this order, one per cycle; unfinished operations still use the old words.
    """

    def __init__(self, rows: int, columns: int, is_float: bool) -> None:
        self.rows = rows
        self.columns = columns
        self.is_float = is_float
        word = rows * columns * BITS
        row = columns * BITS
        super().__init__(
            op=In(Rescale),
            first=In(word),
            second=In(word),
            multiplier=In(row),
            scaling=In(row),
            bounds=In(row),
            result=Out(word),
        )

    def define(self, m: Module) -> None:
        ops: list[Any] = [self.op]
        for stage in range(1, RESCALE_LATENCY + 1):
            ops.append(Signal(Rescale, name=f"op{stage}"))
            m.d.sync += ops[stage].eq(ops[stage - 1])
        # Delay each word to the stage that uses it, so that an operation uses the words of its first cycle.
        right, zero, low = (
            after(m, word, cycles) for word, cycles in ((self.scaling, 1), (self.scaling, 2), (self.bounds, 2))
        )
        results = []
        for row in range(self.rows):
            for column in range(self.columns):
                at = _lane(row * self.columns + column)
                shared = _lane(column)
                m.submodules[f"lane{row}_{column}"] = lane = Lane(self.is_float)
                m.d.comb += drive(
                    lane,
                    first=self.first[at],
                    second=self.second[at],
                    multiplier=self.multiplier[shared],
                    left=self.scaling[shared][:5],
                    right=right[shared][8:13],
                    zero=zero[shared][16:],
                    low=low[shared][:16],
                    high=low[shared][16:],
                )
                m.d.comb += [*(lane.op[stage].eq(op) for stage, op in enumerate(ops))]
                results.append(lane.result)
        m.d.comb += self.result.eq(Cat(results))


class Lane(Part):
    """The pipeline for one value. `op[s]` is the operation in stage s. Other inputs go to the stage that uses them."""

    def __init__(self, is_float: bool) -> None:
        self.is_float = is_float
        super().__init__(
            op=In(Rescale).array(RESCALE_LATENCY + 1),
            first=In(signed(BITS)),
            second=In(signed(BITS)),
            multiplier=In(signed(BITS)),
            left=In(5),
            right=In(5),
            zero=In(signed(16)),
            low=In(signed(16)),
            high=In(signed(16)),
            result=Out(signed(BITS)),
        )

    def define(self, m: Module) -> None:
        is_req = [op == Rescale.REQ for op in self.op]
        # Stage 0: REQ adds its operands and shifts the sum left. RSHR and MULH use the first operand unchanged.
        total = Signal(signed(BITS))
        value = Signal(signed(BITS))
        factor = Signal(signed(BITS))
        m.d.comb += total.eq(self.first + self.second)
        shift = Mux(is_req[0], 0 if self.is_float else self.left, 0)
        m.d.sync += [
            value.eq(Mux(is_req[0], total, self.first) << shift),
            factor.eq(Mux(is_req[0], self.multiplier, self.second)),
        ]
        # Stages 1, 2: the high half of the product. The factor is split into two halves, as multiplier blocks are
        # narrow.
        lower = Signal(signed(49))
        upper = Signal(signed(48))
        kept = Signal(signed(BITS))
        amount = Signal(6)
        m.d.sync += [
            lower.eq(value * factor[:16].as_unsigned()),
            upper.eq(value * factor[16:].as_signed()),
            kept.eq(value),
            amount.eq(Cat(Mux(factor < 0, -factor, factor)[:5], factor < 0)),
        ]
        product = Signal(signed(65))
        high = Signal(signed(BITS))
        later = Signal(6)
        # Adding half of the last kept bit rounds ties upwards. Only -2**31 times itself exceeds the largest result.
        m.d.comb += product.eq((upper << 16) + lower + (1 << 30))
        doubled = product[31:].as_signed()
        m.d.sync += [
            high.eq(Mux(self.op[2] == Rescale.RSHR, kept, Mux(doubled > HIGHEST, HIGHEST, doubled))),
            later.eq(amount),
        ]
        # Stage 3: the rounding shift. Adding half and rounding down moves ties upwards. Negative values are first
        # reduced by 1, so that their ties are rounded away from zero.
        by = Signal(5)
        shifted = Signal(signed(BITS))
        m.d.comb += by.eq(Mux(is_req[3], self.right, Mux(self.op[3] == Rescale.RSHR, later[:5], 0)))
        half = ((1 << by) >> 1)[:BITS]
        rounded = (high + half - ((high < 0) & (by != 0))) >> by
        to_left = (self.op[3] == Rescale.RSHR) & later[5]
        m.d.sync += shifted.eq(Mux(to_left, high << by, rounded))
        # Stage 4 adds the zero point, and stage 5 clips.
        moved = Signal(signed(BITS + 2))
        scaled = shifted
        if self.is_float:
            m.submodules.scale = scale = FloatScale()
            m.d.comb += drive(scale, value=value, factor=factor)
            scaled = Mux(is_req[4], scale.result, shifted)
        m.d.sync += moved.eq(scaled + Mux(is_req[4], self.zero, 0))
        bounded = self.low <= self.high
        low, high_ = Mux(bounded, self.low, LOWEST), Mux(bounded, self.high, HIGHEST)
        clipped = Mux(moved < low, low, Mux(moved > high_, high_, moved))
        m.d.comb += self.result.eq(Mux(is_req[5], clipped, moved))


def _lane(number: int) -> slice:
    return slice(BITS * number, BITS * (number + 1))
