"""The compute unit: a multiplier for each of 9 taps x 16 channels, and an adder tree.

`Sums`, the unit with `window=1`, computes the sums of several outputs in each cycle. Two outputs share the multiplier
blocks of their lanes: each block computes two products with a common weight. If the number of outputs is odd, half of
the last output's products use blocks, and half are made of logic.

`ComputeUnit` is the unit without `window`, whose loader fills one lane per cycle. The products of the first lanes pass
through a pipeline of FILL cycles, as in figure 8 of the document. The last lanes are filled too late for the pipeline,
so their products are added at once. The sum is complete one cycle after the last lane is filled, as in the document.
"""

from __future__ import annotations

from functools import reduce
from operator import add

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import In, Out

from tilewright.hdl.mac import by_logic, products, signed_values
from tilewright.hdl.parts import Part, after, clamped, clear, drive, ram
from tilewright.targets.zynq.config import LANES, Config
from tilewright.targets.zynq.gateware.loader import ADDRESS, DESCRIPTOR, operand_of
from tilewright.targets.zynq.gateware.results import BITS

#: The width in bits of a code (8 bits) minus its zero point (9 bits).
OPERAND = 10
SUM = 2 * OPERAND + (LANES - 1).bit_length()
#: Cycles from the operands of the first lane to the sum [D].
FILL = 8
#: The number of lanes that are filled too late for the pipeline.
LATE = FILL - 1


class ComputeUnit(Part):
    """The sum of LANES products. Lanes are filled one after another."""

    def __init__(self) -> None:
        # At `fill`, lane number `lane` latches `data` and `weight`. `take` sets `sum` to the sum of all lanes, which
        # must have been filled in order, up to the previous cycle. `clear` sets `sum` to 0.
        super().__init__(
            lane=In(range(LANES)),
            fill=In(1),
            data=In(signed(OPERAND)),
            weight=In(signed(OPERAND)),
            take=In(1),
            clear=In(1),
            sum=Out(signed(SUM)),
        )

    def define(self, m: Module) -> None:
        products: list[Value] = []
        for lane in range(LANES):
            data, weight = (Signal(signed(OPERAND), name=f"{name}{lane}") for name in ("data", "weight"))
            with m.If(self.fill & (self.lane == lane)):
                m.d.sync += [data.eq(self.data), weight.eq(self.weight)]
            products.append(data * weight)
        early = products[: LANES - LATE]
        late = products[LANES - LATE :]
        for level in range(FILL - 1):  # level 0: products; other levels: adder tree
            together = 1 if level == 0 else 2
            terms = [early[at : at + together] for at in range(0, len(early), together)]
            early = []
            for place, term in enumerate(terms):
                register = Signal(signed(2 * OPERAND + level), name=f"level{level}_{place * together}")
                m.d.sync += register.eq(reduce(add, term))
                early.append(register)
        # The products of the last lanes are added in one cycle.
        total = reduce(add, [*early, *late])
        m.d.sync += self.sum.eq(Mux(self.clear, 0, Mux(self.take, total, self.sum)))


#: The number of terms of an addition in each cycle of the tree. The product of these numbers is LANES.
LEVELS = (3, 3, 4, 4)
#: Cycles from the operands to the sums: operand registers, products, tree, and the zero point of weights.
LATENCY = 2 + len(LEVELS) + 1
#: Cycles from an iteration to its sum in the accumulator: stores, unit, accumulator.
SUMMED = 1 + LATENCY + 1
#: The width of a weight's zero point in bits.
ZERO = 9


