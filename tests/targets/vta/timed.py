"""Short VTA programs, random ones too, and their traces under a timing model."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.program.launch_image import Dram, Segment
from tilewright.sim.order import order
from tilewright.sim.steps import Trace
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.isa.fields import Memory, Opcode
from tilewright.targets.vta.isa.stream import decode, encode
from tilewright.targets.vta.steps.elaborate import Elaborated, elaborate
from tilewright.targets.vta.timing import MODELS

Record = dict[str, int]
BASES = {"uop": 0x10000, "inp": 0x20000, "wgt": 0x40000, "acc": 0x80000, "out": 0xC0000}
#: Queues in the order load->compute, compute->load, compute->store, store->compute: (pushes, bit), (pops, bit).
TOKENS = (
    ("load", "push_next", "compute", "pop_prev"),
    ("compute", "push_prev", "load", "pop_next"),
    ("compute", "push_next", "store", "pop_prev"),
    ("store", "push_prev", "compute", "pop_next"),
)


def config_of(**changes: Any) -> Config:
    return PRESETS["pynq"].with_overrides(changes)


def elaborated(records: list[Record], config: Config) -> Elaborated:
    dram = Dram([Segment("all", 0, np.zeros((1, 1 << 20), np.uint8))])
    return elaborate(decode(encode(records, config), config), config, dram, BASES)


def traced(records: list[Record], config: Config, name: str = "tilewright") -> Trace:
    program = elaborated(records, config)
    return MODELS[name].trace(program, order(program.table))


def unit_of(record: Record) -> str:
    if record["opcode"] == Opcode.STORE:
        return "store"
    load = record["opcode"] == Opcode.LOAD and record["memory_type"] in (Memory.INP, Memory.WGT)
    return "load" if load else "compute"


def random_program(rng: np.random.Generator, count: int) -> list[Record]:
    """Loads, stores, GEMMs and ALU operations of random sizes; tokens are pushed before they are popped."""
    records, waiting, size = [], [0] * 4, int(rng.choice([2, 6, 40]))
    for _ in range(count):
        kind = int(rng.integers(0, 9))
        record: Record = {}
        if kind < 6:
            memory = [Memory.UOP, Memory.INP, Memory.INP, Memory.WGT, Memory.ACC, Memory.OUT][kind]
            tiles = 1 + int(rng.integers(0, max(1, size // 6 if memory == Memory.WGT else size)))
            record = {"opcode": Opcode.STORE if memory == Memory.OUT else Opcode.LOAD, "memory_type": memory}
            record |= {"x_size": tiles if rng.random() < 0.85 else 0, "y_size": int(rng.integers(1, 4))}
            record |= {"x_stride": tiles + int(rng.integers(0, 9)), "dram_base": int(rng.integers(0, 200))}
            if memory != Memory.OUT and rng.random() < 0.3:
                for key in ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1"):
                    record[key] = int(rng.integers(0, 16)) * int(rng.random() < 0.5)
        elif kind < 8:
            record = {"opcode": Opcode.GEMM if kind == 6 else Opcode.ALU, "uop_end": int(rng.integers(1, 4))}
            record |= {"iter_out": int(rng.integers(1, 5)), "iter_in": int(rng.integers(1, 5))}
            if kind == 7:
                record |= {"use_imm": int(rng.integers(0, 2))}
        else:
            record = {"opcode": Opcode.FINISH}
        for queue, (producer, push, consumer, pop) in enumerate(TOKENS):
            if consumer == unit_of(record) and waiting[queue] and rng.random() < 0.6:
                record[pop], waiting[queue] = 1, waiting[queue] - 1
            if producer == unit_of(record) and rng.random() < 0.4:
                record[push], waiting[queue] = 1, waiting[queue] + 1
        records.append(record)
    return records


def gemm(uops: int, **fields: int) -> Record:
    return {"opcode": Opcode.GEMM, "uop_end": 1, "iter_out": 1, "iter_in": uops} | fields


def alu(uops: int, imm: int = 1) -> Record:
    return {**gemm(uops), "opcode": Opcode.ALU, "use_imm": imm}


def alone(record: Record, name: str = "hls", **changes: Any) -> int:
    """Cycles from the start of the only instruction to its end."""
    trace = traced([record], config_of(**changes), name)
    return int(trace.end[0] - trace.start[0])
