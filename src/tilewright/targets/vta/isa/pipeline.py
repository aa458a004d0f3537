"""The pipeline of units, and which of them executes an instruction.

The units form a line, with token queues between neighbours. Three stages are upstream's. Four stages (load, gemm,
activate, store) separate the tensor ALU from the GEMM core, as the hardware guide proposes ("Pipeline Expandability").
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
from tilewright.targets.vta.isa.fields import Memory, Opcode, Stream

#: The token bits of an instruction: from or to the previous and the next unit.
POP_BITS, PUSH_BITS = ("pop_prev", "pop_next"), ("push_prev", "push_next")
#: Transfers that can serve as a NOP (x_size 0, tokens only). A unit's NOP is the first of these that it executes.
NOPS = (
    (Opcode.LOAD, Memory.INP),
    (Opcode.LOAD, Memory.UOP),
    (Opcode.LOAD, Memory.ALU_UOP),
    (Opcode.STORE, Memory.OUT),
)


class Link(NamedTuple):
    """The names of one queue's token bits: instructions of the producer set `push`, those of the consumer `pop`."""

    push: str
    pop: str


@dataclass(frozen=True, eq=False)
class Pipeline:
    """The units in order. `gemm` and `alu`: the numbers of the units that run GEMM and ALU (three stages: the same)."""

    units: tuple[str, ...]
    gemm: int
    alu: int
    load: int = 0

    @cached_property
    def takes(self) -> Array:
        """The number of the unit that executes an instruction: int64 [opcode, memory id], with id 0 if it has none.

        LOADs of inp, wgt and par go to `load`, LOADs of alu_uop to the ALU's unit, and other LOADs to the GEMM unit
        (upstream: the unit that runs micro-ops). FINISH, and opcodes that no upstream implementation decodes, go to
        the ALU's unit.
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
        """The number of the unit that executes FINISH."""
        return self.unit_of(Opcode.FINISH)

    def uop_memory(self, alu: bool) -> Memory:
        """Return the memory that holds the micro-ops of an ALU or GEMM instruction."""
        return Memory.ALU_UOP if alu and self.alu != self.gemm else Memory.UOP

    @cached_property
    def links(self) -> dict[tuple[int, int], Link]:
        """The token bits of each queue by (producer, consumer), in the order of `queues`."""
        sides = ((-1, Link("push_prev", "pop_next")), (1, Link("push_next", "pop_prev")))
        ends = range(len(self.units))
        return {(unit, unit + side): link for unit in ends for side, link in sides if unit + side in ends}

    @cached_property
    def nops(self) -> tuple[tuple[Opcode, Memory], ...]:
        """The opcode and memory id of each unit's NOP."""
        return tuple(next(nop for nop in NOPS if self.unit_of(*nop) == unit) for unit in range(len(self.units)))

    @cached_property
    def _takes(self) -> list[list[int]]:
        return self.takes.tolist()

    def unit_of(self, opcode: int, memory: int = 0) -> int:
        """Return the number of the unit that executes an instruction."""
        return self._takes[opcode][memory]

    def units_of(self, stream: Stream) -> Column:
        """Return the number of the unit that executes each instruction, int64 [n]."""
        return self.takes[stream.opcode, stream.mem.memory_type]

    def path(self, source: int, target: int) -> Sequence[int]:
        """Return the numbers of the units from `source` to `target`, both included, in the order of a token's way."""
        return range(source, target + 1) if source <= target else range(source, target - 1, -1)

    def queues(self, depth: int) -> tuple[TokenQueue, ...]:
        """Return all token queues between the units, each for `depth` tokens."""
        return tuple(TokenQueue(f"{self.units[a]}->{self.units[b]}", a, b, depth) for a, b in self.links)

    def tokens(self, stream: Stream) -> tuple[Array, Array]:
        """Return two masks per instruction: the queues that it pops, and pushes. Bits without a queue do not count."""
        unit = self.units_of(stream)
        pops, pushes = np.zeros((2, len(stream)), np.int64)
        for queue, ((producer, consumer), link) in enumerate(self.links.items()):
            pops |= ((unit == consumer) & (getattr(stream, link.pop) == 1)).astype(np.int64) << queue
            pushes |= ((unit == producer) & (getattr(stream, link.push) == 1)).astype(np.int64) << queue
        return pops, pushes


#: The pipelines by number of stages.
PIPELINES = {
    3: Pipeline(("load", "compute", "store"), gemm=1, alu=1),
    4: Pipeline(("load", "gemm", "activate", "store"), gemm=1, alu=2),
}
