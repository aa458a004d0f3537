"""Mutants of compiled launches: dependences and addresses broken on purpose, and what a check makes of them.

A mutant that is not reported has to be harmless: many legal orders of its instructions must leave the same bytes,
and those of the program as compiled, where only tokens were changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

from tests.targets.vta.records import records_of
from tilewright.array import Array
from tilewright.program.launch_image import LaunchImage
from tilewright.program.program import Launch
from tilewright.sim.findings import DEADLOCK, LEAK, OUT_OF_RANGE, RACE, STREAM, UNINITIALISED
from tilewright.sim.order import eager_sequence, random_sequence
from tilewright.sim.passes import RunOptions
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import UOP_MEMORIES, Fields, Memory, Opcode, Stream
from tilewright.targets.vta.isa.stream import decode, decode_uops, encode, encode_uops, image_of
from tilewright.targets.vta.passes import Prepared, run_passes
from tilewright.targets.vta.steps.moves import NOTHING
from tilewright.targets.vta.values.actions import Action
from tilewright.targets.vta.values.machine import Machine

#: Kinds of mutants. Those of TOKENS change no instruction's meaning.
TOKENS = ("one bit", "push and pop", "push earlier", "pop later")
ADDRESSES = ("sram base", "dram base", "micro-op")
KINDS = TOKENS + ADDRESSES
#: What may become of a mutant; a report by the first kind of finding in this order.
REPORTS = (DEADLOCK, LEAK, OUT_OF_RANGE, RACE, UNINITIALISED, STREAM)
HARMLESS, MISSED = "harmless", "MISSED"
SAMPLES, RANDOM_ORDERS = 3, 24
STATIC = RunOptions(values=False)

#: Kinds of findings of an instruction stream on an image.
Check = Callable[[Prepared], set[str]]


class Mutant(NamedTuple):
    kind: str
    note: str
    insns: Array
    uops: Array  # the segment of micro-ops


@dataclass(frozen=True, eq=False)
class Subject:
    """A launch to be broken: random inputs and weights, so that a wrong value shows."""

    name: str
    config: Config
    image: LaunchImage
    stream: Stream
    inputs: dict[str, Array]
    expected: tuple[bytes, ...]  # outputs of the launch as compiled

    @classmethod
    def of(cls, launch: Launch, config: Config, rng: np.random.Generator) -> Subject:
        image = image_of(launch)
        data = dict(image.data)
        data |= {name: rng.integers(0, 256, d.size, np.uint8) for name, d in data.items() if name.startswith("wgt")}
        image = replace(image, data=data)
        places = [place for place in image.segments if place.kind == "input"]
        inputs = {place.name: rng.integers(0, 256, (SAMPLES, place.size), np.uint8) for place in places}
        subject = cls(launch.name, config, image, decode(image.insns, config), inputs, ())
        passes = subject.passes(subject.unbroken)
        return replace(subject, expected=subject.execute(passes, passes.order.sequence))

    @property
    def queues(self) -> list[tuple[int, str, int, str]]:
        """The token queues: who pushes and who pops, by which bit."""
        last = len(self.config.pipeline.units) - 1
        forth = [(unit, "push_next", unit + 1, "pop_prev") for unit in range(last)]
        return forth + [(unit + 1, "push_prev", unit, "pop_next") for unit in range(last)]

    @property
    def unbroken(self) -> Mutant:
        return Mutant("none", "as compiled", self.image.insns, self.image.data["uop"])

    def passes(self, mutant: Mutant) -> Prepared:
        """The static passes, with the check."""
        image = replace(self.image, data={**self.image.data, "uop": mutant.uops})
        return run_passes(mutant.insns, self.config, image.dram({}, 1), image.bases, 1, STATIC)

    def execute(self, passes: Prepared, sequence: Array) -> tuple[bytes, ...]:
        """The output segments after the steps in some order, one by one."""
        program, actions = passes.elaborated, []
        for step in sequence.tolist():
            kernel, move = int(program.kernel[step]), program.moves.as_list[step]
            if kernel >= 0:
                actions.append(Action(program.kernels[kernel], f"#{step}", step in passes.stored_resets))
            elif move.memory not in (NOTHING, *UOP_MEMORIES):
                actions.append(Action(move, f"#{step}"))
        dram = self.image.dram({name: data.copy() for name, data in self.inputs.items()}, SAMPLES)
        Machine(self.config, dram, SAMPLES).run(actions)
        return tuple(dram[name].tobytes() for name in self.image.outputs)


def reported(passes: Prepared) -> set[str]:
    """The check as it is."""
    return {finding.kind for finding in passes.findings}


def verdict(subject: Subject, mutant: Mutant, check: Check = reported) -> str:
    """The first kind of REPORTS that the check finds; else HARMLESS, or MISSED where two legal orders differ."""
    passes = subject.passes(mutant)
    found = check(passes)
    for kind in REPORTS:
        if kind in found:
            return kind
    assert not found, found
    if not passes.order.complete:
        return MISSED
    results = iter_results(subject, passes)
    expected = subject.expected if mutant.kind in TOKENS else next(results)
    return HARMLESS if all(result == expected for result in results) else MISSED


def iter_results(subject: Subject, passes: Prepared) -> Iterator[tuple[bytes, ...]]:
    """Outputs under every fixed priority of the units, then under random legal orders."""
    table = passes.elaborated.table
    for priority in permutations(range(len(table.units))):
        yield subject.execute(passes, eager_sequence(table, passes.order, priority))
    for seed in range(RANDOM_ORDERS):
        yield subject.execute(passes, random_sequence(table, passes.order, seed))


def mutants(subject: Subject, rng: np.random.Generator, count: int, kinds: Sequence[str] = KINDS) -> Iterator[Mutant]:
    """`count` random mutants, kinds in turn; a kind that the launch has no place for is left out."""
    made = tried = 0
    while made < count and tried < 4 * count:
        kind = kinds[tried % len(kinds)]
        mutant = (_token if kind in TOKENS else _address)(kind, subject, rng)
        tried += 1
        if mutant is not None:
            made += 1
            yield mutant


def outcomes(
    subjects: Sequence[Subject], seed: int, each: int, check: Check = reported, kinds: Sequence[str] = KINDS
) -> Iterator[tuple[str, str, str]]:
    """Kind, verdict and a description of `as_list` mutants of every subject."""
    for number, subject in enumerate(subjects):
        rng = np.random.default_rng([seed, number])
        for mutant in mutants(subject, rng, each, kinds):
            yield mutant.kind, verdict(subject, mutant, check), f"{subject.name} [{seed}, {number}]: {mutant.note}"


def text(counts: Counter[tuple[str, str]]) -> str:
    """A table of kinds by verdicts."""
    columns = (*REPORTS, HARMLESS, MISSED)
    lines = [f"{'':14}" + "".join(f"{name:>14}" for name in columns)]
    lines += [f"{kind:14}" + "".join(f"{counts[kind, name]:14}" for name in columns) for kind in KINDS]
    return "\n".join([*lines, f"{counts.total()} mutants"])


def _token(kind: str, subject: Subject, rng: np.random.Generator) -> Mutant | None:
    stream = subject.stream
    producer, push, consumer, pop = subject.queues[int(rng.integers(len(subject.queues)))]
    on = subject.config.pipeline.units_of(stream)
    pushes = np.flatnonzero((on == producer) & (getattr(stream, push) == 1))
    pops = np.flatnonzero((on == consumer) & (getattr(stream, pop) == 1))
    if not pushes.size:
        return None
    k = int(rng.integers(len(pushes)))
    changes: list[tuple[str, int, int]]
    if kind == "one bit":
        changes = [(push, int(pushes[k]), 0) if rng.random() < 0.5 else (pop, int(pops[k]), 0)]
    elif kind == "push and pop":
        changes = [(push, int(pushes[k]), 0), (pop, int(pops[k]), 0)]
    else:
        name, unit, at = (push, producer, int(pushes[k])) if kind == "push earlier" else (pop, consumer, int(pops[k]))
        free = np.flatnonzero((on == unit) & (getattr(stream, name) == 0))
        free = free[free < at][::-1] if kind == "push earlier" else free[free > at]
        if not free.size:
            return None
        near = min(int(rng.geometric(0.3)), free.size) - 1
        changes = [(name, at, 0), (name, int(free[near]), 1)]
    columns: dict[str, Any] = {}
    for name, row, value in changes:
        columns[name] = columns.get(name, getattr(stream, name)).copy()
        columns[name][row] = value
    note = f"{kind}: " + ", ".join(f"{name} of #{row} = {value}" for name, row, value in changes)
    return Mutant(
        kind,
        note,
        encode(records_of(replace(stream, **columns), subject.config), subject.config),
        subject.image.data["uop"],
    )


def _address(kind: str, subject: Subject, rng: np.random.Generator) -> Mutant | None:
    stream, uops = subject.stream, subject.image.data["uop"]
    if kind == "micro-op":
        fields = decode_uops(uops.reshape(-1, 4), subject.config)
        name = ("dst", "src", "wgt")[int(rng.integers(3))]
        column, row = getattr(fields, name).copy(), int(rng.integers(len(fields.dst)))
        column[row] = _another(column, row, rng)
        note = f"{name} of micro-op {row} = {column[row]}"
        changed = encode_uops(fields._replace(**{name: column}), subject.config).reshape(-1)
        return Mutant(kind, note, subject.image.insns, changed)
    mem = stream.mem
    moving = ((stream.opcode == Opcode.LOAD) | (stream.opcode == Opcode.STORE)) & (mem.x_size > 0)
    rows = np.flatnonzero(moving & (~np.isin(mem.memory_type, UOP_MEMORIES)))
    row = int(rng.choice(rows))
    if kind == "sram base":
        name, live = "sram_base", mem.sram_base[rows[mem.memory_type[rows] == mem.memory_type[row]]]
        value = _another(np.append(live, mem.sram_base[row]), len(live), rng)
    else:  # the place of any other transfer, in tiles of this one's size
        tile = np.array([subject.config.dram_tile_bytes(Memory(int(m))) for m in mem.memory_type[rows]])
        mine = subject.config.dram_tile_bytes(Memory(int(mem.memory_type[row])))
        name, live = "dram_base", mem.dram_base[rows] * tile // mine
        value = _another(np.append(live, mem.dram_base[row]), len(live), rng)
    column = getattr(mem, name).copy()
    column[row] = value
    changed = encode(records_of(replace(stream, mem=Fields({**mem, name: column})), subject.config), subject.config)
    return Mutant(kind, f"{name} of #{row} = {value}", changed, uops)


def _another(column: Array, row: int, rng: np.random.Generator) -> int:
    """A value that others have, or one near by."""
    if rng.random() < 0.5:
        return int(rng.choice(column))
    return max(0, int(column[row]) + int(rng.choice([-16, -2, -1, 1, 2, 16])))
