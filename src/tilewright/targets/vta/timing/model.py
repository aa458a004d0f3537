"""What makes a timing model: numbers for the compute core, and how the machine around it is simulated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim import jit
from tilewright.sim.order import Order
from tilewright.sim.steps import StepTable, Trace
from tilewright.sim.timeline import EVENT_US, Channel, Simulated, timeline, times
from tilewright.targets.base import TimingModel
from tilewright.targets.vta.config import Config, Sram
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.fields import Memory
from tilewright.targets.vta.steps.elaborate import Elaborated
from tilewright.targets.vta.steps.micro_kernel import FACTOR_TILES, REQUANTISE

#: The key of each SRAM port of the compute core, and its memory.
PORTS = {"inp_read_bits": "inp", "wgt_read_bits": "wgt", "acc_read_bits": "acc", "acc_write_bits": "acc"}


class Port(NamedTuple):
    """Bits a cycle: what one GEMM micro-op a cycle needs, and what the memory delivers or takes."""

    needed: int
    provided: int


class Intervals(NamedTuple):
    """Cycles from one micro-op to the next."""

    gemm: int
    alu: int
    alu_immediate: int
    requantise: int

    def of(self, op: AluOp | None, immediate: bool) -> int:
        """Of GEMM (`op` None) or an ALU operation."""
        if op is None:
            return self.gemm
        if op == AluOp.REQ:
            return self.requantise
        return self.alu_immediate if immediate else self.alu


@dataclass(frozen=True)
class Timing:
    """Cycles. Intervals are the model's own; lanes and ports of the config may lengthen them."""

    gemm: int  # a GEMM micro-op
    alu: int  # an ALU micro-op
    alu_immediate: int  # an ALU micro-op whose second operand is the immediate
    requantise: int  # a REQ micro-op: ours, reads one accumulator and one bias
    dispatch: int  # an instruction, before it does anything
    pipeline: int  # a GEMM or ALU instruction, besides its micro-ops
    source: TimingModel
    channel: Callable[[Config], Channel]
    simulated: Callable[[Elaborated, Timing], Simulated]
    tokens_wait: bool = True  # a push waits while its queue is full

    def intervals(self, config: Config) -> Intervals:
        """Cycles a micro-op takes on a machine: the model's own, longer where lanes or ports are short.

        A tensor operation reads two accumulator tiles, its immediate form and REQ one; all write one.
        """
        known = ports(config)

        def cycles(key: str, tiles: int = 1) -> int:
            port = known[key]
            return -(-tiles * port.needed // port.provided)

        values = config.batch * config.block
        vectors = 1 if config.alu_lanes is None else -(-values // config.alu_lanes)
        write, read = cycles("acc_write_bits"), cycles("acc_read_bits")
        return Intervals(
            gemm=max(self.gemm, cycles("inp_read_bits"), cycles("wgt_read_bits"), read, write),
            alu=max(self.alu, vectors, write, cycles("acc_read_bits", 2)),
            alu_immediate=max(self.alu_immediate, vectors, write, read),
            requantise=max(self.requantise, vectors, write, read),
        )

    def once(self, op: AluOp | None, outer: int) -> int:
        """Cycles besides the micro-ops: REQ reads the factors of each outer iteration, a tile a cycle."""
        return self.pipeline + (FACTOR_TILES * outer if op == AluOp.REQ else 0)

    def trace(self, program: Elaborated, relation: Order) -> Trace:
        """The trace of a launch. Raises HazardError for a command or token queue that fills for good."""
        return timeline(self._table(program), relation, self.simulated(program, self))

    def traces(self, program: Elaborated, relation: Order) -> tuple[Trace, Trace | None]:
        """The trace of a launch, and the one without any overlap where there is one. Raises as `trace`."""
        return times(self._table(program), relation, self.simulated(program, self))

    def _table(self, program: Elaborated) -> StepTable:
        """The steps with token queues as deep as the machine's, or never full."""
        table = program.table
        if self.tokens_wait:
            return table
        return replace(table, queues=tuple(replace(queue, depth=len(table)) for queue in table.queues))


def ports(config: Config) -> dict[str, Port]:
    """Each port by its key; unset ones give what is needed."""
    found = {}
    for key, name in PORTS.items():
        sram: Sram = getattr(config, name)
        needed, given = 8 * sram.tile_bytes, getattr(config, key)
        found[key] = Port(needed, needed if given is None else given)
    return found


def compute(program: Elaborated, timing: Timing) -> Array:
    """Cycles of each GEMM and ALU instruction in the core, int64 [n]; 0 for others."""
    kernels = program.kernels
    once = np.full(len(kernels), timing.once(None, 0))
    requantises = kernels.form == REQUANTISE
    once[requantises] = [timing.once(AluOp.REQ, outer) for outer in kernels.column("iter_out")[requantises].tolist()]
    busy = kernels.micro_ops * np.array(timing.intervals(program.config))[kernels.form] + once
    steps: Array = np.append(busy, 0)[program.kernel]
    return steps


def stores(program: Elaborated) -> Array:
    """Which steps write DRAM, bool [n]."""
    mask: Array = (program.moves.memory == Memory.OUT) & program.moves.transfers
    return mask


def zeros(program: Elaborated) -> Array:
    """Tiles of padding that each LOAD writes, int64 [n]."""
    moved = program.moves
    return np.where(moved.memory >= 0, moved.tiles - moved.rows * moved.columns, 0)


def expect(steps: int) -> None:
    """Announce a trace of so many steps, and a serial one: each step is delivered, starts and ends."""
    jit.expect(2 * 3 * EVENT_US * steps)