class Sums(Part):
    """Computes the sum of `x` * (`weights` - `zw`) over all lanes for each output, with a delay of LATENCY cycles."""

    def __init__(self, config: Config) -> None:
        # Each port has one int8 operand per lane. `x0`, `x1`, .. have the data of the outputs. `zw` is constant while a
        # layer runs.
        self.outputs = config.outputs
        self.packed = config.macs_per_dsp == 2
        super().__init__(
            **{f"x{number}": In(8 * LANES) for number in range(config.outputs)},
            weights=In(8 * LANES),
            zw=In(signed(ZERO)),
            **{f"sum{number}": Out(signed(BITS)) for number in range(config.outputs)},
        )

    def define(self, m: Module) -> None:
        weights = signed_values(after(m, self.weights, 1), 8)
        x = [signed_values(after(m, getattr(self, f"x{number}"), 1), 8) for number in range(self.outputs)]
        together = 2 if self.packed else 1
        for first in range(0, self.outputs, together):
            terms = [
                products(m, w, data, f"p{first}_{lane}", self.packed and len(data) == 1 and lane >= LANES // 2)
                for lane, (w, *data) in enumerate(zip(weights, *x[first : first + together], strict=True))
            ]
            for number, output_terms in enumerate(zip(*terms, strict=True), first):
                self._sum(m, number, list(output_terms), x[number])

    def _sum(self, m: Module, number: int, terms: list[Value], x: list[Value]) -> None:
        """Add the logic for the sum of output `number`, from the products `terms` and the data `x` of all lanes."""
        total = _tree(m, f"sum{number}", terms)
        data = _tree(m, f"data{number}", x)
        # sum(x * (w - zw)) = sum(x * w) - zw * sum(x), so one multiplication per sum replaces a subtraction per lane.
        less = Signal(signed(len(data) + ZERO), name=f"less{number}")
        m.d.sync += less.eq(by_logic(data, self.zw))
        m.d.sync += getattr(self, f"sum{number}").eq(total - less)


def _tree(m: Module, name: str, terms: list[Value]) -> Value:
    """Return the sum of all terms, with a delay of len(LEVELS) cycles."""
    for level, together in enumerate(LEVELS):
        groups = [terms[at : at + together] for at in range(0, len(terms), together)]
        bits = len(terms[0]) + (together - 1).bit_length()
        terms = []
        for place, group in enumerate(groups):
            register = Signal(signed(bits), name=f"{name}_{level}_{place}")
            m.d.sync += register.eq(reduce(add, group))
            terms.append(register)
    (total,) = terms
    return total


#: The width in bits that holds signed and unsigned codes.
CODE = 9


class Pool(Part):
    """A 2x2 pool, which reads one element per cycle, in the order of the words of a plane."""

    def __init__(self, config: Config) -> None:
        # At `next`, the element at address `data` is read. One cycle later, `arrives` is 1 and `word` is the element's
        # code. If `gives` is 1, the element completes a result, which is at `result` two cycles after the read. The row
        # above is in a memory, because rows of different layers have different lengths. The element to the left is in a
        # register.
        self.config = config
        super().__init__(
            layer=In(DESCRIPTOR),
            start=In(1),
            next=In(1),
            data=Out(operand_of(config, "data")),
            word=In(8),
            arrives=In(1),
            gives=Out(1),
            last=Out(1),
            result=Out(8),
        )

    def define(self, m: Module) -> None:
        config = self.config
        word = Signal(ADDRESS)
        x = Signal(12)
        y = Signal(12)
        channel = Signal(16)
        is_row_end = x == self.layer.cols - 1
        is_end = y == self.layer.rows - 1
        m.d.comb += [
            *drive(self.data, used=1, needed=1, block=word >> config.data_bits, offset=word),
            *drive(self, gives=x[0] & y[0], last=is_row_end & is_end & (channel == self.layer.ic - 1)),
        ]
        with m.If(self.start):
            m.d.sync += clear(word, x, y, channel)
        with m.Elif(self.next):
            m.d.sync += [word.eq(word + 1), x.eq(Mux(is_row_end, 0, x + 1))]
            with m.If(is_row_end):
                m.d.sync += [y.eq(Mux(is_end, 0, y + 1)), channel.eq(channel + is_end)]
        # The memory reads the element above, and one cycle later the current element overwrites it.
        writes, reads = ram(m, "row", 8, config.pool_side)
        place = Signal(range(config.pool_side))
        with m.If(self.next):
            m.d.sync += place.eq(x)
        m.d.comb += [*drive(reads, addr=x, en=self.next), *drive(writes, addr=place, data=self.word, en=self.arrives)]
        left = Signal(8)
        left_above = Signal(8)
        with m.If(self.arrives):
            m.d.sync += [left.eq(self.word), left_above.eq(reads.data)]
        words = (self.word, left, reads.data, left_above)
        codes = [Mux(self.layer.x_signed, word.as_signed(), word) for word in words]
        most = Signal(signed(CODE))
        m.d.comb += most.eq(_larger(_larger(codes[0], codes[1]), _larger(codes[2], codes[3])))
        with m.If(self.arrives):
            m.d.sync += self.result.eq(clamped(most, self.layer.low, self.layer.high))


def _larger(a: Value, b: Value) -> Value:
    return Mux(a > b, a, b)
