"""Counted events against loops over every micro-op, every tile and every byte of random programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.dram import opened
from tests.targets.vta.interpreter import Interpreter, Record
from tests.targets.vta.records import ALU, ALU_UOP, GEMM, LOAD, MUL, OUT, STORE, UOP
from tests.targets.vta.streams import BASES, MACHINES, Case, dram_of, random_case
from tilewright import compile as compile_model
from tilewright.array import Array
from tilewright.model import inputs
from tilewright.sim.events import Events
from tilewright.sim.passes import RunOptions
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.events import events
from tilewright.targets.vta.isa.fields import Memory
from tilewright.targets.vta.isa.stream import encode
from tilewright.targets.vta.passes import prepare

#: The names of `touched` in the interpreter, and those of the counts.
CACHES = {f"cache{int(UOP)}": "uop", f"cache{int(ALU_UOP)}": "alu_uop"}


class Tally(Interpreter):
    """Executes records one at a time, and counts what each does. `moved` are the DRAM accesses: (address, bytes)."""

    def __init__(self, config: Config, case: Case) -> None:
        super().__init__(config, case.records, case.uops, case.dram[0].copy(), BASES)
        self.reads_of, self.writes_of, self.done = Counter[str](), Counter[str](), Counter[str]()
        self.moved: list[tuple[int, int]] = []
        self.bytes = Counter[str]()

    def count(self) -> None:
        for index, record in enumerate(self.records):
            self.run([index])
            reads, writes = self.touched[index]
            if record["opcode"] in (LOAD, STORE):
                names = [(name, self.writes_of) for name, _ in writes] + [(name, self.reads_of) for name, _ in reads]
                for name, counter in names:
                    if name != "DRAM":
                        counter[CACHES.get(name, name)] += 1
            elif record["opcode"] in (GEMM, ALU):
                self._one(record)

    def _bytes(self, memory: Memory, record: Record, y: int, x: int, touched: set[tuple[str, int]]) -> Array:
        found = super()._bytes(memory, record, y, x, touched)
        self.moved.append((found.__array_interface__["data"][0] - self.dram.__array_interface__["data"][0], found.size))
        self.bytes["written" if memory == OUT else "read"] += found.size
        return found

    def _load_uops(self, memory: Memory, record: Record) -> None:
        super()._load_uops(memory, record)
        for y in range(record.get("y_size", 0) if self.rules.full_loads else 1):
            for x in range(record.get("x_size", 0)):
                self.moved.append((BASES["uop"] + 4 * (record["dram_base"] + y * record.get("x_stride", 0) + x), 4))
                self.bytes["read"] += 4

    def _one(self, record: Record) -> None:
        """Count the micro-ops of a GEMM or ALU instruction, one at a time."""
        config, alu = self.config, record["opcode"] == ALU
        op, memory = config.opcodes[record.get("alu_opcode", 0)], "alu_uop" if alu and self.four else "uop"
        values, through = config.batch * config.block, not self.four and self.rules.out_memory
        listed, outer, inner = self.loops(record)
        for _ in range(outer):
            if alu and op == "req" and listed and inner:
                self.reads_of["par"] += 3
            for _ in range(inner):
                for _ in listed:
                    self.reads_of[memory] += 1
                    self.writes_of["acc"] += 1
                    if alu:
                        self.done[op] += values
                        self.reads_of["acc"] += 1 if op == "req" or record.get("use_imm") else 2
                        self.reads_of["par"] += op == "req"
                        self.writes_of["out"] += self.rules.out_memory
                    elif not record.get("reset_reg") or (through and self.rules.reset_writes_out):
                        for name in ("inp", "wgt", "acc"):
                            self.reads_of[name] += 1
                        self.writes_of["out"] += through
                        self.done["resets" if record.get("reset_reg") else "macs"] += values * config.block


def tallied(config: Config, case: Case) -> tuple[Events, Tally]:
    known = prepare(encode(case.records, config), config, dram_of(case), BASES, RunOptions(values=False))
    tally = Tally(config, case)
    tally.count()
    return events(known.elaborated, None), tally


def cases(seed: int, config: Config, count: int) -> Iterator[Case]:
    rng = np.random.default_rng(seed)
    print(f"seed {seed}")
    for _ in range(count):
        case = random_case(rng, config, 1)
        for record in case.records:  # two rows of micro-ops may not fit behind `sram_base`
            if record["opcode"] == LOAD and record["memory_type"] == UOP:
                record["y_size"] = min(record["y_size"], 1)
        yield case


@pytest.mark.parametrize("name", MACHINES)
def test_counts_equal_loops_over_every_micro_op(name: str) -> None:
    config = MACHINES[name]
    for case in cases(1910, config, 12):
        found, tally = tallied(config, case)
        for access in found.accesses:
            if access.memory != "command queues":
                counts = tally.reads_of[access.memory], tally.writes_of[access.memory]
                assert (access.reads, access.writes) == counts, access
        macs = [tally.done["macs"], *([tally.done["resets"]] if tally.done["resets"] else [])]
        assert [work.count for work in found.macs] == macs
        assert {work.name.split()[0]: work.count for work in found.operations} == {
            name: count for name, count in tally.done.items() if name not in ("macs", "resets")
        }
        assert found.read_bytes == tally.bytes["read"] + 16 * len(case.records)
        assert found.write_bytes == tally.bytes["written"]
        assert found.instructions == len(case.records)
        for row_bytes, banks in ((64, 1), (256, 4), (1024, 8)):
            fetched = opened([(0, 16 * len(case.records))], row_bytes, banks)
            assert found.activations(row_bytes, banks) == opened(tally.moved, row_bytes, banks) + fetched


def test_every_memory_and_operation_is_counted() -> None:
    """The random programs reach each count, so that the comparison above compares something."""
    config, seen = MACHINES["four, fused"], Counter[str]()
    for case in cases(1910, config, 12):
        found, _ = tallied(config, case)
        for access in found.accesses:
            seen[f"{access.memory} read"] += access.reads
            seen[f"{access.memory} written"] += access.writes
        seen.update({work.name.split()[0]: work.count for work in found.operations})
    assert all(seen.values()), seen
    assert {op.name.lower() for op in config.alu_ops if op != MUL} <= seen.keys()


def test_a_run_has_the_bytes_of_its_trace() -> None:
    """The events of compiled programs have the DRAM bytes, cycles and MACs that the report shows."""
    program = compile_model(ROOT / "examples" / "digits" / "digits.tflite", "vta")
    assert program.graph is not None
    result = program.run(inputs.random(program.graph).values)
    energy = result.energy()
    assert energy is not None
    layers = result.layers
    assert energy.events.read_bytes == sum(layer.dram_read_bytes for layer in layers)
    assert energy.events.write_bytes == sum(layer.dram_write_bytes for layer in layers)
    assert energy.events.cycles == result.cycles
    assert energy.events.macs[0].count == result.executed_macs
