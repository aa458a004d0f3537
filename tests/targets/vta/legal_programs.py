"""Random legal VTA programs: any legal stream order, tokens few or many, queues deep or shallow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.targets.vta.interpreter import Element, Interpreter
from tests.targets.vta.legality import BITS, Program, before, conflicts, faults, stores, tokens
from tests.targets.vta.records import ACC, ALU, ALU_UOP, FINISH, INP, LOAD, PAR, UOP, WGT, unit_of
from tests.targets.vta.streams import BASES, IN_DRAM, alu, gemm, memory, move, reload_uops, small, store, uop_load
from tilewright.targets.vta.config import Config

#: Three and four stages, deep and shallow queues.
MACHINES: dict[str, Config] = {
    "deep": small(0, 2),
    "two tokens": small(0, 2, token_depth=2, queue_depth=8),
    "one token": small(1, 2, token_depth=1, queue_depth=5, dram_latency=2),
    "one token, fused": small(0, 2, alu="fused", token_depth=1, LOG_BUS_WIDTH=7),
    "four": small(0, 2, stages=4, acc_banks=4, queue_depth=6),
    "four, one token": small(0, 2, stages=4, acc_banks=2, token_depth=1, dram_latency=40),
    "four, fused, two tokens": small(1, 1, stages=4, alu="fused", acc_banks=4, token_depth=2, queue_depth=4),
}


def legal_program(rng: np.random.Generator, config: Config) -> Program:
    """A random legal program: the first of random ones of which the oracle has nothing to say."""
    while True:
        program = loosened(rng, written(rng, config))
        for _ in range(4):
            shuffled = interleaved(rng, program)
            if not faults(shuffled):
                return shuffled


def written(rng: np.random.Generator, config: Config) -> Program:
    """Random instructions whose stream is an order in which all they read is written; as many tokens as fit."""
    listed = {"dst": config.acc.depth, "src": min(config.inp.depth, config.par.depth), "wgt": config.wgt.depth}
    if config.has_parameters:
        listed["wgt"] = min(listed["wgt"], config.par.depth)
    uops = np.stack([rng.integers(0, listed[name] // 2, config.uop.depth) for name in ("dst", "src", "wgt")], axis=1)
    uops[0] = 0  # from where a loop reaches every tile of acc
    bases = dict(BASES)
    if rng.random() < 0.4:  # what is stored may be loaded again
        tile = config.inp.tile_bytes
        bases["out"] = bases["inp"] + tile * int(rng.integers(0, IN_DRAM))
    program = Program(config, [], uops, memory(rng, config, 1, uops)[0], bases)
    ready: set[Element] = set()
    draft = Interpreter(config, program.records, uops, program.dram.copy(), bases)
    fills = [uop_load(config, UOP, 0, config.uop.depth)]
    if config.stages == 4:
        fills.append(uop_load(config, ALU_UOP, 0, config.alu_uop.depth))
    chips = {INP: config.inp, WGT: config.wgt, ACC: config.acc} | ({PAR: config.par} if config.has_parameters else {})
    often = rng.choice([0.8, 1.0])
    for kind, chip in chips.items():
        if rng.random() < often:
            whole = {"memory_type": kind, "y_size": 1, "x_size": chip.depth, "x_stride": chip.depth}
            fills.append({"opcode": LOAD, **whole})
    whole = {"uop_end": 1, "iter_out": 1, "iter_in": config.acc.depth, "dst_factor_in": 1, "src_factor_in": 1}
    fills.append({"opcode": ALU, **whole, "use_imm": 1, "imm": 1, "alu_opcode": int(rng.integers(0, 3))})
    makers = [move, move, move, gemm, gemm, alu, alu, store, store, reload_uops]
    drawn = [makers[rng.integers(len(makers))](rng, config) for _ in range(int(rng.integers(4, 40)))]
    for record in [*fills, *drawn]:
        program.records.append(record)
        draft.run([len(program.records) - 1])
        reads, writes = draft.touched[len(program.records) - 1]
        if all(element in ready or element[0] == "DRAM" for element in reads):
            ready |= writes
        else:
            program.records.pop()
    program.records.append({"opcode": FINISH})
    _add_tokens(program)
    return program


def _add_tokens(program: Program) -> None:
    """Each record waits for the last one of each neighbour, where no earlier one of its unit does."""
    units = [unit_of(record, program.config.stages) for record in program.records]
    last: dict[int, int] = {}
    given: dict[tuple[int, int], int] = {}
    for index, unit in enumerate(units):
        for step, (push, pop) in BITS.items():
            giver = last.get(unit - step, -1)
            if giver > given.get((unit - step, unit), -1):
                program.records[giver][push] = program.records[index][pop] = 1
                given[unit - step, unit] = giver
        last[unit] = index


def loosened(rng: np.random.Generator, program: Program) -> Program:
    """The program without some tokens that it does not need, and with some more that wait in their queues for long."""
    program = replace(program, records=[dict(record) for record in program.records])
    records, units = program.records, [unit_of(record, program.config.stages) for record in program.records]
    pairs = conflicts(program, program.interpret(range(len(records))).touched)
    pairs += [(index, len(records) - 1) for index in stores(program)]

    def change(a: int, b: int, value: int) -> None:
        """Set or clear the bits of a token from record a to b, unless what depends on it would be in no order."""
        push, pop = BITS[units[b] - units[a]]
        records[a][push] = records[b][pop] = value
        known = before(program)
        if not all(known[later] >> earlier & 1 for earlier, later in pairs):
            records[a][push] = records[b][pop] = 1 - value

    for _ in range(int(rng.choice([0, 5, 40]))):
        found = tokens(program)
        if found:
            a, b = found[int(rng.integers(len(found)))]
            change(a, b, 0)
    for _ in range(int(rng.choice([0, 5, 40]))):
        a, b = sorted(rng.integers(0, len(records), 2).tolist())
        step = units[b] - units[a]
        if step in BITS and not records[a].get(BITS[step][0]) and not records[b].get(BITS[step][1]):
            change(a, b, 1)
    return program


def interleaved(rng: np.random.Generator, program: Program) -> Program:
    """The same records of each unit in the same order, in another stream order or in their own."""
    units = np.array([unit_of(record, program.config.stages) for record in program.records])
    kind, count = rng.random(), len(units)
    if kind < 0.25:
        keys = np.arange(count, dtype=np.float64)
    elif kind < 0.35:  # unit by unit
        keys = rng.permutation(program.config.stages)[units] * 1.0
    else:  # each unit a random stretch earlier or later
        keys = np.arange(count) + rng.choice([2, 8, 20]) * rng.normal(size=program.config.stages)[units]
        keys += rng.normal(size=count) * rng.choice([0, 3])
    for unit in range(program.config.stages):
        keys[units == unit] = np.sort(keys[units == unit])
    order = np.argsort(keys, kind="stable").tolist()
    return replace(program, records=[program.records[index] for index in order])
