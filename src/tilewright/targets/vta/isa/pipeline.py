"""The units that take instructions, in a line, and the token queues between neighbours.

Three stages are upstream's. Four separate the tensor ALU from the GEMM core, as the hardware guide proposes
("Pipeline Expandability"): load, gemm, activate, store.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.program.instruction import Column
from tilewright.sim.steps import TokenQueue
from tilewright.targets.vta.isa.fields import Memory, Opcode
from tilewright.targets.vta.isa.stream import Stream

#: The token bits of an instruction: to or from the unit before (prev) and behind (next).
POP_BITS, PUSH_BITS = ("pop_prev", "pop_next"), ("push_prev", "push_next")


@dataclass(frozen=True, eq=False)
class Pipeline:
    """`units` in order; `gemm` and `alu` are the numbers of the units that run GEMM and ALU (one, of three).

    Queue 2u leads from unit u to the next, queue 2u + 1 back.
    """

    units: tuple[str, ...]
    gemm: int
    alu: int
    takes: Array  # int64 [opcode, memory id (0: names none)]: the unit whose queue takes an instruction
    load: int = 0

    @classmethod
    def of(cls, units: tuple[str, ...], gemm: int, alu: int) -> Pipeline:
        """As upstream, LOADs of other than inp and wgt go to the unit that runs micro-ops, and so does what no
        reference decodes.
        """
        takes = np.full((8, 8), alu)
        takes[Opcode.STORE] = len(units) - 1
        takes[[Opcode.GEMM, Opcode.LOAD]] = gemm
        takes[Opcode.LOAD, Memory.ALU_UOP] = alu
        takes[Opcode.LOAD, [Memory.INP, Memory.WGT, Memory.PAR]] = 0
        return cls(units, gemm, alu, takes)

    @property
    def store(self) -> int:
        return len(self.units) - 1

    def units_of(self, stream: Stream) -> Column:
        """int64 [n]."""
        return self.takes[stream.opcode, stream.mem.memory_type]

    def neighbour(self, unit: int, bit: str) -> int | None:
        """The unit at the other end of a token bit, None where there is none."""
        other = unit + (1 if bit.endswith("next") else -1)
        return other if 0 <= other < len(self.units) else None

    def queue(self, unit: int, bit: str) -> int | None:
        """The queue that a token bit of a unit takes from or adds to."""
        other = self.neighbour(unit, bit)
        if other is None:
            return None
        backward = (bit in POP_BITS) == (other > unit)
        return 2 * min(unit, other) + int(backward)

    def queues(self, depth: int) -> tuple[TokenQueue, ...]:
        """All queues, `depth` tokens each."""
        found = []
        for a in range(len(self.units) - 1):
            for producer, consumer in ((a, a + 1), (a + 1, a)):
                name = f"{self.units[producer]}->{self.units[consumer]}"
                found.append(TokenQueue(name, producer, consumer, depth))
        return tuple(found)

    def mask(self, stream: Stream, bits: tuple[str, str]) -> Array:
        """For each instruction the queues of its token bits `bits`, as a bit mask; others are ignored (HLS)."""
        unit, mask = self.units_of(stream), np.zeros(len(stream), np.int64)
        for bit in bits:
            shift = np.array([-1 if (q := self.queue(u, bit)) is None else q for u in range(len(self.units))])[unit]
            mask |= np.where((getattr(stream, bit) == 1) & (shift >= 0), 1 << np.maximum(shift, 0), 0)
        return mask


#: By number of stages.
PIPELINES = {
    3: Pipeline.of(("load", "compute", "store"), gemm=1, alu=1),
    4: Pipeline.of(("load", "gemm", "activate", "store"), gemm=1, alu=2),
}
