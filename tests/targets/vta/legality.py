"""An oracle that says which VTA programs are legal, whatever the order of their stream.

It shares no code with the package. It knows the units, the token bits and the depths of command and token
queues, and takes what each instruction touches from `interpreter`. A program is legal when it ends whatever its
instructions take, leaves no token, stays in its memories, and touches nothing in no order or before it is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations, pairwise

from tests.targets.vta.interpreter import Element, Interpreter, Record
from tests.targets.vta.records import ALU_UOP, FINISH, STORE, UOP, unit_of
from tests.targets.vta.streams import END
from tilewright.array import Array
from tilewright.targets.vta.config import Config

#: By direction along the pipeline: the bit that pushes, and the bit that pops at the other end.
BITS = {1: ("push_next", "pop_prev"), -1: ("push_prev", "pop_next")}
#: Touched elements of each instruction: (read, written).
Touched = dict[int, tuple[set[Element], set[Element]]]


@dataclass(frozen=True, eq=False)
class Program:
    """`records` in stream order; `uops` int64 [m, 3], `dram` uint8 [END] and `bases` as Interpreter takes them."""

    config: Config
    records: list[Record]
    uops: Array
    dram: Array
    bases: dict[str, int]

    def interpret(self, order: Iterable[int]) -> Interpreter:
        """The interpreter after it has run the records in an order."""
        ran = Interpreter(self.config, self.records, self.uops, self.dram.copy(), self.bases)
        ran.run(order)
        return ran


def queues(program: Program) -> list[tuple[list[int], list[int]]]:
    """The records that push into each token queue, and those that pop from it, in order."""
    units = in_units(program)
    found = []
    for producer, records in enumerate(units):
        for step, (push, pop) in BITS.items():
            if 0 <= producer + step < len(units):
                pushes = [index for index in records if program.records[index].get(push)]
                found.append((pushes, [index for index in units[producer + step] if program.records[index].get(pop)]))
    return found


def tokens(program: Program) -> list[tuple[int, int]]:
    """The records that push and pop each token: queues are FIFOs."""
    return [pair for pushes, pops in queues(program) for pair in zip(pushes, pops, strict=False)]


def ancestors(count: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """For each node the nodes (a bit mask) from which a path leads to it; a node on a cycle is its own ancestor."""
    known, pending = [0] * count, list(edges)
    changed = True
    while changed:
        changed = False
        for a, b in pending:
            more = known[b] | known[a] | 1 << a
            changed |= more != known[b]
            known[b] = more
    return known


def in_units(program: Program) -> list[list[int]]:
    """The records of each unit, in order."""
    lists: list[list[int]] = [[] for _ in range(program.config.stages)]
    for index, record in enumerate(program.records):
        lists[unit_of(record, program.config.stages)].append(index)
    return lists


def before(program: Program) -> list[int]:
    """For each record those that surely end before it starts, as a bit mask."""
    edges = [*tokens(program), *(pair for unit in in_units(program) for pair in pairwise(unit))]
    return ancestors(len(program.records), edges)


def stuck(program: Program, held: bool) -> bool:
    """Whether the queues' depths or the tokens stop the program for ever.

    Delivery, start and end of each record are events. Commands are delivered in stream order, one when its queue has a
    place: the record so many before it in its unit has started, or with `held` has ended. A record ends when there is
    room for its tokens, which the start of a popping record makes. What waits for itself in a circle never comes.
    """
    config, count = program.config, len(program.records)
    deliver, start, end = range(count), range(count, 2 * count), range(2 * count, 3 * count)
    edges = [*pairwise(deliver), *zip(deliver, start, strict=True), *zip(start, end, strict=True)]
    for unit in in_units(program):
        edges += [(end[a], start[b]) for a, b in pairwise(unit)]
        leaves = end if held else start
        edges += [(leaves[a], deliver[b]) for a, b in zip(unit, unit[config.queue_depth :], strict=False)]
    for pushes, pops in queues(program):
        late = pushes[config.token_depth :]
        if len(pops) > len(pushes) or len(late) > len(pops):
            return True
        edges += [(end[a], start[b]) for a, b in zip(pushes, pops, strict=False)]
        edges += [(start[pop], end[push]) for push, pop in zip(late, pops, strict=False)]
    known = ancestors(3 * count, edges)
    return any(known[node] >> node & 1 for node in range(3 * count))


def conflicts(program: Program, touched: Touched) -> list[tuple[int, int]]:
    """Records of different units that touch one element, one of them writing."""
    units = [unit_of(record, program.config.stages) for record in program.records]
    found = []
    for a, b in combinations(range(len(units)), 2):
        if units[a] != units[b]:
            (reads_a, writes_a), (reads_b, writes_b) = touched[a], touched[b]
            if not (writes_a.isdisjoint(writes_b) and writes_a.isdisjoint(reads_b) and reads_a.isdisjoint(writes_b)):
                found.append((a, b))
    return found


def faults(program: Program) -> list[str]:
    """What makes a program illegal; empty: nothing."""
    if any(len(pushes) != len(pops) for pushes, pops in queues(program)):
        return ["a token has one end"]
    if stuck(program, held=True):
        return ["deadlock"]
    known = before(program)
    touched = program.interpret(legal_order(known)).touched
    found = ["race"] * any(not (known[a] >> b & 1 or known[b] >> a & 1) for a, b in conflicts(program, touched))
    written_by: dict[Element, int] = {}
    for index, (_, writes) in touched.items():
        for element in writes:
            written_by[element] = written_by.get(element, 0) | 1 << index
    for index, (reads, writes) in touched.items():
        if any(name != "DRAM" and not known[index] & written_by.get((name, at), 0) for name, at in reads):
            found.append("uninitialised")
        if any(not 0 <= at < room(program.config, name) for name, at in reads | writes):
            found.append("out of range")
    finish = [index for index, record in enumerate(program.records) if record["opcode"] == FINISH]
    last = in_units(program)[unit_of({"opcode": FINISH}, program.config.stages)][-1:]
    if finish != last or not all(known[finish[0]] >> index & 1 for index in stores(program)):
        found.append("finish")
    return found


def stores(program: Program) -> list[int]:
    """The STOREs that move something, for which FINISH has to wait."""
    records = enumerate(program.records)
    return [index for index, record in records if record["opcode"] == STORE and record["x_size"] * record["y_size"]]


def room(config: Config, name: str) -> int:
    """Elements of a memory as the interpreter names it."""
    chips = {"inp": config.inp, "wgt": config.wgt, "acc": config.acc, "out": config.out, "par": config.par}
    chips |= {f"cache{UOP}": config.uop, f"cache{ALU_UOP}": config.alu_uop}
    return END if name == "DRAM" else config.acc_banks if name == "acc bank" else chips[name].depth


def legal_order(known: list[int]) -> list[int]:
    """The records so that each comes after its ancestors, of which it has more than any of them."""
    return sorted(range(len(known)), key=lambda index: known[index].bit_count())


def pops_first(program: Program) -> bool:
    """Whether some record pops what a later one of the stream pushes."""
    return any(b < a for a, b in tokens(program))


def runs_one_by_one(program: Program) -> bool:
    """Whether the records can run in stream order, each to its end: tokens are there and have room."""
    held: dict[tuple[int, int], int] = {}
    for record in program.records:
        unit = unit_of(record, program.config.stages)
        for step, (push, pop) in BITS.items():
            if record.get(pop):
                held[unit - step, unit] = held.get((unit - step, unit), 0) - 1
            if record.get(push):
                held[unit, unit + step] = held.get((unit, unit + step), 0) + 1
        if not all(0 <= count <= program.config.token_depth for count in held.values()):
            return False
    return True
