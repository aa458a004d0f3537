"""Random instruction streams on three and four stages and every ALU against an interpreter written apart.

Values are compared in the order of the stream and in random legal ones, findings with a brute-force search for
touches that no chain of tokens orders.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.targets.vta.interpreter import (
    ACC,
    ACC_8BIT,
    ADD,
    ALU,
    ALU_UOP,
    FINISH,
    GEMM,
    INP,
    LOAD,
    MULH,
    OUT,
    PAR,
    REQ,
    RSHR,
    SHR,
    STORE,
    UOP,
    WGT,
    Interpreter,
    Record,
    divide_by_pot,
    high_mul,
    operate,
    requantise,
    unit_of,
)
from tilewright.array import Array
from tilewright.sim.dram import Dram, Segment
from tilewright.sim.findings import LEAK, RACE, UNINITIALISED
from tilewright.targets.base import RunOptions
from tilewright.targets.vta import machine
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.isa.fields import AluOp
from tilewright.targets.vta.isa.stream import encode
from tilewright.targets.vta.kernel import AluKernel, Loop
from tilewright.targets.vta.passes import run_passes, sequence

INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
BASES = {"uop": 0x1000, "inp": 0x2000, "wgt": 0x4000, "acc": 0x6000, "out": 0x8000}
END = 0xA000
#: Tiles of each memory in DRAM.
IN_DRAM = 24


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
    "rounding": small(1, 2, alu="rounding"),
    "fused": small(0, 3, alu="fused"),
    "fused, batch 4": small(2, 1, alu="fused"),
    "four": small(1, 2, stages=4, acc_banks=4),
    "four, one bank": small(0, 2, stages=4, acc_banks=1),
    "four, fused": small(0, 2, stages=4, alu="fused"),
    "four, fused, batch 4": small(2, 2, stages=4, alu="fused", acc_banks=8),
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
    if config.alu == "fused":
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
    a = config.acc.depth.bit_length() - 1
    s = max(a, config.inp.depth.bit_length() - 1)
    packed = uops[:, 0] | uops[:, 1] << a | uops[:, 2] << (a + s)
    dram[:, BASES["uop"] : BASES["uop"] + 4 * len(uops)] = packed.astype(np.uint32).view(np.uint8)
    return dram


def uop_load(config: Config, memory: int, first: int, count: int) -> Record:
    return {"opcode": LOAD, "memory_type": memory, "dram_base": first, "y_size": 1, "x_size": count}


def reload_uops(rng: np.random.Generator, config: Config) -> Record:
    memory = int(rng.choice([UOP, ALU_UOP] if config.stages == 4 else [UOP]))
    count = int(rng.integers(0, 5))
    first = int(rng.integers(0, config.uop.depth - count))
    base = int(rng.integers(0, config.sram(config.memories[0] if memory == UOP else config.memories[6]).depth - count))
    return uop_load(config, memory, first, count) | {"sram_base": base, "y_size": int(rng.integers(0, 3))}


def move(rng: np.random.Generator, config: Config) -> Record:
    memories = [INP, INP, WGT, ACC, ACC, ACC_8BIT, OUT] + ([PAR] * 3 if config.alu == "fused" else [])
    memory = int(rng.choice(memories))
    rows, columns = int(rng.integers(0, 3)), int(rng.integers(0, 3))
    record = {"opcode": LOAD, "memory_type": memory, "y_size": rows, "x_size": columns}
    if rng.random() < 0.4:
        record |= {name: int(rng.integers(0, 2)) for name in ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")}
    chip = {INP: config.inp, WGT: config.wgt, PAR: config.par}.get(memory, config.acc)
    tiles = (rows + record.get("y_pad_0", 0) + record.get("y_pad_1", 0)) * (
        columns + record.get("x_pad_0", 0) + record.get("x_pad_1", 0)
    )
    if tiles > chip.depth:
        return move(rng, config)
    record["x_stride"] = int(rng.integers(0, 6))
    record["dram_base"] = int(rng.integers(0, IN_DRAM - 8))
    return record | {"sram_base": int(rng.integers(0, chip.depth - tiles + 1))}


def store(rng: np.random.Generator, config: Config) -> Record:
    rows, columns = int(rng.integers(0, 3)), int(rng.integers(0, 3))
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
    op = int(rng.choice([op for op in config.alu_ops if op != AluOp.MUL]))
    record = {"opcode": ALU, **loops(rng, min(config.uop.depth, config.alu_uop.depth)), "alu_opcode": op}
    record["uop_end"] = max(record["uop_end"], record["uop_bgn"] + (op == REQ))
    for name, depth in (("dst", config.acc.depth), ("src", config.par.depth if op == REQ else config.acc.depth)):
        record |= {f"{name}_factor_{loop}": factor(rng, depth) for loop in ("out", "in")}
    if op == REQ:  # wgt fields are below half of par
        return record | {"imm": int(rng.integers(0, max(1, config.par.depth // 2 - 2))), "use_imm": 0}
    imm = int(rng.choice([rng.integers(-40, 40), rng.integers(-(1 << 15), 1 << 15), -(1 << 15)]))
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


def before(config: Config, records: list[Record]) -> list[int]:
    """For each instruction the set (bit mask) of those that surely end first: program order and tokens."""
    units = [unit_of(record, config.stages) for record in records]
    queues: dict[tuple[int, int], list[int]] = {}
    last: dict[int, int] = {}
    known: list[int] = []
    for index, (record, unit) in enumerate(zip(records, units, strict=True)):
        givers = [last[unit]] if unit in last else []
        for other, pop in ((unit - 1, "pop_prev"), (unit + 1, "pop_next")):
            if record.get(pop):
                givers.append(queues[other, unit].pop(0))
        known.append(0)
        for giver in givers:
            known[index] |= known[giver] | 1 << giver
        for other, push in ((unit - 1, "push_prev"), (unit + 1, "push_next")):
            if record.get(push):
                queues.setdefault((unit, other), []).append(index)
        last[unit] = index
    return known


def races(config: Config, case: Case, oracle: Interpreter) -> set[tuple[int, int]]:
    """Pairs of instructions that touch one element, one writing, in no order."""
    known, touched, found = before(config, case.records), oracle.touched, set()
    units = [unit_of(record, config.stages) for record in case.records]
    for b, (reads_b, writes_b) in touched.items():
        for a in range(b):
            reads_a, writes_a = touched[a]
            clash = writes_a & (reads_b | writes_b) or reads_a & writes_b
            if clash and units[a] != units[b] and not known[b] >> a & 1:
                found.add((a, b))
    return found


def interpret(config: Config, case: Case, order: Array) -> list[Interpreter]:
    """One interpreter a sample, after the run."""
    samples = []
    for dram in case.dram:
        samples.append(Interpreter(config, case.records, case.uops, dram.copy(), BASES))
        samples[-1].run(order.tolist())
    return samples


def dram_of(case: Case) -> Dram:
    """Segments by register, once where all samples have the same."""
    edges = [*BASES.items(), ("end", END)]
    segments = []
    for (name, low), (_, high) in zip(edges, edges[1:], strict=False):
        constant = bool((case.dram[:, low:high] == case.dram[0, low:high]).all())
        data = case.dram[: 1 if constant else None, low:high]
        segments.append(Segment(name, low, np.ascontiguousarray(data), True, shared=constant))
    return Dram(segments)


def check_case(config: Config, case: Case, rng: np.random.Generator) -> int:
    """Values in three orders, and findings; returns how many races there are."""
    count = len(case.records)
    raw, samples = encode(case.records, config), len(case.dram)
    oracle = interpret(config, case, np.arange(count))
    expected = races(config, case, oracle[0])
    for order, seed in (("stream", 0), ("random", int(rng.integers(1000))), ("random", int(rng.integers(1000)))):
        dram = dram_of(case)
        options = RunOptions(order=order, seed=seed)
        passes = run_passes(raw, config, dram, BASES, samples, replace(options, values=False))
        found = [finding for finding in passes.findings if finding.kind == RACE]
        assert {tuple(sorted(finding.steps)) for finding in found} <= expected
        assert bool(found) == bool(expected)
        assert {f.kind for f in passes.findings} <= {RACE, UNINITIALISED, LEAK, "stream"}
        steps = sequence(passes, options)
        state = machine.Machine(config, dram, samples)
        state.run(passes.actions(options))
        oracle = interpret(config, case, steps)
        for sample, result in enumerate(oracle):
            np.testing.assert_array_equal(state.acc[sample], result.acc, err_msg=f"acc, {order} {seed}")
            for name, base in BASES.items():
                held = dram[name][sample if dram[name].shape[0] > 1 else 0]
                np.testing.assert_array_equal(held, result.dram[base : base + held.size], err_msg=f"DRAM {name}")
    return len(expected)


@pytest.mark.parametrize("name", MACHINES)
def test_random_streams(name: str) -> None:
    clean = 0
    for seed in range(12):
        print("machine", name, "seed", seed)
        rng = np.random.default_rng([seed, *name.encode()])
        case = random_case(rng, MACHINES[name], samples=int(rng.integers(1, 4)))
        clean += not check_case(MACHINES[name], case, rng)
    assert 0 < clean < 12  # both kinds of programs came up


@pytest.mark.slow
@pytest.mark.parametrize("name", MACHINES)
def test_many_random_streams(name: str) -> None:
    for seed in range(100, 300):
        print("machine", name, "seed", seed)
        rng = np.random.default_rng([seed, *name.encode()])
        check_case(MACHINES[name], random_case(rng, MACHINES[name], samples=2), rng)


EDGES = (INT_MIN, INT_MIN + 1, -(1 << 30), -3, -2, -1, 0, 1, 2, 3, 12345, 1 << 30, INT_MAX - 1, INT_MAX)
FUSED = MACHINES["fused"]


def alu_kernel(op: int, imm: int | None) -> AluKernel:
    one = np.zeros(1, np.int64)
    return AluKernel(Loop(0, 1, 1, 1, (0, 0), (0, 0)), AluOp(op), imm, one, one)


@pytest.mark.parametrize("op", [MULH, RSHR, SHR, ADD])
def test_operations_on_edges(op: int) -> None:
    pairs = np.array(list(product(EDGES, (*EDGES, 16, 30, 31, 32, 33, -31, -32, -33))), np.int64)
    a, b = pairs.T.astype(np.int32)
    got = machine.operate(alu_kernel(op, None), a, b, FUSED).astype(np.int32)
    np.testing.assert_array_equal(got, [operate(op, x, y, False) for x, y in pairs.tolist()])
    for imm in (-(1 << 15), -33, -32, -31, -16, -1, 0, 1, 15, 16, 30, 31, 32, (1 << 15) - 1):
        got = machine.operate(alu_kernel(op, imm), a, np.array(imm, np.int32), FUSED).astype(np.int32)
        np.testing.assert_array_equal(got, [operate(op, x, imm, True) for x, _ in pairs.tolist()], err_msg=str(imm))


def test_ties_of_the_rounding_shift_go_away_from_zero() -> None:
    assert [divide_by_pot(x, 1) for x in (-3, -1, 1, 3)] == [-2, -1, 1, 2]
    assert [divide_by_pot(x, 31) for x in (INT_MIN, -(1 << 30), 1 << 30, INT_MAX)] == [-1, -1, 1, 1]
    assert high_mul(1 << 30, 1) == 1 and high_mul(-(1 << 30), 1) == 0  # those of the product go upwards
    assert high_mul(INT_MIN, INT_MIN) == INT_MAX


def test_requantisation_on_edges() -> None:
    """Shifts 0 and 31, left shifts that wrap, biases that wrap, zero points and bounds of all signs."""
    rng = np.random.default_rng(3)
    count = 4000
    acc, bias, multiplier = (
        np.where(rng.random(count) < 0.5, rng.choice(EDGES, count), rng.integers(INT_MIN, INT_MAX, count))
        for _ in range(3)
    )
    left, right = (rng.choice([0, 1, 7, 20, 30, 31], count) for _ in range(2))
    zero_point, low, high = (rng.choice([-32768, -128, -1, 0, 5, 127, 32767], count) for _ in range(3))
    scaling = left | right << 8 | zero_point << 16
    bounds = (low & 0xFFFF) | high << 16
    words = [values.astype(np.int32) for values in (acc, bias, multiplier, scaling, bounds)]
    got = machine.requantise(words[0].reshape(1, 1, 1, -1), *(word.reshape(1, 1, 1, -1) for word in words[1:]))
    expected = [requantise(*(int(word[i]) for word in words)) for i in range(count)]
    np.testing.assert_array_equal(got.reshape(-1), expected)
    assert len({low > high for low, high in zip(low.tolist(), high.tolist(), strict=True)}) == 2
