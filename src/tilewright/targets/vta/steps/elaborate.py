"""Elaborate an instruction stream into steps, which have all information about instructions that needs no data.

The control state is the micro-op cache, which LOADs fill from DRAM, and GEMM and ALU read. Where upstream's
implementations differ, the config's `semantics` decides; see docs/vta.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.array import Array, among
from tilewright.errors import MachineError
from tilewright.program.launch_image import Dram
from tilewright.sim.findings import DEADLOCK, OUT_OF_RANGE, STREAM, Finding
from tilewright.sim.steps import Space, StepTable
from tilewright.targets.vta.causes import WORKS
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.fields import ITER_BITS, UOP_MEMORIES, Memory, Opcode, Stream
from tilewright.targets.vta.isa.stream import decode_uops
from tilewright.targets.vta.steps.micro_kernel import FIELDS, LOOP_FIELDS, Kernel, Kernels, uop_counts
from tilewright.targets.vta.steps.moves import NOTHING, Move, Moves, footprints, granule, moves
from tilewright.targets.vta.steps.pattern import Origin, Pattern


@dataclass(frozen=True, eq=False)
class Elaborated:
    """The steps of a stream of n instructions."""

    config: Config
    stream: Stream
    table: StepTable
    kernel: Array  # [n]: an index into `kernels`, or -1 for instructions other than GEMM and ALU
    kernels: Kernels
    micro_ops: Array  # [n]: the number of micro-ops that each instruction executes
    moves: Moves
    findings: tuple[Finding, ...]
    _fused: dict[tuple[int, ...], Kernel] = field(default_factory=dict)
    _joined: dict[tuple[tuple[int, Origin], ...], Pattern] = field(default_factory=dict)

    def with_operands(self, stored: Mapping[int, Array]) -> Elaborated:
        """Return the program with larger footprints: each reset GEMM in `stored` also reads its operands.

        `stored` is the result of values.actions.stored_resets.
        """
        table = self.table
        footprint = self.table.footprint.copy()
        extra = []
        for step, tiles in sorted(stored.items()):
            kernel = self.kernels[self.kernel[step]]
            extra.append(np.concatenate([kernel.would_read(tiles), table.footprints.of_step(int(footprint[step]))]))
            # Steps with the same kernel share a footprint, so the changed footprint is appended.
            footprint[step] = len(table.footprints) - 1 + len(extra)
        table = replace(table, footprint=footprint, footprints=table.footprints.extended(extra))
        return replace(self, table=table)

    def fused(self, indices: tuple[int, ...]) -> Kernel:
        """Fuse several accumulating GEMM kernels, with the numbers `indices`, into one kernel."""
        if indices not in self._fused:
            gemms = [self.kernels[index] for index in indices]
            dst, src, wgt = map(min, zip(*(kernel.origin for kernel in gemms), strict=True))
            parts = [(k.pattern, (k.origin[0] - dst, k.origin[1] - src, k.origin[2] - wgt)) for k in gemms]
            key = tuple((id(pattern), origin) for pattern, origin in parts)  # kernels keep their patterns alive
            # Results that differ only in the position of their tiles share a pattern.
            if key not in self._joined:
                self._joined[key] = Pattern.joined(parts) if len(gemms) > 1 else gemms[0].pattern
            self._fused[indices] = replace(gemms[0], pattern=self._joined[key], origin=(dst, src, wgt))
        return self._fused[indices]


def elaborate(stream: Stream, config: Config, dram: Dram, bases: Mapping[str, int]) -> Elaborated:
    """Return the steps, footprints and kernels of a stream. `bases` are the byte addresses in the control registers.

    A LOAD of micro-ops from outside DRAM is an OUT_OF_RANGE finding. Raises MachineError if an instruction runs more
    than MAX_MICRO_OPS micro-ops.
    """
    line = config.pipeline
    moved = moves(stream, config, bases)
    kernel, kernels, outside = _kernels(stream, config, dram, moved)
    footprint, rows = footprints(config, moved, kernel, kernels)
    pops, pushes = line.tokens(stream)
    table = StepTable(
        units=line.units,
        queues=line.queues(config.token_depth),
        spaces=_spaces(config, dram),
        unit=line.units_of(stream),
        pops=pops,
        pushes=pushes,
        footprint=footprint,
        footprints=rows,
        describe=lambda step: describe(stream, moved, config, step),
        works=tuple(WORKS),
        work=np.where(stream.opcode == Opcode.GEMM, 0, np.where(stream.opcode == Opcode.ALU, 1, 2)),
    )
    micro_ops = np.append(kernels.micro_ops, 0)[kernel]
    findings = *_finish(stream, table.unit), *_hangs(stream, config, table.describe), *outside
    return Elaborated(config, stream, table, kernel, kernels, micro_ops, moved, findings)


def _spaces(config: Config, dram: Dram) -> tuple[Space, ...]:
    unit = granule(config)
    chips = (config.uop, config.inp, config.wgt, config.acc, config.out)
    filled = tuple((s.address // unit, -(-s.end // unit)) for s in dram.segments if s.initialised)
    end = max((segment.end for segment in dram.segments), default=0)
    return (
        *(Space(chip.name, chip.depth, scratchpad=chip.name, decides=chip.name == "uop") for chip in chips),
        Space("DRAM", -(-end // unit), filled),
        Space("alu_uop", config.alu_uop.depth, scratchpad="alu_uop", decides=True),
        Space("par", config.par.depth, scratchpad="par"),
        Space("acc bank", config.acc_banks),
    )


def _kernels(stream: Stream, config: Config, dram: Dram, moved: Moves) -> tuple[Array, Kernels, list[Finding]]:
    """Return three values: each instruction's kernel number (-1: none), all kernels, findings of LOADs outside DRAM.

    The micro-op caches are tracked in stream order; equal instructions on equal micro-ops share a kernel.
    """
    outside: list[Finding] = []
    caches = {memory: np.zeros((config.sram(memory).depth, 3), np.int64) for memory in UOP_MEMORIES}
    of_alu = [caches[config.pipeline.uop_memory(alu=alu)] for alu in (False, True)]
    lists: list[Array] = []
    # Instructions with equal fields share a kernel if no LOAD of micro-ops lies between them (quick test), or if their
    # micro-ops are equal, too.
    by_epoch: dict[tuple[int, ...], int] = {}
    by_content: dict[tuple[bytes, tuple[int, ...]], int] = {}
    gemm = stream.opcode == Opcode.GEMM
    alu = stream.opcode == Opcode.ALU
    epoch = np.cumsum(moved.of_uops)
    rows = np.flatnonzero(moved.of_uops | gemm | alu)
    numbers = []
    loads = moved.of_uops[rows].tolist()
    fills_of = iter(moved.of(moved.of_uops))
    for row, fills, key in zip(rows.tolist(), loads, _keys(stream, config, epoch, rows), strict=True):
        index = -1 if fills else by_epoch.get(key, -1)
        if fills:
            move = next(fills_of)
            try:
                fill(caches[Memory(move.memory)], config, dram, move, row)
            except MachineError as error:  # the cache stays unchanged
                outside.append(Finding(OUT_OF_RANGE, f"#{row} load uop: {error.reason}", (row,), "DRAM"))
        elif index < 0:
            _, is_alu, bgn, end, *_ = key
            cache = of_alu[is_alu]
            listed = cache.take(range(bgn, end), axis=0, mode="wrap") if end > len(cache) else cache[bgn:end].copy()
            index = by_epoch[key] = by_content.setdefault((listed.tobytes(), key[1:]), len(lists))
            if index == len(lists):
                lists.append(listed)
        numbers.append(index)
    kernel = np.full(len(stream), -1, np.int64)
    kernel[rows] = numbers
    fields = np.array([fields for _, fields in by_content], np.int64).reshape(-1, len(FIELDS))
    kernels = Kernels(fields, lists, config.rules)
    kernels.require(kernel)
    return kernel, kernels, outside


def _keys(stream: Stream, config: Config, epoch: Array, rows: Array) -> Iterator[tuple[int, ...]]:
    """Yield, for each instruction of `rows`, a tuple: the number of micro-op LOADs so far (the epoch), and FIELDS."""
    alu = stream.alu
    gemm = stream.opcode == Opcode.GEMM
    loops = {name: stream.gemm[name] + alu.get(name, 0) for name in LOOP_FIELDS}  # 0 for the other format
    if config.rules.counters_wrap:
        end = loops["uop_end"]
        loops["uop_end"] = np.where(end > loops["uop_bgn"], end, end + uop_counts(config))
        for name in ("iter_out", "iter_in"):
            loops[name] = np.where(loops[name] > 0, loops[name], 1 << ITER_BITS)
    code = np.where(gemm, stream.gemm.reset_reg, alu.alu_opcode)
    columns = epoch, ~gemm, *loops.values(), code, alu.use_imm, alu.imm
    return zip(*(column[rows].tolist() for column in columns), strict=True)


def fill(cache: Array, config: Config, dram: Dram, move: Move, row: int) -> None:
    """Execute a LOAD of micro-ops: write the decoded micro-ops to `cache`, and zeros for padding."""
    image = np.zeros((move.height, move.width, 3), np.int64)
    if move.rows and move.row_bytes:
        window = dram.window(move.address, move.rows, move.row_bytes, move.stride, f"instruction {row}")
        uops = decode_uops(np.ascontiguousarray(window[0]).reshape(-1, config.uop.tile_bytes), config)
        data = np.stack(uops, axis=-1).reshape(move.rows, move.columns, 3)
        image[move.top : move.top + move.rows, move.left : move.left + move.columns] = data
    # Drop micro-ops past the end of the cache, which sim.hazards reports as OUT_OF_RANGE.
    kept = image.reshape(-1, 3)[: max(0, len(cache) - move.base)]
    cache[move.base : move.base + len(kept)] = kept


def _finish(stream: Stream, unit: Array) -> list[Finding]:
    finish = np.flatnonzero(stream.opcode == Opcode.FINISH)
    if not finish.size:
        return [Finding(STREAM, "the stream has no FINISH: the host would wait forever", (len(stream) - 1,))]
    after = np.flatnonzero(unit[finish[0] + 1 :] == unit[finish[0]])
    if after.size:
        step = int(finish[0] + 1 + after[0])
        return [Finding(STREAM, f"#{step} follows FINISH #{finish[0]} in its queue and may not run", (step,))]
    return []


def undecoded(stream: Stream) -> Array:
    """Return whether upstream's Chisel design does not decode each instruction: bool [n] (core/Decode.scala:137)."""
    loads = among(stream.mem.memory_type, (Memory.UOP, Memory.WGT, Memory.INP, Memory.ACC))
    alu = (stream.opcode == Opcode.ALU) & (stream.alu.alu_opcode > AluOp.SHR)
    unknown: Array = alu | ((stream.opcode == Opcode.LOAD) & ~loads)
    return unknown


