"""The units that take instructions, in a line, and the token queues between neighbours.

Three stages are upstream's. Four separate the tensor ALU from the GEMM core, as the hardware guide proposes
("Pipeline Expandability"): load, gemm, activate, store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.program.instruction import Column
from tilewright.sim.steps import TokenQueue
from tilewright.targets.vta.isa.fields import Memory, Opcode
from tilewright.targets.vta.isa.stream import Stream

#: The token bits of an instruction: to or from the unit before (prev) and behind (next).
POP_BITS, PUSH_BITS = ("pop_prev", "pop_next"), ("push_prev", "push_next")
#: The transfers that may serve as a NOP (x_size 0, tokens only); a unit's is the first that it takes.
NOPS = (
    (Opcode.LOAD, Memory.INP),
    (Opcode.LOAD, Memory.UOP),
    (Opcode.LOAD, Memory.ALU_UOP),
    (Opcode.STORE, Memory.OUT),
)


class Link(NamedTuple):
    """The token bits of one queue: its producer's and its consumer's."""

    push: str
    pop: str


@dataclass(frozen=True, eq=False)
class Pipeline:
    """`units` in order; `gemm` and `alu` are the numbers of the units that run GEMM and ALU (one, of three)."""

    units: tuple[str, ...]
    gemm: int
    alu: int
    load: int = 0

    @cached_property
    def takes(self) -> Array:
        """The unit whose queue takes an instruction, int64 [opcode, memory id (0: names none)].

        As upstream, LOADs of other than inp and wgt go to the unit that runs micro-ops, and so does what no reference
        decodes.
        """
        takes = np.full((8, 8), self.alu)
        takes[Opcode.STORE] = self.store
        takes[[Opcode.GEMM, Opcode.LOAD]] = self.gemm
        takes[Opcode.LOAD, Memory.ALU_UOP] = self.alu
        takes[Opcode.LOAD, [Memory.INP, Memory.WGT, Memory.PAR]] = self.load
        return takes

    @property
    def store(self) -> int:
        return len(self.units) - 1

    @property
    def home(self) -> int:
        """The unit that takes FINISH."""
        return self.unit_of(Opcode.FINISH)

    @property
    def uop_memories(self) -> tuple[Memory, ...]:
        """The memories of micro-ops: GEMM's, and ALU's where that is another."""
        return tuple(dict.fromkeys((self.uop_memory(alu=False), self.uop_memory(alu=True))))

    def uop_memory(self, alu: bool) -> Memory:
        """The memory of the micro-ops of an ALU or GEMM instruction."""
        return Memory.ALU_UOP if alu and self.alu != self.gemm else Memory.UOP

    @cached_property
    def links(self) -> dict[tuple[int, int], Link]:
        """The queues in their order, by (producer, consumer)."""
        found = {}
        for unit in range(len(self.units)):
            for push, pop in zip(PUSH_BITS, reversed(POP_BITS), strict=True):
                other = self.neighbour(unit, push)
                if other is not None:
                    found[unit, other] = Link(push, pop)
        return found

    @cached_property
    def nops(self) -> tuple[tuple[Opcode, Memory], ...]:
        """What each unit's NOP is."""
        return tuple(next(nop for nop in NOPS if self.unit_of(*nop) == unit) for unit in range(len(self.units)))

    @cached_property
    def _takes(self) -> list[list[int]]:
        return self.takes.tolist()

    def unit_of(self, opcode: int, memory: int = 0) -> int:
        """The unit whose queue takes an instruction."""
        return self._takes[opcode][memory]

    def units_of(self, stream: Stream) -> Column:
        """The same of each instruction, int64 [n]."""
        return self.takes[stream.opcode, stream.mem.memory_type]

    def path(self, source: int, target: int) -> Sequence[int]:
        """The units from one to another, both included: a token goes from each to the next."""
        return range(source, target + 1) if source <= target else range(source, target - 1, -1)

    def neighbour(self, unit: int, bit: str) -> int | None:
        """The unit at the other end of a token bit, None where there is none."""
        other = unit + (1 if bit.endswith("next") else -1)
        return other if 0 <= other < len(self.units) else None

    def queues(self, depth: int) -> tuple[TokenQueue, ...]:
        """All queues, `depth` tokens each."""
        return tuple(TokenQueue(f"{self.units[a]}->{self.units[b]}", a, b, depth) for a, b in self.links)

    def tokens(self, stream: Stream) -> tuple[Array, Array]:
        """The queues that each instruction pops and pushes, as bit masks; bits without a queue are ignored (HLS)."""
        unit = self.units_of(stream)
        pops, pushes = np.zeros((2, len(stream)), np.int64)
        for queue, ((producer, consumer), link) in enumerate(self.links.items()):
            pops |= ((unit == consumer) & (getattr(stream, link.pop) == 1)).astype(np.int64) << queue
            pushes |= ((unit == producer) & (getattr(stream, link.push) == 1)).astype(np.int64) << queue
        return pops, pushes


#: By number of stages.
PIPELINES = {
    3: Pipeline(("load", "compute", "store"), gemm=1, alu=1),
    4: Pipeline(("load", "gemm", "activate", "store"), gemm=1, alu=2),
}
