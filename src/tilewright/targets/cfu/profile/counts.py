"""The counters of a run as columns, one row an instruction that was executed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.targets.cfu.isa.table import CUSTOM, Role
from tilewright.targets.cfu.rv32.core import Run
from tilewright.targets.cfu.rv32.decode import IMM, RD, RS1
from tilewright.targets.cfu.rv32.ops import BRANCHES, DIVIDES, LOADS, MULTIPLIES, STORES, Op
from tilewright.targets.cfu.rv32.state import Cause

#: Categories, in the order of a report. Every cycle is in one of them.
ARITHMETIC, CONTROL, MEMORY, FETCH = "CPU arithmetic", "CPU control", "memory", "instruction fetch"
OTHER_CUSTOM, DEVICES = "other custom instructions", "devices and CSRs"
CATEGORIES = (ARITHMETIC, CONTROL, MEMORY, FETCH, *(str(role) for role in Role), OTHER_CUSTOM, DEVICES)

#: Causes whose cycles belong to one category, whatever instruction waits; the others to that of the instruction.
OF_CAUSE = {
    Cause.LOAD_USE: MEMORY,
    Cause.RESULT_USE: ARITHMETIC,
    Cause.FETCH: FETCH,
    Cause.DEVICE: DEVICES,
    Cause.SYSTEM: DEVICES,
}


@dataclass(frozen=True, eq=False)
class Counts:
    """Columns: address, packed instruction, executions and cycles, int64 [n]; cycles and events by cause [n, causes].

    `category` [n, causes + 1] is the index in CATEGORIES of the cycles of each cause and, last, of the instruction.
    """

    address: Array
    insn: Array
    executed: Array
    cycles: Array
    lost: Array
    times: Array
    category: Array

    def by_category(self) -> dict[str, int]:
        """Cycles of each category, those that took any."""
        cycles = np.concatenate([self.lost, self.executed[:, None]], axis=1)
        sums = np.bincount(self.category.ravel(), cycles.ravel(), minlength=len(CATEGORIES))
        return {name: int(value) for name, value in zip(CATEGORIES, sums, strict=True) if value}


def counts(run: Run) -> Counts:
    """The instructions of `run` that were executed or waited."""
    m = run.machine
    used = np.flatnonzero((run.executed > 0) | m.lost.any(axis=1))
    own = np.array([CATEGORIES.index(_category(m.code, int(i))) for i in used], np.int64)
    category = np.repeat(own[:, None], len(Cause) + 1, axis=1)
    for cause, name in OF_CAUSE.items():
        category[:, cause] = CATEGORIES.index(name)
    lost = m.lost[used]
    _waits_for_cfu(m.code, used, category)
    return Counts(
        address=m.base + 4 * used,
        insn=m.code[used],
        executed=run.executed[used],
        cycles=run.executed[used] + lost.sum(axis=1),
        lost=lost,
        times=m.times[used],
        category=category,
    )


def _category(code: Array, index: int) -> str:
    """What an instruction is there for. A branch on the answer of a polling instruction is part of the waiting."""
    insn = int(code[index])
    op = Op(insn & 255)
    if op == Op.CUSTOM0:
        known = CUSTOM.get(insn >> IMM >> 3)
        return str(known.role) if known else OTHER_CUSTOM
    if op in LOADS | STORES:
        return MEMORY
    if op in BRANCHES:
        polls = _polled(code, index)
        return str(Role.WAIT) if polls else CONTROL
    if op in (Op.JAL, Op.JALR):
        return CONTROL
    return ARITHMETIC if op <= Op.REMU or op in MULTIPLIES | DIVIDES else DEVICES


def _polled(code: Array, index: int) -> bool:
    """Whether the instruction before is a check whose answer this branch tests."""
    before, insn = int(code[index - 1]) if index else 0, int(code[index])
    if before & 255 != Op.CUSTOM0 or (before >> IMM >> 3) != 3:
        return False
    return before >> RD & 255 in (insn >> RS1 & 255, insn >> 24 & 255)


def _waits_for_cfu(code: Array, used: Array, category: Array) -> None:
    """Cycles that an instruction waits for the CFU's answer count as the instruction's that was asked."""
    for row, index in enumerate(used.tolist()):
        for before in (index - 1, index - 2):
            if before >= 0 and int(code[before]) & 255 == Op.CUSTOM0:
                category[row, Cause.CFU_USE] = CATEGORIES.index(_category(code, before))
                break
