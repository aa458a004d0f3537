"""The path of results to the result store: from the accumulators through the requantiser, or from the pool.

The state WRITE reserves a word of the store for a result, and the code follows some cycles later. A block is complete,
and must be moved to DDR, when its last word is reserved or when the layer ends. With one frame, the engine stops until
the PS has moved the block. With two frames, a group that begins a block waits until a frame is free.

The requantiser applies ReLU to a sum, and converts it to an 8-bit code. All requantisation rules share one multiplier.
The factor is a double, as in the register map. The product of factor and sum is exact (32 x 53 bits). Each rule rounds
this product once or twice (graph/rounding.py).
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import In, Out

from tilewright.hdl.mac import product
from tilewright.hdl.parts import Part, add, after, clamped, clear, drive, flags, ports, ram
from tilewright.hdl.rescale import normalised, rounded
from tilewright.targets.zynq.config import FACTORS, Config
from tilewright.targets.zynq.gateware.loader import DESCRIPTOR
from tilewright.targets.zynq.gateware.states import late
from tilewright.targets.zynq.gateware.stores import FRAMES, ResultStore
from tilewright.targets.zynq.isa.layer import LAYOUT, RULES
from tilewright.targets.zynq.timing.walk import POOL_TAIL

#: Cycles from `sum` to `result`.
LATENCY = 9
#: Of a double: the width of the mantissa with its leading 1, and the exponent bias.
MANTISSA = 53
BIAS = 1023
#: The width of a sum, and of the multiplier of the rule `double`, in bits.
BITS = 32
MULTIPLIER = 31
#: The bounds and the zero point have only 9 bits, so a magnitude of 2**WHOLE or more is always clipped.
WHOLE = 11
CODE = LAYOUT.by_name["low"].width
#: The inputs of the requantiser that are fields of the descriptor.
FIELDS = ("relu", "rule", "zy", "low", "high")


class Requantiser(Part):
    """Converts one sum per cycle to a code, with a delay of LATENCY cycles."""

    def __init__(self, logic: bool = False) -> None:
        # The inputs `sum` and `factor` (not negative) change in each cycle. All other inputs are fields of the
        # descriptor, which are constant while a layer runs. `result` has the low 8 bits of the code. With `logic`, the
        # multiplier is made of logic cells.
        self.logic = logic
        super().__init__(
            sum=In(signed(BITS)),
            factor=In(64),
            relu=In(1),
            rule=In(range(len(RULES))),
            zy=In(signed(CODE)),
            low=In(signed(CODE)),
            high=In(signed(CODE)),
            result=Out(8),
        )

    def define(self, m: Module) -> None:
        is_float, is_double, _, _ = (self.rule == number for number in range(len(RULES)))
        biased = self.factor[52:63]
        fraction = Signal(MANTISSA)
        m.d.comb += fraction.eq(Cat(self.factor[:52], 1))
        # Cycle 1: ReLU. If the factor is 1 or more, the rule `double` shifts the sum left, modulo 2**32.
        multiplier, doubling = rounded_up(m, fraction)
        power = Signal(signed(12))
        m.d.comb += power.eq(biased - (BIAS - 1) + doubling)
        tiny = power < -BITS + 1
        total = Signal(signed(BITS))
        shifted = Signal(signed(BITS))
        m.d.comb += total.eq(Mux(self.relu & (self.sum < 0), 0, self.sum))
        m.d.sync += shifted.eq(Mux(is_double & (power > 0), (total << power[:5])[:BITS], total))
        mantissa32, carry = rounded(m, fraction, "factor")
        mantissa, exponent = Signal(MANTISSA), Signal(signed(12))
        m.d.sync += [
            mantissa.eq(
                Mux(
                    is_float,
                    mantissa32 << (MANTISSA - 24),
                    Mux(is_double, Mux(tiny, 0, multiplier << (MANTISSA - MULTIPLIER)), fraction),
                )
            ),
            exponent.eq(biased - BIAS + (is_float & carry)),
        ]
        right = Signal(5)
        nothing = Signal()
        m.d.sync += [right.eq(Mux((power < 0) & ~tiny, (-power)[:5], 0)), nothing.eq(biased == 0)]
        # Cycle 2: the magnitude.
        size = Signal(BITS)
        negative = Signal()
        m.d.sync += [size.eq(Mux(shifted < 0, -shifted, shifted)), negative.eq(shifted < 0)]
        # Cycle 3: shift the magnitude until its highest bit is set. With the rule `double`, do not shift.
        moved, zeros = normalised(m, size)
        lined = Signal(BITS)
        top = Signal(signed(7))
        m.d.sync += [lined.eq(Mux(is_double, size, moved)), top.eq(BITS - 1 - zeros)]
        # Cycle 4: round the magnitude to 24 bits for float32.
        sum32, over = rounded(m, lined, "sum")
        first = Signal(BITS)
        place = Signal(signed(13))
        m.d.sync += [
            first.eq(Mux(is_float, sum32 << (BITS - 24), lined)),
            place.eq(top + (is_float & over) + after(m, exponent, 2)),
        ]
        # Cycles 5, 6: the product.
        second = after(m, mantissa, 3)
        half = MANTISSA // 2
        lower = Signal(BITS + half)
        upper = Signal(BITS + MANTISSA - half)
        exact = Signal(BITS + MANTISSA)
        m.d.sync += [
            lower.eq(product(first, second[:half], self.logic)),
            upper.eq(product(first, second[half:], self.logic)),
            exact.eq(lower + (upper << half)),
        ]
        zero = after(m, nothing, 6) | after(m, size == 0, 5)
        self._round(m, exact, after(m, place, 2), after(m, negative, 4), zero, after(m, right, 6))

    def _round(self, m: Module, exact: Value, place: Value, sign: Value, zero: Value, by: Value) -> None:
        """Round the product `exact` to a code. `zero` and `by` (the shift) are delayed by one more cycle."""
        is_float, is_double, is_away, is_pow2 = (self.rule == number for number in range(len(RULES)))
        # Cycle 7: the first rounding, to float32 or to a double. The rule `double` rounds to the product's high half.
        front = Signal(BITS + MANTISSA)
        m.d.comb += front.eq(Mux(exact[-1], exact, exact << 1))
        short, short_carry = rounded(m, front, "float32")
        long, long_carry = rounded(m, front, "float64", MANTISSA)
        word = Signal(MANTISSA)
        level = Signal(signed(14))
        high = Signal(BITS + 1)
        grown = Mux(is_float, short_carry, is_away & long_carry)
        m.d.sync += [
            word.eq(Mux(is_float, short << (MANTISSA - 24), Mux(is_away, long, front[BITS:]))),
            level.eq(place + exact[-1] + grown),
            high.eq((exact + ((1 << (MANTISSA - 1)) - sign)) >> MANTISSA),
        ]
        # Cycle 8: the second rounding, to an integer. The highest WHOLE bits of `fixed` are its integer part.
        minus = after(m, sign, 1)
        fixed = Signal(MANTISSA + WHOLE + 1)
        m.d.comb += fixed.eq((word << (WHOLE + 1)) >> (WHOLE - 1 - level)[:4])
        integer = fixed[MANTISSA + 1 :]
        after_point = fixed[: MANTISSA + 1]
        is_half = after_point[-1]
        rest = after_point[:-1] != 0
        up = is_half & Mux(is_float, rest | integer[0], ~is_pow2 | rest | ~minus)
        nearest = (high + ((1 << by) >> 1)) >> by
        magnitude = Signal(WHOLE + 1)
        huge = Signal()
        m.d.comb += huge.eq(Mux(is_double, nearest >= 1 << WHOLE, level >= WHOLE))
        with m.If(zero | ~is_double & (level < -1)):
            m.d.sync += magnitude.eq(0)
        with m.Elif(huge):
            m.d.sync += magnitude.eq((1 << WHOLE) - 1)
        with m.Else():
            m.d.sync += magnitude.eq(Mux(is_double, nearest, integer + up))
        # Cycle 9: the zero point and the bounds.
        code = Signal(signed(WHOLE + 3))
        m.d.comb += code.eq(Mux(after(m, minus, 1), -magnitude, magnitude) + self.zy)
        m.d.sync += self.result.eq(clamped(code, self.low, self.high))


def rounded_up(m: Module, fraction: Value) -> tuple[Value, Value]:
    """Round the mantissa of a double half up to 31 bits. Return the mantissa, and whether the exponent increases."""
    total = Signal(MULTIPLIER + 1, name="multiplier")
    m.d.comb += total.eq(fraction[MANTISSA - MULTIPLIER :] + fraction[MANTISSA - MULTIPLIER - 1])
    return Mux(total[-1], 1 << (MULTIPLIER - 1), total[:MULTIPLIER]), total[-1]


#: The inputs that write requantisation factors. `factor_address` is an index of words: each channel has a low word and
#: a high word.
FACTOR_PORTS = ("factor_address", "factor_data", "factor_write")


class ResultWriter(Part):
    """The base class of both result writers. `members` are the ports that a derived class adds."""

    def __init__(self, config: Config, beat: int, **members: Any) -> None:
        # `start` and `ends` mark the start and the end of a layer. `pools` announces a result of the pool two cycles in
        # advance. `leaves` is 1 while a complete block must be moved to DDR; a pulse of `done` says that the PS has
        # moved it. `column` is the channel of a result.
        self.config = config
        self.store = ResultStore(config.result_bits, beat, config.frames)
        super().__init__(
            layer=In(DESCRIPTOR),
            **flags(In, "start", "pools", "ends", "done", "factor_write"),
            column=In(16),
            pool_result=In(8),
            factor_address=In(range(2 * FACTORS)),
            factor_data=In(32),
            page_address=In(range(max(2, self.store.lines))),
            page_result=Out(beat),
            full=Out(1),
            leaves=Out(1),
            **members,
        )

    def requantised(self, m: Module, total: Value, column: Value) -> Value:
        """Add a requantiser, and return the codes of the sums `total`. `column` is a sum's channel, one cycle early."""
        writes, reads = ram(m, "factors", 64, FACTORS, 32)
        m.d.comb += reads.addr.eq(column)
        m.d.comb += drive(
            writes,
            addr=self.factor_address >> 1,
            data=self.factor_data.replicate(2),
            en=self.factor_write << self.factor_address[0],
        )
        fields = ports(self.layer, *FIELDS)
        unit = Requantiser(self.config.logic)
        return add(m, "requantiser", unit, **fields, sum=total, factor=reads.data).result

    def write(self, m: Module, arrives: Value, code: Value) -> tuple[ResultStore, Value]:
        """Write codes of the requantiser and the pool. Return the store and the pool's write signal."""
        pooled = after(m, self.pools, POOL_TAIL)
        code = Mux(pooled, self.pool_result, code)
        store = add(m, "result_store", self.store, en=arrives | pooled, code=code, address=self.page_address)
        m.d.comb += self.page_result.eq(store.data)
        return store, pooled


