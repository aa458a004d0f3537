"""The chisel timing model against a cycle-stepped reference (chisel_reference.py): every start and end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.targets.vta.chisel_reference import Machine, reference
from tilewright.sim.dram import Dram, Segment
from tilewright.sim.order import order
from tilewright.sim.trace import Trace
from tilewright.targets.vta import timing
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.elaborate import Elaborated, elaborate
from tilewright.targets.vta.isa.fields import Memory, Opcode
from tilewright.targets.vta.isa.stream import decode, encode

Record = dict[str, int]
BASES = {"uop": 0x10000, "inp": 0x20000, "wgt": 0x40000, "acc": 0x80000, "out": 0xC0000}
#: Queues in the order load->compute, compute->load, compute->store, store->compute: (pushes, bit), (pops, bit).
TOKENS = (
    ("load", "push_next", "compute", "pop_prev"),
    ("compute", "push_prev", "load", "pop_next"),
    ("compute", "push_next", "store", "pop_prev"),
    ("store", "push_prev", "compute", "pop_next"),
)
MACHINES: dict[str, dict[str, Any]] = {
    "64 bits": {},
    "128 bits": {"LOG_BUS_WIDTH": 7},
    "short bursts": {"TARGET": "de10nano"},
    "short bursts, slow": {"TARGET": "de10nano", "dram_latency": 40, "queue_depth": 3},
    "no delay": {"dram_latency": 0, "queue_depth": 2},
}


def config_of(**changes: Any) -> Config:
    return PRESETS["tsim"].with_overrides({"semantics": "chisel", **changes})


def elaborated(records: list[Record], config: Config) -> Elaborated:
    dram = Dram([Segment("all", 0, np.zeros((1, 1 << 20), np.uint8))])
    return elaborate(decode(encode(records, config), config), config, dram, BASES)


def traced(records: list[Record], config: Config, name: str = "chisel") -> Trace:
    program = elaborated(records, config)
    return timing.run(program, order(program.table), name)


def stepped(records: list[Record], config: Config) -> Machine:
    """The reference after its run."""
    machine = reference_of(records, config)
    machine.run()
    return machine


def reference_of(records: list[Record], config: Config) -> Machine:
    return reference(
        records,
        beat=config.bus_bits // 8,
        tile={int(memory): config.dram_tile_bytes(memory) for memory in Memory},
        bases={0: BASES["uop"], 1: BASES["wgt"], 2: BASES["inp"], 3: BASES["acc"], 4: BASES["out"]},
        len_bits=4 if config.TARGET == "de10nano" else 8,
        delay=config.dram_latency,
        depth=config.queue_depth,
    )


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


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("block", range(4))
def test_every_start_and_end_is_the_references(machine: str, block: int) -> None:
    config = config_of(**MACHINES[machine])
    for seed in range(25 * block, 25 * (block + 1)):
        rng = np.random.default_rng(seed)
        records = random_program(rng, int(rng.integers(1, 40)) if seed % 10 else 150)
        program = elaborated(records, config)
        relation = order(program.table)
        assert relation.complete
        expected = stepped(records, config)
        trace = timing.run(program, relation, "chisel")
        assert trace.start.tolist() == expected.start, f"seed {seed}"
        assert trace.end.tolist() == expected.end, f"seed {seed}"


@pytest.mark.parametrize("pushes", [255, 256])
def test_the_256th_token_is_lost_and_its_pop_waits_for_ever(pushes: int) -> None:
    slow: Record = {"opcode": Opcode.STORE, "memory_type": Memory.OUT, "x_size": 1000, "y_size": 1, "push_prev": 1}
    push: Record = {"opcode": Opcode.LOAD, "memory_type": Memory.INP, "push_next": 1}
    first, pop = ({"opcode": int(Opcode.FINISH), bit: 1} for bit in ("pop_next", "pop_prev"))
    config = config_of()
    records = [slow, *[push] * pushes, first, *[pop] * pushes]
    machine = reference_of(records, config)
    if pushes == 255:
        machine.run()
    else:
        with pytest.raises(AssertionError, match="hangs"):
            machine.run(limit=6000)
    program = elaborated(records, config)
    found = timing.lost(program, timing.run(program, order(program.table), "chisel"), "chisel")
    assert (len(machine.lost), len(found)) == ((0, 0) if pushes == 255 else (1, 1))
