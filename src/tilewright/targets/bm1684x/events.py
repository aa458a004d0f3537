"""Count the events of a launch: arithmetic by command, bytes of operands and results, and the rows of DDR.

A compute command reads each element of its operands once, and writes each element of its results once. An access
transfers at most `eu_bytes` bytes of a lane. Two figures are not published, and therefore marked as unknown: repeated
reads of operands by the cube, and the steps of divisions and functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil, prod, sqrt

import numpy as np

from tilewright.array import Array
from tilewright.sim.events import Access, Bursts, Events, Part, Work, rows_of
from tilewright.sim.steps import BASE, COUNT, LENGTH, SPACE, STRIDE, StepTable, Trace
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.elaborate import ElaboratedProgram
from tilewright.targets.bm1684x.isa.operation import Flow
from tilewright.targets.bm1684x.isa.operations import TIU
from tilewright.targets.bm1684x.layouts.tensor import Operand
from tilewright.targets.bm1684x.timing.estimate import macs

#: From kinds of integer arithmetic to kinds of float arithmetic. A comparison of floats counts as a comparison of
#: integers.
_FLOAT = {"add": "float_add", "multiply": "float_multiply"}


def events(program: ElaboratedProgram, config: Config, trace: Trace | None, samples: int) -> Events:
    """Return the events of a launch per sample (`samples`: the number of its samples).

    Bursts are in the order in which the commands start; without a trace, they are in program order.
    """
    commands = program.commands
    sums, others, unknown = _arithmetic(commands)
    read = 0 if trace is None else int(trace.bytes_read.sum())
    written = 0 if trace is None else int(trace.bytes_written.sum())
    missing = {
        "leakage, clock and control": "the commands do not determine them",
        "operands that the cube reads again": "not published: each operand counts once",
        "instruction fetch": "not published",
    }
    if unknown:
        missing["arithmetic of " + ", ".join(sorted(unknown))] = "the machine's sequence is not published"
    if trace is None:
        missing["DRAM bytes"] = "the launch was not timed"
    sequence = np.arange(len(commands)) if trace is None else np.argsort(trace.start, kind="stable")
    counted = Events(
        sums,
        others,
        (_local(commands, config),),
        read,
        written,
        (Bursts(_bursts(program.table, sequence)),),
        len(commands),
        trace.cycles * samples if trace else 0,
        missing,
    )
    return counted.per_sample(samples)


def _arithmetic(commands: Sequence[Command]) -> tuple[tuple[Work, ...], tuple[Work, ...], set[str]]:
    sums = Counter[tuple[str, tuple[Part, ...]]]()
    others = Counter[tuple[str, tuple[Part, ...]]]()
    unknown = set[str]()
    for command in commands:
        operation = command.operation
        if operation.engine != TIU:
            continue
        if operation.factor:
            sums[_macs(command)] += macs(command)
        elif operation.arithmetic is None:
            unknown.add(operation.name)
        elif operation.arithmetic:
            count = prod(command.results["y"].shape)
            if operation.flow is Flow.WINDOW:
                # a pool computes once per element of each window
                count *= prod(command.attributes["window"].kernel)
            others[_named(command, operation.arithmetic)] += count
    products, further = (
        tuple(Work(name, count, parts) for (name, parts), count in counts.items()) for counts in (sums, others)
    )
    return products, further, unknown


def _macs(command: Command) -> tuple[str, tuple[Part, ...]]:
    left, right = ("L", "R") if command.operation.flow is Flow.PRODUCT else ("x", "w")
    a, b = command.operands[left].dtype, command.operands[right].dtype
    real = a.is_float
    # If the factors differ in width, the multiplier counts as one for their geometric mean. Sums always have 32 bits.
    kinds = ("float_multiply", "float_add") if real else ("multiply", "add")
    label = f"{a}x{b}+{'f32' if real else '32'}"
    return label, (Part(kinds[0], sqrt(a.bits * b.bits)), Part(kinds[1], 32))


def _named(command: Command, kinds: tuple[str, ...]) -> tuple[str, tuple[Part, ...]]:
    dtype = max(command.types.values(), key=lambda dtype: dtype.bits)
    parts = tuple(Part(_FLOAT.get(kind, kind) if dtype.is_float else kind, dtype.bits) for kind in kinds)
    return f"{command.operation.name} {dtype}", parts


def _local(commands: Sequence[Command], config: Config) -> Access:
    def accesses(places: Mapping[str, Operand | Constant]) -> int:
        local = [place for place in places.values() if not isinstance(place, Constant) and place.storage.is_local]
        return sum(ceil(prod(place.shape) * place.dtype.bytes / config.eu_bytes) for place in local)

    reads = sum(accesses(command.operands) for command in commands)
    writes = sum(accesses(command.results) for command in commands)
    return Access("local memory", config.bank_bytes, 8 * config.eu_bytes, reads, writes)


def _bursts(table: StepTable, sequence: Array) -> Array:
    ddr = next((number for number, space in enumerate(table.spaces) if space.name == "DDR"), -1)
    footprints = [table.footprints.of_step(step) for step in table.footprint[sequence].tolist()]
    rows = np.concatenate([np.zeros((0, 6), np.int64), *footprints])
    rows = rows[rows[:, SPACE] == ddr]
    return rows_of(rows[:, BASE], rows[:, COUNT], rows[:, LENGTH], rows[:, STRIDE])