class Results(ResultWriter):
    """Writes one result at a time."""

    def __init__(self, config: Config, beat: int) -> None:
        # `writes` reserves a word for a result, whose sum is at the input `sum` late() cycles later. `last` marks the
        # last result of the layer. `block` is the block that must be moved next. While `full` is 1, the engine must
        # stop (with two frames: it must not begin a result).
        blocks = Out(config.block_bits)
        super().__init__(config, beat, writes=In(1), last=In(1), sum=In(signed(BITS)), block=blocks)

    def define(self, m: Module) -> None:
        config = self.config
        frames = self.config.frames
        # A word is reserved before its code arrives: late() cycles pass up to the sum, and then LATENCY cycles up to
        # the code. So delay the address by late() + LATENCY cycles, instead of making the state machine wait.
        code = self.requantised(m, self.sum, after(m, self.column, max(0, late(config) - 1)))
        offset = Signal(config.result_bits)
        later = late(config) + LATENCY
        store, pooled = self.write(m, after(m, self.writes, later), code)
        # `count` is the number of complete blocks that are not moved yet, and `filled` is the frame that is being
        # filled.
        count = Signal(2)
        filled = Signal()
        complete = (self.writes | self.pools) & ~self.last & (offset == config.block_words("result") - 1)
        m.d.comb += store.offset.eq(Mux(pooled, after(m, offset, POOL_TAIL), after(m, offset, later)))
        m.d.comb += self.leaves.eq(count != 0)
        if frames == 1:
            m.d.comb += self.full.eq(self.leaves)
        else:
            m.d.comb += self.full.eq((count == frames) & (offset == 0))
            frame = Mux(pooled, after(m, filled, POOL_TAIL), after(m, filled, later))
            m.d.comb += drive(store, frame=frame, leaving=self.block[0])
        with m.If(self.start):
            m.d.sync += clear(offset, self.block, count, filled)
        with m.Else():
            m.d.sync += count.eq(count + (complete | self.ends) - self.done)
            with m.If(self.writes | self.pools):
                m.d.sync += offset.eq(offset + 1)
            with m.If(complete):
                m.d.sync += filled.eq(~filled)
            with m.If(self.done):
                m.d.sync += self.block.eq(self.block + 1)


