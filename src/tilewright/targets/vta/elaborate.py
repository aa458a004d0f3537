"""A stream as steps: what control state alone decides, before any data is known.

Control state is the micro-op cache: LOAD UOP fills it from DRAM, GEMM and ALU read it. Rules are the HLS
design's (specs of upstream's hardware/xilinx/src/vta.cc), see docs/vta.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.sim.dram import Dram
from tilewright.sim.findings import STREAM, Finding
from tilewright.sim.steps import READ, WRITE, Footprints, Space, StepTable, TokenQueue
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import AluOp, Memory, Opcode, Unit
from tilewright.targets.vta.isa.stream import Stream, decode_uops
from tilewright.targets.vta.kernel import ACC, DRAM, INP, OUT, UOP, WGT, AluKernel, GemmKernel, Loop

#: Micro-ops of one instruction, loops included; a program beyond it is refused before it fills the memory.
MAX_MICRO_OPS = 1 << 26

_SPACE = {Memory.UOP: UOP, Memory.WGT: WGT, Memory.INP: INP, Memory.ACC: ACC, Memory.OUT: OUT, Memory.ACC_8BIT: ACC}
#: Queue of each (unit, token bit); bits that are not listed are ignored (HLS).
_POPS = {
    (Unit.LOAD, "pop_next"): 1,
    (Unit.COMPUTE, "pop_prev"): 0,
    (Unit.COMPUTE, "pop_next"): 3,
    (Unit.STORE, "pop_prev"): 2,
}
_PUSHES = {
    (Unit.LOAD, "push_next"): 0,
    (Unit.COMPUTE, "push_prev"): 1,
    (Unit.COMPUTE, "push_next"): 2,
    (Unit.STORE, "push_prev"): 3,
}


@dataclass(frozen=True, eq=False)
class Elaborated:
    """Steps of a stream. `kernel` [n] indexes `kernels` (-1: not GEMM or ALU); `micro_ops` [n] counts executed ones.

    `transfers` [n, 6] of LOAD and STORE: DRAM byte address, rows, bytes a row, stride in bytes; zero for others.
    """

    config: Config
    stream: Stream
    table: StepTable
    kernel: Array
    kernels: tuple[GemmKernel | AluKernel, ...]
    micro_ops: Array
    transfers: Array
    findings: tuple[Finding, ...]
    _fused: dict[tuple[int, ...], GemmKernel] = field(default_factory=dict)

    @cached_property
    def accumulates(self) -> tuple[bool, ...]:
        """For each kernel: it is a GEMM that adds to the accumulator."""
        return tuple(isinstance(kernel, GemmKernel) and not kernel.reset for kernel in self.kernels)

    def fused(self, indices: tuple[int, ...]) -> GemmKernel:
        """The accumulating GEMM kernels `indices` as one."""
        if indices not in self._fused:
            gemms = [kernel for kernel in (self.kernels[i] for i in indices) if isinstance(kernel, GemmKernel)]
            self._fused[indices] = gemms[0] if len(gemms) == 1 else GemmKernel.fused(gemms)
        return self._fused[indices]


def elaborate(stream: Stream, config: Config, dram: Dram, bases: Mapping[str, int]) -> Elaborated:
    """Steps, footprints and kernels. `bases` are the byte addresses in the control registers.

    Raises MachineError for micro-ops loaded from outside DRAM and for absurd loop counts.
    """
    transfers = _transfers(stream, config, bases)
    kernel, kernels = _kernels(stream, config, dram, transfers)
    footprint, footprints = _footprints(stream, config, transfers, kernel, kernels)
    loops = np.array([item.loop.micro_ops for item in kernels] + [0], np.int64)
    table = StepTable(
        units=("load", "compute", "store"),
        queues=_queues(config),
        spaces=_spaces(config, dram),
        unit=stream.unit,
        pops=_mask(stream, _POPS),
        pushes=_mask(stream, _PUSHES),
        footprint=footprint,
        footprints=footprints,
        describe=lambda step: describe(stream, config, step),
    )
    return Elaborated(config, stream, table, kernel, kernels, loops[kernel], transfers, tuple(_finish(stream)))


def _queues(config: Config) -> tuple[TokenQueue, ...]:
    pairs = (
        ("load", "compute", 0, 1),
        ("compute", "load", 1, 0),
        ("compute", "store", 1, 2),
        ("store", "compute", 2, 1),
    )
    return tuple(TokenQueue(f"{a}->{b}", i, j, config.token_depth) for a, b, i, j in pairs)


def granule(config: Config) -> int:
    """Bytes of the smallest tile: the element in which DRAM footprints count."""
    return min(config.inp.tile_bytes, config.wgt.tile_bytes, config.acc.tile_bytes, config.out.tile_bytes)


def _spaces(config: Config, dram: Dram) -> tuple[Space, ...]:
    unit = granule(config)
    chips = (config.uop, config.inp, config.wgt, config.acc, config.out)
    filled = tuple((s.address // unit, -(-s.end // unit)) for s in dram.segments if s.initialised)
    end = max((segment.end for segment in dram.segments), default=0)
    return (*(Space(chip.name, chip.depth) for chip in chips), Space("DRAM", -(-end // unit), filled, sparse=True))


def _mask(stream: Stream, bits: Mapping[tuple[Unit, str], int]) -> Array:
    mask = np.zeros(len(stream), np.int64)
    for (unit, name), queue in bits.items():
        mask |= np.where((stream.unit == unit) & (getattr(stream, name) == 1), 1 << queue, 0)
    return mask


def _transfers(stream: Stream, config: Config, bases: Mapping[str, int]) -> Array:
    """int64 [n, 4] byte address, rows, bytes a row, stride. LOAD UOP is one row (HLS); x_size 0 moves nothing."""
    mem = stream.mem
    base = np.array([bases[name] for name in ("uop", "wgt", "inp", "acc", "out", "acc")] + [0, 0], np.int64)
    tile = np.array([config.dram_tile_bytes(memory) for memory in Memory] + [0, 0], np.int64)
    moves = ((stream.opcode == Opcode.LOAD) | (stream.opcode == Opcode.STORE)) & (mem.x_size > 0)
    memory = np.where(stream.opcode == Opcode.STORE, int(Memory.OUT), mem.memory_type)
    rows = np.where(memory == Memory.UOP, 1, mem.y_size)
    moves &= (rows > 0) & (memory != Memory.ACC_8BIT)  # HLS ignores LOAD ACC_8BIT
    columns = (
        base[memory] + mem.dram_base * tile[memory],
        rows,
        mem.x_size * tile[memory],
        mem.x_stride * tile[memory],
    )
    return np.where(moves[:, None], np.stack(columns, axis=1), 0)


def _kernels(
    stream: Stream, config: Config, dram: Dram, transfers: Array
) -> tuple[Array, tuple[GemmKernel | AluKernel, ...]]:
    """Follow the micro-op cache in stream order; equal instructions on equal micro-ops share a kernel."""
    kernel = np.full(len(stream), -1, np.int64)
    kernels: list[GemmKernel | AluKernel] = []
    cache = np.zeros((config.uop.depth, 3), np.int64)
    by_epoch: dict[tuple[int, ...], int] = {}
    by_content: dict[tuple[bytes, tuple[int, ...]], int] = {}
    load_uop = (stream.opcode == Opcode.LOAD) & (stream.mem.memory_type == Memory.UOP) & (transfers[:, 1] > 0)
    gemm, alu = stream.opcode == Opcode.GEMM, stream.opcode == Opcode.ALU
    epoch = np.cumsum(load_uop)
    keys = _keys(stream, gemm, epoch)
    for row in np.flatnonzero(load_uop | gemm | alu).tolist():
        if load_uop[row]:
            _fill(cache, stream, config, dram, transfers, row)
            continue
        key = keys[row]
        index = by_epoch.get(key)
        if index is None:
            content = cache[key[2] : key[3]].tobytes()
            index = by_content.get((content, key[1:]))
            if index is None:
                index = len(kernels)
                kernels.append(_kernel(key, cache, row))
                by_content[content, key[1:]] = index
            by_epoch[key] = index
        kernel[row] = index
    return kernel, tuple(kernels)


def _keys(stream: Stream, gemm: Array, epoch: Array) -> list[tuple[int, ...]]:
    """(epoch, 0 GEMM / 1 ALU, bgn, end, iterations, factors, reset or op, use_imm, imm) of every row."""
    columns = [epoch, np.where(gemm, 0, 1)]
    for name in ("uop_bgn", "uop_end", "iter_out", "iter_in"):
        columns.append(np.where(gemm, getattr(stream.gemm, name), getattr(stream.alu, name)))
    for name in ("dst_factor_out", "dst_factor_in", "src_factor_out", "src_factor_in"):
        columns.append(np.where(gemm, getattr(stream.gemm, name), getattr(stream.alu, name)))
    columns += [stream.gemm.wgt_factor_out, stream.gemm.wgt_factor_in]
    columns.append(np.where(gemm, stream.gemm.reset_reg, stream.alu.alu_opcode))
    columns += [stream.alu.use_imm, np.where(stream.alu.use_imm == 1, stream.alu.imm, 0)]
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _kernel(key: tuple[int, ...], cache: Array, row: int) -> GemmKernel | AluKernel:
    _, is_alu, bgn, end, iter_out, iter_in, dst_o, dst_i, src_o, src_i, wgt_o, wgt_i, code, use_imm, imm = key
    loop = Loop(bgn, end, iter_out, iter_in, (dst_o, dst_i), (src_o, src_i), (wgt_o, wgt_i))
    if loop.micro_ops > MAX_MICRO_OPS:
        raise MachineError(
            f"instruction {row}", f"runs {loop.micro_ops} micro-ops; at most {MAX_MICRO_OPS} are simulated"
        )
    dst, src, wgt = (np.ascontiguousarray(column) for column in cache[bgn:end].T)
    if is_alu:
        return AluKernel(
            loop, AluOp(code), imm if use_imm else None, loop.expand(dst, loop.dst), loop.expand(src, loop.src)
        )
    return GemmKernel(
        loop, bool(code), loop.expand(dst, loop.dst), loop.expand(src, loop.src), loop.expand(wgt, loop.wgt)
    )


def _fill(cache: Array, stream: Stream, config: Config, dram: Dram, transfers: Array, row: int) -> None:
    address, _, size, _ = transfers[row].tolist()
    raw = dram.window(address, 1, size, 0, f"instruction {row}")[0].reshape(-1, config.uop.tile_bytes)
    base = int(stream.mem.sram_base[row])
    fields = decode_uops(raw[: max(0, len(cache) - base)], config)  # beyond the end: a finding, see hazards
    for column, values in enumerate((fields.dst, fields.src, fields.wgt)):
        cache[base : base + len(fields), column] = values


def _footprints(
    stream: Stream, config: Config, transfers: Array, kernel: Array, kernels: tuple[GemmKernel | AluKernel, ...]
) -> tuple[Array, Footprints]:
    """Footprint 0 is empty, 1..k belong to the kernels, the rest to LOAD and STORE, one each."""
    footprint = kernel + 1
    of_kernels = Footprints.of([np.zeros((0, 6), np.int64), *(item.footprint() for item in kernels)])
    mem, unit = stream.mem, granule(config)
    store = stream.opcode == Opcode.STORE
    moved = np.flatnonzero(store | (stream.opcode == Opcode.LOAD))
    memory = np.where(store, int(Memory.OUT), mem.memory_type)[moved]
    pads = np.isin(memory, (Memory.INP, Memory.ACC)) & ~store[moved]  # HLS pads only these
    x = mem.x_size[moved] + np.where(pads, mem.x_pad_0[moved] + mem.x_pad_1[moved], 0)
    y = mem.y_size[moved] + np.where(pads, mem.y_pad_0[moved] + mem.y_pad_1[moved], 0)
    y = np.where(memory == Memory.UOP, 1, y)
    tiles = np.where(memory == Memory.ACC_8BIT, 0, x * y)
    rows = np.zeros((len(moved), 2, 6), np.int64)
    space = np.array([_SPACE[item] for item in Memory] + [OUT, OUT])
    on_chip = (
        space[memory],
        np.where(store[moved], READ, WRITE),
        mem.sram_base[moved],
        tiles,
        np.ones_like(x),
        tiles * 0,
    )
    rows[:, 0] = np.stack(on_chip, axis=1)
    address, count, length, stride = transfers[moved].T
    # Micro-ops are control state: their DRAM is read in 4-byte pieces and not part of the data check.
    count = np.where(memory == Memory.UOP, 0, count)
    off_chip = (
        np.full_like(x, DRAM),
        np.where(store[moved], WRITE, READ),
        address // unit,
        length // unit,
        count,
        stride // unit,
    )
    rows[:, 1] = np.stack(off_chip, axis=1)
    footprint[moved] = len(kernels) + 1 + np.arange(len(moved))
    start = np.concatenate([of_kernels.start, of_kernels.start[-1] + 2 * (1 + np.arange(len(moved)))])
    return footprint, Footprints(np.concatenate([of_kernels.rows, rows.reshape(-1, 6)]), start)


def _finish(stream: Stream) -> list[Finding]:
    finish = np.flatnonzero(stream.opcode == Opcode.FINISH)
    if not finish.size:
        return [Finding(STREAM, "the stream has no FINISH: the host would wait for ever", (len(stream) - 1,))]
    after = np.flatnonzero(stream.unit[finish[0] + 1 :] == Unit.COMPUTE)
    if after.size:
        step = int(finish[0] + 1 + after[0])
        return [Finding(STREAM, f"#{step} follows FINISH #{finish[0]} in the compute queue and may not run", (step,))]
    return []


def describe(stream: Stream, config: Config, step: int) -> str:
    """A few words for messages and traces: what an instruction does to which tiles."""
    opcode = Opcode(int(stream.opcode[step]))
    if opcode in (Opcode.LOAD, Opcode.STORE):
        mem = stream.mem
        memory = Memory(int(mem.memory_type[step]))
        tiles = int(mem.x_size[step] * (1 if memory == Memory.UOP else mem.y_size[step]))
        base = int(mem.sram_base[step])
        name = config.sram(memory).name
        return (
            f"{opcode.name.lower()} {name}[{base}:{base + tiles}]" if tiles else f"nop ({opcode.name.lower()} {name})"
        )
    if opcode == Opcode.FINISH:
        return "finish"
    part = stream.gemm if opcode == Opcode.GEMM else stream.alu
    uops = int(part.uop_end[step] - part.uop_bgn[step])
    shape = f"{uops}x{int(part.iter_out[step])}x{int(part.iter_in[step])} micro-ops"
    if opcode == Opcode.GEMM:
        return f"gemm {'reset ' if part.reset_reg[step] else ''}{shape}"
    name = AluOp(int(stream.alu.alu_opcode[step])).name.lower()
    return f"alu {name}{f' {int(stream.alu.imm[step])}' if stream.alu.use_imm[step] else ''} {shape}"
