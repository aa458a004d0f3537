"""Which units there are, which instruction goes to which, and the token bits between neighbours: one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from tilewright.array import Array
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import UNITS, Memory, Opcode, Unit
from tilewright.targets.vta.isa.stream import COMMON_NAMES

#: The transfers that may serve as a NOP (x_size 0, tokens only); a unit's is the first that it takes.
NOPS = ((Opcode.LOAD, Memory.INP), (Opcode.LOAD, Memory.UOP), (Opcode.STORE, Memory.OUT), (Opcode.LOAD, Memory.ACC))


class Link(NamedTuple):
    """One token queue: the column of the bit that its producer pushes with, and of its consumer's pop."""

    push: int
    pop: int


#: Towards the next unit of the line, and back.
ONWARD = Link(COMMON_NAMES.index("push_next"), COMMON_NAMES.index("pop_prev"))
BACK = Link(COMMON_NAMES.index("push_prev"), COMMON_NAMES.index("pop_next"))


@dataclass(frozen=True, eq=False)
class Pipeline:
    """`units` in a line, only neighbours have queues; `takes` int64 [opcode, memory id (0: names none)] -> unit."""

    units: tuple[str, ...]
    takes: Array

    @cached_property
    def links(self) -> dict[tuple[int, int], Link]:
        """The queues, by the numbers of (producer, consumer)."""
        onward = {(unit, unit + 1): ONWARD for unit in range(len(self.units) - 1)}
        return onward | {(behind, before): BACK for before, behind in onward}

    @cached_property
    def home(self) -> int:
        """The unit that takes FINISH."""
        return self.unit_of(Opcode.FINISH)

    @cached_property
    def nops(self) -> tuple[tuple[Opcode, Memory], ...]:
        """What each unit's NOP is."""
        return tuple(next(nop for nop in NOPS if self.unit_of(*nop) == unit) for unit in range(len(self.units)))

    @cached_property
    def _takes(self) -> list[list[int]]:
        return self.takes.tolist()

    def unit_of(self, opcode: int, memory: int = 0) -> int:
        """The number of the unit whose queue takes an instruction."""
        return self._takes[opcode][memory]

    def path(self, source: int, target: int) -> Sequence[int]:
        """The units from one to another, both included: a token goes from each to the next."""
        return range(source, target + 1) if source <= target else range(source, target - 1, -1)


#: Upstream's machine.
LOAD_COMPUTE_STORE = Pipeline(tuple(unit.name.lower() for unit in Unit), UNITS)


def pipeline_of(config: Config) -> Pipeline:
    """The units of a machine. All configurations have the same so far."""
    return LOAD_COMPUTE_STORE
