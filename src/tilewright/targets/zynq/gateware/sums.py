"""The compute unit of an engine with `window=1`: the sums of several outputs in each cycle, pipelined.

Two outputs share the multiplier blocks of their lanes: each block makes two products with one weight. The last one of
an odd number of outputs has blocks for half of its lanes; its other products are made of logic.
"""

from __future__ import annotations

from functools import reduce
from operator import add

from amaranth.hdl import Module, Signal, Value, signed
from amaranth.lib.wiring import In, Out

from tilewright.hdl.mac import by_logic, products
from tilewright.hdl.parts import Part, after
from tilewright.targets.zynq.config import LANES, Config
from tilewright.targets.zynq.gateware.requantiser import BITS

#: Terms that are added in each cycle of the tree: LANES in all.
LEVELS = (3, 3, 4, 4)
#: Cycles from the operands to the sums: a register for the operands, products, the tree, the zero point of weights.
LATENCY = 2 + len(LEVELS) + 1
#: Cycles from an iteration to its sum in the accumulator: the stores, the unit, the accumulator.
SUMMED = 1 + LATENCY + 1
#: Bits of a weight's zero point.
ZERO = 9


class Sums(Part):
    """Computes, for each output, the sum of `x` * (`weights` - `zw`) over all lanes, LATENCY cycles later.

    Operands are int8, one per lane; `x{number}` are those of output `number`. `zw` is constant while a layer runs.
    """

    def __init__(self, config: Config) -> None:
        self.outputs, self.packed = config.outputs, config.macs_per_dsp == 2
        super().__init__(
            **{f"x{number}": In(8 * LANES) for number in range(config.outputs)},
            weights=In(8 * LANES),
            zw=In(signed(ZERO)),
            **{f"sum{number}": Out(signed(BITS)) for number in range(config.outputs)},
        )

    def define(self, m: Module) -> None:
        weights = _values(after(m, self.weights, 1))
        x = [_values(after(m, getattr(self, f"x{number}"), 1)) for number in range(self.outputs)]
        together = 2 if self.packed else 1
        for first in range(0, self.outputs, together):
            terms = [
                products(m, w, data, f"p{first}_{lane}", self._logic(len(data), lane))
                for lane, (w, *data) in enumerate(zip(weights, *x[first : first + together], strict=True))
            ]
            for number, own in enumerate(zip(*terms, strict=True), first):
                self._sum(m, number, list(own), x[number])

    def _logic(self, outputs: int, lane: int) -> bool:
        """Return whether the product of a lane that has a multiplier for `outputs` outputs is made of logic."""
        return self.packed and outputs == 1 and lane >= LANES // 2

    def _sum(self, m: Module, number: int, terms: list[Value], x: list[Value]) -> None:
        """Add the sum of an output, of the products `terms` and of the data `x` of its lanes."""
        total, data = _tree(m, f"sum{number}", terms), _tree(m, f"data{number}", x)
        less = Signal(signed(len(data) + ZERO), name=f"less{number}")
        m.d.sync += less.eq(by_logic(data, self.zw))
        m.d.sync += getattr(self, f"sum{number}").eq(total - less)


def _values(word: Value) -> list[Value]:
    return [word[at : at + 8].as_signed() for at in range(0, len(word), 8)]


def _tree(m: Module, name: str, terms: list[Value]) -> Value:
    """Return the sum of all terms, len(LEVELS) cycles later."""
    for level, together in enumerate(LEVELS):
        groups = [terms[at : at + together] for at in range(0, len(terms), together)]
        bits = len(terms[0]) + (together - 1).bit_length()
        terms = []
        for place, group in enumerate(groups):
            found = Signal(signed(bits), name=f"{name}_{level}_{place}")
            m.d.sync += found.eq(reduce(add, group))
            terms.append(found)
    (total,) = terms
    return total
