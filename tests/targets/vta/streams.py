"""Random instruction streams for the machines of any pipeline and ALU: legal indices, everything else by chance."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from tests.conftest import ROOT
from tests.targets.vta.interpreter import Record
from tests.targets.vta.records import (
    ACC,
    ACC_8BIT,
    ALU,
    ALU_UOP,
    FINISH,
    GEMM,
    INP,
    LOAD,
    MUL,
    OUT,
    PAR,
    REQ,
    STORE,
    UOP,
    WGT,
    unit_of,
)
from tilewright.array import Array
from tilewright.program.launch_image import Dram, Segment
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.isa.fields import Memory
from tilewright.targets.vta.isa.own import OwnOperation

EXAMPLE = ROOT / "examples" / "own_alu"
INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
BASES = {"uop": 0x1000, "inp": 0x2000, "wgt": 0x4000, "acc": 0x6000, "out": 0x8000}
END = 0xA000
#: Tiles of each memory in DRAM.
IN_DRAM = 24


#: The operations of the example, and a slow one.
OWN_ALU = Config.read(str(EXAMPLE / "machine.json"), {}).own_alu
OWN_ALU += (replace(OWN_ALU[1], name="slow", opcode=7, cycles=5),)


def moved(operations: tuple[OwnOperation, ...], opcode: int) -> tuple[OwnOperation, ...]:
    """The operations with other opcodes, from `opcode` on."""
    return tuple(replace(operation, opcode=opcode + index) for index, operation in enumerate(operations))


def small(batch: int, block: int, **overrides: Any) -> Config:
    """Memories of 2^log tiles: 16 inp, 8 wgt, 16 acc, 8 par, 32 and 16 micro-ops."""
    sizes = {
        "LOG_UOP_BUFF_SIZE": 7,
        "LOG_INP_BUFF_SIZE": 4 + batch + block,
        "LOG_WGT_BUFF_SIZE": 3 + 2 * block,
        "LOG_ACC_BUFF_SIZE": 6 + batch + block,
        "LOG_ALU_UOP_BUFF_SIZE": 6,
        "LOG_PAR_BUFF_SIZE": 5 + block,
    }
    return replace(PRESETS["pynq"], LOG_BATCH=batch, LOG_BLOCK=block, **(sizes | overrides))


MACHINES = {
    "upstream": small(0, 2),
    "fsim": small(1, 2, semantics="fsim"),
    "chisel": small(1, 2, semantics="chisel"),
    "rounding": small(1, 2, alu="rounding"),
    "fused": small(0, 3, alu="fused"),
    "fused, batch 4": small(2, 1, alu="fused"),
    "four": small(1, 2, stages=4, acc_banks=4),
    "four, one bank": small(0, 2, stages=4, acc_banks=1),
    "four, fused": small(0, 2, stages=4, alu="fused"),
    "four, fused, batch 4": small(2, 2, stages=4, alu="fused", acc_banks=8),
    "own": small(1, 2, own_alu=OWN_ALU),
    "four, fused, own": small(0, 2, stages=4, alu="fused", own_alu=moved(OWN_ALU, 8)),
}


class Case(NamedTuple):
    """A stream, its micro-ops int64 [m, 3], and DRAM uint8 (samples, END)."""

    records: list[Record]
    uops: Array
    dram: Array


def random_case(rng: np.random.Generator, config: Config, samples: int) -> Case:
    """Legal indices, random everything else; tokens as in `add_tokens`."""
    count = int(rng.integers(5, 45))
    depth = {"dst": config.acc.depth, "src": min(config.inp.depth, config.par.depth), "wgt": config.wgt.depth}
    if config.has_parameters:
        depth["wgt"] = min(depth["wgt"], config.par.depth)
    # Fields in the lower half leave room for loop factors.
    uops = np.stack([rng.integers(0, depth[name] // 2, config.uop.depth) for name in ("dst", "src", "wgt")], axis=1)
    records = [uop_load(config, UOP, 0, config.uop.depth)]
    if config.stages == 4:
        records.append(uop_load(config, ALU_UOP, 0, config.alu_uop.depth))
    makers = [move, move, move, gemm, gemm, alu, alu, store, reload_uops]
    records += [makers[rng.integers(len(makers))](rng, config) for _ in range(count)]
    records.append({"opcode": FINISH})
    add_tokens(rng, config, records)
    return Case(records, uops, memory(rng, config, samples, uops))


def memory(rng: np.random.Generator, config: Config, samples: int, uops: Array) -> Array:
    """Random bytes; words of acc and par are extreme now and then; micro-ops packed as the C structure has them."""
    dram = rng.integers(0, 256, (samples, END), dtype=np.uint8)
    dram[:, : BASES["inp"]] = dram[0, : BASES["inp"]]
    if rng.random() < 0.5:  # weights, and accumulators with parameters: of all samples or of each
        dram[:, BASES["wgt"] : BASES["out"]] = dram[0, BASES["wgt"] : BASES["out"]]
    words = dram[:, BASES["acc"] : BASES["out"]].view(np.int32)
    special = rng.choice([INT_MIN, INT_MIN + 1, -1, 0, 1, INT_MAX, 1 << 30, 5 << 16 | 2 << 8 | 3], words.shape)
    words[:] = np.where(rng.random(words.shape) < 0.3, special, words >> rng.integers(0, 31, words.shape))
    if config.alu == "float":
        words &= ~(1 << 23)  # no infinities, no NaN
    a = config.acc.depth.bit_length() - 1
    s = max(a, config.inp.depth.bit_length() - 1)
    packed = uops[:, 0] | uops[:, 1] << a | uops[:, 2] << (a + s)
    dram[:, BASES["uop"] : BASES["uop"] + 4 * len(uops)] = packed.astype(np.uint32).view(np.uint8)
    return dram


def dram_of(case: Case) -> Dram:
    """Segments by register, once where all samples have the same."""
    edges = [*BASES.items(), ("end", END)]
    segments = []
    for (name, low), (_, high) in pairwise(edges):
        constant = bool((case.dram[:, low:high] == case.dram[0, low:high]).all())
        data = case.dram[: 1 if constant else None, low:high]
        segments.append(Segment(name, low, np.ascontiguousarray(data), True, shared=constant))
    return Dram(segments)


def uop_load(config: Config, memory: int, first: int, count: int) -> Record:
    return {"opcode": LOAD, "memory_type": memory, "dram_base": first, "y_size": 1, "x_size": count}


def reload_uops(rng: np.random.Generator, config: Config) -> Record:
    memory = int(rng.choice([UOP, ALU_UOP] if config.stages == 4 else [UOP]))
    count = int(rng.integers(0, 5))
    first = int(rng.integers(0, config.uop.depth - count))
    chip = config.uop if memory == UOP else config.alu_uop
    rows = int(rng.integers(config.rules.hangs, 3))
    base = int(rng.integers(0, chip.depth - count * max(1, rows)))
    return uop_load(config, memory, first, count) | {"sram_base": base, "y_size": rows}


def move(rng: np.random.Generator, config: Config) -> Record:
    memories = [INP, INP, WGT, ACC, ACC] + ([PAR] * 3 if config.has_parameters else [])
    memories += [] if config.rules.hangs else [ACC_8BIT, OUT]
    memory = int(rng.choice(memories))
    rows, columns = int(rng.integers(config.rules.hangs, 3)), int(rng.integers(0, 3))
    record = {"opcode": LOAD, "memory_type": memory, "y_size": rows, "x_size": columns}
    if rng.random() < 0.4:
        record |= {name: int(rng.integers(0, 2)) for name in ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")}
    chip = {INP: config.inp, WGT: config.wgt, PAR: config.par}.get(Memory(memory), config.acc)
    tiles = (rows + record.get("y_pad_0", 0) + record.get("y_pad_1", 0)) * (
        columns + record.get("x_pad_0", 0) + record.get("x_pad_1", 0)
    )
    if tiles > chip.depth:
        return move(rng, config)
    record["x_stride"] = int(rng.integers(0, 6))
    record["dram_base"] = int(rng.integers(0, IN_DRAM - 8))
    return record | {"sram_base": int(rng.integers(0, chip.depth - tiles + 1))}


def store(rng: np.random.Generator, config: Config) -> Record:
    rows, columns = int(rng.integers(config.rules.counters_wrap, 3)), int(rng.integers(0, 3))
    base = int(rng.integers(0, config.acc.depth - rows * columns + 1))
    record = {"opcode": STORE, "memory_type": OUT, "sram_base": base, "y_size": rows, "x_size": columns}
    return record | {"dram_base": int(rng.integers(0, 16)), "x_stride": int(rng.integers(2, 6))}


def loops(rng: np.random.Generator, listed: int) -> Record:
    begin = int(rng.integers(0, listed - 4))
    end = begin + int(rng.integers(0 if rng.random() < 0.1 else 1, 5))
    return {"uop_bgn": begin, "uop_end": end, "iter_out": int(rng.integers(1, 3)), "iter_in": int(rng.integers(1, 3))}


def factor(rng: np.random.Generator, depth: int) -> int:
    """Two of them and a field of the lower half stay inside."""
    return int(rng.integers(0, depth // 4 + 1))


def gemm(rng: np.random.Generator, config: Config) -> Record:
    record = {"opcode": GEMM, **loops(rng, config.uop.depth), "reset_reg": int(rng.random() < 0.3)}
    for name, depth in (("dst", config.acc.depth), ("src", config.inp.depth), ("wgt", config.wgt.depth)):
        record |= {f"{name}_factor_{loop}": factor(rng, depth) for loop in ("out", "in")}
    return record


def alu(rng: np.random.Generator, config: Config) -> Record:
    op = int(rng.choice([code for code in config.opcodes if code != MUL]))
    record = {"opcode": ALU, **loops(rng, min(config.uop.depth, config.alu_uop.depth)), "alu_opcode": op}
    is_req = config.has_parameters and op == REQ
    record["uop_end"] = max(record["uop_end"], record["uop_bgn"] + is_req)
    for name, depth in (("dst", config.acc.depth), ("src", config.par.depth if is_req else config.acc.depth)):
        record |= {f"{name}_factor_{loop}": factor(rng, depth) for loop in ("out", "in")}
    if is_req:  # wgt fields are below half of par
        return record | {"imm": int(rng.integers(0, max(1, config.par.depth // 2 - 2))), "use_imm": 0}
    imm = int(rng.choice([int(rng.integers(-40, 40)), int(rng.integers(-(1 << 15), 1 << 15)), -(1 << 15)]))
    return record | {"use_imm": int(rng.integers(2)), "imm": imm}


def add_tokens(rng: np.random.Generator, config: Config, records: list[Record]) -> None:
    """Now and then an instruction waits for the last one of a neighbour; queues are FIFOs, so never an older one."""
    units = [unit_of(record, config.stages) for record in records]
    last: dict[int, int] = {}
    given: dict[tuple[int, int], int] = {}
    often = rng.choice([0.3, 0.8, 1.0])
    for index, unit in enumerate(units):
        for other, pop, push in ((unit - 1, "pop_prev", "push_next"), (unit + 1, "pop_next", "push_prev")):
            giver = last.get(other, -1)
            if giver > given.get((other, unit), -1) and rng.random() < often:
                records[giver][push] = records[index][pop] = 1
                given[other, unit] = giver
        last[unit] = index