class GroupResults(ResultWriter):
    """Writes one result per cycle for an engine with `window=1`, which completes several sums at once."""

    def __init__(self, config: Config, beat: int) -> None:
        # When `complete` is 1, `sums` has `sum_count` complete sums. `begins` and `ends_group` mark the first and the
        # last cycle of a group of `count` results, whose words are reserved in the last cycle. `is_last` marks the last
        # group of the layer. While `full` is 1, no group may begin.
        pulses = flags(In, "complete", "begins", "ends_group", "is_last")
        counts = {name: In(range(config.outputs + 1)) for name in ("count", "sum_count")}
        super().__init__(config, beat, **pulses, **counts, sums=In(config.outputs * BITS))

    def define(self, m: Module) -> None:
        # In each cycle, one of the complete sums goes to the requantiser.
        sums = Signal.like(self.sums)
        left = Signal.like(self.sum_count)
        column = Signal(16)
        with m.If(self.complete):
            m.d.sync += [sums.eq(self.sums), left.eq(self.sum_count), column.eq(self.column)]
        with m.Elif(left != 0):
            m.d.sync += [sums.eq(sums >> BITS), left.eq(left - 1)]
        code = self.requantised(m, sums[:BITS].as_signed(), Mux(self.complete, self.column, column))
        store, _ = self.write(m, after(m, left != 0, LATENCY), code)
        place = Signal(self.config.result_bits + 1)
        leaving = Signal()
        m.d.comb += [Cat(store.offset, store.frame).eq(place), store.leaving.eq(leaving)]
        with m.If(self.start):
            m.d.sync += clear(place, leaving)
        with m.Else():
            m.d.sync += [place.eq(place + store.en), leaving.eq(leaving ^ self.done)]
        # `offset` counts the reserved words of a block, and `blocks` counts the complete blocks that are not moved yet.
        words = self.config.block_words("result")
        offset = Signal(self.config.result_bits)
        blocks = Signal(2)
        end = Signal(self.config.result_bits + 1)
        complete = Signal()
        taken = self.ends_group | self.pools
        m.d.comb += [
            end.eq(offset + self.count),
            complete.eq(taken & ((end > words) | (end == words) & ~self.is_last)),
            self.leaves.eq(blocks != 0),
            self.full.eq(self.begins & (((offset == 0) & (blocks == FRAMES)) | (end > words) & (blocks != 0))),
        ]
        with m.If(self.start):
            m.d.sync += clear(offset, blocks)
        with m.Else():
            m.d.sync += blocks.eq(blocks + (complete | self.ends) - self.done)
            with m.If(taken):
                m.d.sync += offset.eq(end)
