"""Count the events of a VTA launch, from its micro-ops and moves; no values are needed.

A micro-op reads its micro-op word, and each of its operands, once. A LOAD writes each of its tiles once, padding
included; a STORE reads each tile once. These are the minimum accesses: an implementation may read a tile again for each
beat. A command queue is written and read once for each instruction.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from tilewright.array import Array, ascending
from tilewright.sim.events import Access, Bursts, Events, Part, Work, rows_of
from tilewright.sim.steps import Trace
from tilewright.targets.vta.config import Config, Sram
from tilewright.targets.vta.isa.alu import kinds_of
from tilewright.targets.vta.isa.fields import INSN_BYTES, Memory
from tilewright.targets.vta.isa.own import FIRST_OWN
from tilewright.targets.vta.steps.elaborate import Elaborated
from tilewright.targets.vta.steps.micro_kernel import ALU, ALU_IMMEDIATE, FACTOR_TILES, REQUANTISE


def events(program: Elaborated, trace: Trace | None) -> Events:
    """Return the events of a launch. DRAM transfers are in the order in which their steps start.

    Without a trace, transfers are in the order of the stream. The fetches of instructions are separate rows.
    """
    moved = program.moves
    sequence = np.arange(len(program.stream)) if trace is None else np.argsort(trace.start, kind="stable")
    steps = sequence[moved.transfers[sequence]]
    size = np.where(moved.transfers, moved.rows * moved.row_bytes, 0)
    count = len(program.stream)
    written = int(size[program.moves.stores].sum())
    transfers = rows_of(*(column[steps] for column in (moved.address, moved.rows, moved.row_bytes, moved.stride)))
    executed = _Executed(program)
    return Events(
        executed.macs(),
        executed.operations(),
        tuple(executed.accesses()),
        int(size.sum()) - written + count * INSN_BYTES,
        written,
        (Bursts(transfers), Bursts(np.array([[0, count * INSN_BYTES]], np.int64))),
        count,
        trace.cycles if trace else 0,
        {"leakage, clock and control": "the instructions do not determine them", **_unknown(program)},
    )


def _unknown(program: Elaborated) -> dict[str, str]:
    """Return a reason for each executed own operation with unknown arithmetic."""
    operations = program.config.own_alu
    used = program.kernels.own_index
    unknown = {
        operations[index].name: operations[index].is_code and not operations[index].kinds
        for index in ascending(used[used >= 0])
    }
    return {
        f"ALU operation {name}": "its meaning is code, without `energy`" for name, is_so in unknown.items() if is_so
    }


class _Executed:
    """The executed micro-ops of a launch, by kind of work."""

    def __init__(self, program: Elaborated) -> None:
        self.program = program
        self.config = program.config
        kernels = program.kernels
        runs = np.bincount(program.kernel[program.kernel >= 0], minlength=len(kernels))
        self.as_list = kernels.micro_ops * runs
        self.gemm, self.reset = self._of(kernels.accumulates), self._of(kernels.resets)
        out = self.config.gemm_writes_out
        # A reset GEMM only multiplies if it writes the sums that it would have accumulated to the out memory.
        self.to_out = self.gemm * out + self.reset * (out and self.config.rules.reset_writes_out)
        self.products = self.gemm + self.reset * (out and self.config.rules.reset_writes_out)
        self.alu = self._of(~kernels.is_gemm)
        form = ~kernels.is_gemm * kernels.form
        self.of_form = {kind: self._of(form == kind) for kind in (ALU, ALU_IMMEDIATE, REQUANTISE)}
        # REQ reads its factors before each outer iteration, if the instruction has micro-ops.
        rounds = np.where((form == REQUANTISE) & (kernels.micro_ops > 0), kernels.column("iter_out") * runs, 0)
        self.factors = FACTOR_TILES * int(rounds.sum())

    def _of(self, mask: Array) -> int:
        return int(self.as_list[mask].sum())

    def macs(self) -> tuple[Work, ...]:
        resets = self.products - self.gemm
        more = (products(self.config, resets, " in resets"),) if resets else ()
        return (products(self.config, self.gemm), *more)

    def operations(self) -> tuple[Work, ...]:
        config = self.config
        kernels = self.program.kernels
        bits = 32 if config.rules.wide_alu else config.acc.width
        values = config.batch * config.block
        works = []
        kinds_by_code = [(int(op), kinds_of(op, config.rules, config.alu == "float")) for op in config.alu_ops]
        kinds_by_code += [(FIRST_OWN + index, operation.kinds) for index, operation in enumerate(config.own_alu)]
        for op, kinds in kinds_by_code:
            count = self._of(~kernels.is_gemm & (kernels.column("code") == op))
            if count:
                parts = tuple(Part(kind, bits) for kind in kinds)
                works.append(Work(f"{config.name_of(op)} {bits}", count * values, parts))
        return tuple(works)

    def accesses(self) -> list[Access]:
        config = self.config
        line = self.config.pipeline
        stored = self._moved(Memory.OUT)
        from_out = config.rules.out_memory
        # A GEMM reads the tile to which it adds; an ALU operation reads dst, and without an immediate also src.
        acc = self.products + 2 * self.of_form[ALU] + self.of_form[ALU_IMMEDIATE] + self.of_form[REQUANTISE]
        computed = self.gemm + self.reset + self.alu
        shared = line.alu == line.gemm
        gemm_uops = self.gemm + self.reset + self.alu * shared
        accesses = [
            access(config.uop, gemm_uops, self._moved(Memory.UOP)),
            access(config.inp, self.products, self._moved(Memory.INP)),
            access(config.wgt, self.products, self._moved(Memory.WGT)),
            access(
                config.acc,
                acc + stored * (not from_out),
                computed + self._moved(Memory.ACC) + self._moved(Memory.ACC_8BIT),
            ),
            access(config.out, stored * from_out, self.to_out + self.alu * from_out),
        ]
        if not shared:
            accesses.append(access(config.alu_uop, self.alu, self._moved(Memory.ALU_UOP)))
        if config.has_parameters:
            accesses.append(access(config.par, self.of_form[REQUANTISE] + self.factors, self._moved(Memory.PAR)))
        count = len(self.program.stream)
        capacity = config.queue_depth * INSN_BYTES
        return [*accesses, Access("command queues", capacity, 8 * INSN_BYTES, count, count)]

    def _moved(self, memory: Memory) -> int:
        moved = self.program.moves
        return int(moved.tiles[moved.memory == memory].sum())


def products(config: Config, micro_ops: int, where: str = "") -> Work:
    a = config.inp.width
    b = config.wgt.width
    c = config.acc.width
    parts = (Part("multiply", sqrt(a * b)), Part("add", c))
    return Work(f"{a}x{b}+{c}{where}", micro_ops * config.macs_per_cycle, parts)


def access(sram: Sram, reads: int, writes: int) -> Access:
    return Access(sram.name, sram.depth * sram.tile_bytes, 8 * sram.tile_bytes, reads, writes)