def endless(stream: Stream) -> Array:
    """Return whether each instruction is a LOAD of no rows, which upstream's Chisel design never ends: bool [n]."""
    rowless: Array = (stream.opcode == Opcode.LOAD) & (stream.mem.x_size > 0) & (stream.mem.y_size == 0)
    return rowless


def _hangs(stream: Stream, config: Config, described: Callable[[int], str]) -> Iterator[Finding]:
    """Yield the first instruction that is not decoded, and the first LOAD that does not end."""
    if not config.rules.hangs:
        return
    stops = (
        (undecoded(stream), "is not decoded by the Chisel design: fetch stops, and no later instruction runs"),
        (endless(stream) & ~undecoded(stream), "has y_size 0 and never ends in the Chisel design"),
    )
    for mask, reason in stops:
        for step in np.flatnonzero(mask)[:1].tolist():
            yield Finding(DEADLOCK, f"#{step} {described(step)} {reason}", (step,))


def describe(stream: Stream, moved: Moves, config: Config, step: int) -> str:
    """Describe instruction `step` in a short text for messages and traces: operation, tiles and padding."""
    opcode = Opcode(int(stream.opcode[step]))
    if opcode in (Opcode.LOAD, Opcode.STORE):
        touches = int(moved.memory[step]) != NOTHING
        name = config.sram(Memory(int((moved.memory if touches else stream.mem.memory_type)[step]))).name
        base = int(moved.base[step])
        tiles = int(moved.tiles[step])
        what = opcode.name.lower()
        return f"{what} {name}[{base}:{base + tiles}]" if tiles else f"nop ({what} {name})"
    if opcode == Opcode.FINISH:
        return "finish"
    part = stream.gemm if opcode == Opcode.GEMM else stream.alu
    uops = int(part.uop_end[step] - part.uop_bgn[step])
    shape = f"{uops}x{int(part.iter_out[step])}x{int(part.iter_in[step])} micro-ops"
    if opcode == Opcode.GEMM:
        return f"gemm {'reset ' if part.reset_reg[step] else ''}{shape}"
    name = config.name_of(int(stream.alu.alu_opcode[step]))
    return f"alu {name}{f' {int(stream.alu.imm[step])}' if stream.alu.use_imm[step] else ''} {shape}"
