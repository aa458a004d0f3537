"""Streams as the runtime records and the compiler emits them: instructions with tokens and NOPs, and micro-op lists.

Tokens follow the rules of upstream's InsnQueue (TVM vta/runtime/runtime.cc): a push goes onto the last instruction
where that is possible, a pop waits for the next instruction of its unit, and NOPs carry what finds no place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.program.instruction import Raw
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.fields import COMMON, INSN_BYTES, MEM, Memory, Opcode
from tilewright.targets.vta.isa.stream import Link, Uops, encode_uops, groups

#: Columns of a row; the first are common to all formats.
COLUMN = {field.name: index for index, field in enumerate((*COMMON, *MEM))}
COMMON_SIZE, X_SIZE = len(COMMON), COLUMN["x_size"]
TRANSFERS = (Opcode.LOAD, Opcode.STORE)
#: y_pad_0, y_pad_1, x_pad_0, x_pad_1.
NO_PADS = (0, 0, 0, 0)


class Loop(NamedTuple):
    """A loop around micro-ops: `extent` rounds that move the tile indices by so much each."""

    extent: int
    dst: int
    src: int
    wgt: int = 0


ONCE = Loop(1, 0, 0, 0)


class InstructionBuffer:
    """Instructions in stream order; units are numbers along the pipeline.

    What adds an instruction returns its row; `encode` gives the code of all.
    """

    def __init__(self, config: Config) -> None:
        self.config, self.pipeline = config, config.pipeline
        self.rows: list[list[int]] = []  # opcode, token bits, then the fields of the format
        self.units: list[int] = []
        self._pending: list[list[int]] = [[] for _ in self.pipeline.units]  # columns of the pop bits, by unit

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def pending(self) -> bool:
        """Whether a pop still waits for an instruction."""
        return any(self._pending)

    def transfer(
        self,
        opcode: Opcode,
        memory: Memory,
        base: int,
        address: int,
        shape: tuple[int, int],
        stride: int,
        pads: tuple[int, int, int, int] = NO_PADS,
    ) -> int:
        """LOAD or STORE of `shape` (rows, tiles a row), from SRAM tile `base` and DRAM tile `address` on."""
        return self._add([opcode, 0, 0, 0, 0, memory, base, address, *shape, stride, *pads], memory)

    def load_uops(self, memory: Memory, base: int, address: int, count: int) -> int:
        """LOAD of `count` micro-ops into UOP or ALU_UOP; one row, as HLS has no other."""
        return self.transfer(Opcode.LOAD, memory, base, address, (1, count), count)

    def gemm(self, uops: range, outer: Loop, inner: Loop, reset: bool = False) -> int:
        factors = (outer.dst, inner.dst, outer.src, inner.src, outer.wgt, inner.wgt)
        loops = (uops.start, uops.stop, outer.extent, inner.extent)
        return self._add([Opcode.GEMM, 0, 0, 0, 0, int(reset), *loops, *factors])

    def alu(self, op: AluOp, uops: range, outer: Loop, inner: Loop, imm: int | None, reset: bool = False) -> int:
        """`imm` None: the second operand is acc[src], or par's, whose factors move by `outer.wgt` (REQ).

        `reset` is a bit without effect.
        """
        factors = (outer.dst, inner.dst, outer.src, inner.src)
        loops = (uops.start, uops.stop, outer.extent, inner.extent)
        operand = (op, int(imm is not None), outer.wgt if op == AluOp.REQ else imm or 0)
        return self._add([Opcode.ALU, 0, 0, 0, 0, int(reset), *loops, *factors, *operand])

    def finish(self) -> int:
        return self._add([Opcode.FINISH, 0, 0, 0, 0])

    def push_from(self, row: int, target: int) -> None:
        """Instruction `row` pushes a token to `target` when it is done; its bit must be free."""
        push = COLUMN[self._link(self.units[row], target, "push").push]
        assert not self.rows[row][push], f"instruction {row} already pushes to {self.pipeline.units[target]}"
        self.rows[row][push] = 1

    def dep_push(self, source: int, target: int) -> None:
        """Push a token after what is recorded: on the last instruction if it is `source`'s and its bit is free.

        Otherwise a NOP of `source` pushes it. LOADs that move nothing do not count as `source`'s (upstream).
        """
        push = COLUMN[self._link(source, target, "dep_push").push]
        self.commit(source)
        last = self.rows[-1] if self.rows else None
        empty = last is not None and last[0] == Opcode.LOAD and not last[X_SIZE]
        if last is None or self.units[-1] != source or empty or last[push]:
            self._nop(source)
        self.rows[-1][push] = 1

    def dep_pop(self, source: int, target: int) -> None:
        """The next instruction of `target` pops a token of `source`; a second such pop sends a NOP ahead."""
        pop = COLUMN[self._link(source, target, "dep_pop").pop]
        if pop in self._pending[target]:
            self.commit(target)
        self._pending[target].append(pop)

    def commit(self, unit: int) -> None:
        """Pops of `unit` that still wait for an instruction become a NOP's."""
        if self._pending[unit]:
            self._nop(unit)

    def drain(self) -> None:
        """Tokens from every unit to that of FINISH, which thereby follows all that is recorded; no pop stays."""
        home, path = self.pipeline.home, self.pipeline.path
        last: list[tuple[int, int]] = []
        for end in (len(self.pipeline.units) - 1, 0):
            units = path(end, home)
            for source, target in pairwise(units):
                self.dep_push(source, target)
                if target == home:
                    last.append((source, target))
                else:
                    self.dep_pop(source, target)
        for source, target in last:
            self.dep_pop(source, target)
        self.commit(home)

    def copy(self) -> InstructionBuffer:
        """An independent copy, pending pops included."""
        other = InstructionBuffer(self.config)
        other.rows, other.units = [list(row) for row in self.rows], list(self.units)
        other._pending = [list(pops) for pops in self._pending]
        return other

    def encode(self) -> Raw:
        """uint8 [n, 16]. Raises ProgramError, naming the instruction, for a value that does not fit its field."""
        code = np.zeros((len(self.rows), INSN_BYTES), np.uint8)
        for _, layout, mine in groups(np.array([row[0] for row in self.rows], np.int64), self.config):
            values = np.array([self.rows[row] for row in mine.tolist()], np.int64).reshape(-1, len(layout.fields))
            code[mine] = layout.encode(dict(zip(layout.by_name, values.T, strict=True)), mine)
        return code

    def _add(self, row: list[int], memory: int = 0) -> int:
        unit = self.pipeline.unit_of(row[0], memory)
        pending = self._pending[unit]
        if pending:
            for pop in pending:
                row[pop] = 1
            pending.clear()
        self.rows.append(row)
        self.units.append(unit)
        return len(self.rows) - 1

    def _nop(self, unit: int) -> int:
        return self.transfer(*self.pipeline.nops[unit], 0, 0, (0, 0), 0)

    def _link(self, source: int, target: int, call: str) -> Link:
        link = self.pipeline.links.get((source, target))
        if link is None:
            names = self.pipeline.units
            known = ", ".join(f"{names[a]}->{names[b]}" for a, b in self.pipeline.links)
            where = f"{call}({names[source]}, {names[target]})"
            raise ProgramError(where, "there is no such token queue", f"there are {known}")
        return link


def serial(recorded: InstructionBuffer) -> InstructionBuffer:
    """The same instructions, each after the one before it: tokens set anew, FINISH at the end.

    Upstream's rewriting gives no order where a load follows a store, which have no queue; here a NOP of each unit
    between them passes the token on. NOPs that were recorded are left out.
    """
    made = InstructionBuffer(recorded.config)
    finish = [int(Opcode.FINISH), *[0] * (COMMON_SIZE - 1)]
    for row in (*recorded.rows, finish):
        if is_nop(row):
            continue
        memory = row[COMMON_SIZE] if row[0] in TRANSFERS else 0
        unit = made.pipeline.unit_of(row[0], memory)
        path = made.pipeline.path(made.units[-1], unit) if len(made) else ()
        for source, target in pairwise(path):
            made.push_from(len(made) - 1, target)
            made.dep_pop(source, target)
            if target != unit:
                made.commit(target)
        made._add([row[0], *[0] * (COMMON_SIZE - 1), *row[COMMON_SIZE:]], memory)
    return made


def is_nop(row: Sequence[int]) -> bool:
    """Whether a row of the buffer carries tokens only."""
    return row[0] in TRANSFERS and not row[X_SIZE] and not any(row[X_SIZE + 2 :])


class UopLists:
    """Distinct micro-op lists in the order of their first use, which is their order in DRAM.

    `offsets[i]`..`offsets[i + 1]` is list i, counted in micro-ops.
    """

    def __init__(self) -> None:
        self.offsets = [0]
        self._index: dict[bytes, int] = {}
        self._parts: list[Array] = []

    def add(self, listed: bytes) -> int:
        """The number of a list, the bytes of int64 [3, m]: tile indices of dst, src and wgt. Equal lists are one."""
        index = self._index.get(listed)
        if index is None:
            part = np.frombuffer(listed, np.int64).reshape(3, -1)
            index = self._index[listed] = len(self._parts)
            self._parts.append(part)
            self.offsets.append(self.offsets[-1] + part.shape[1])
        return index

    def reserve(self, count: int) -> int:
        """The number of a list of so many micro-ops that is not known yet."""
        self._parts.append(np.zeros((3, count), np.int64))
        self.offsets.append(self.offsets[-1] + count)
        return len(self._parts) - 1

    def encode(self, config: Config) -> Raw:
        """uint8 [m, 4]. Raises ProgramError for an index that does not fit its field."""
        return encode_uops(Uops(*np.concatenate([np.zeros((3, 0), np.int64), *self._parts], axis=1)), config)


#: Which lists come with a missing one: (offsets, its number, depth of the buffer) -> one past the last.
Policy = Callable[[Sequence[int], int, int], int]


def alone(offsets: Sequence[int], index: int, depth: int) -> int:
    """The missing list only: upstream's runtime, which does not know what follows."""
    return index + 1


def ahead(offsets: Sequence[int], index: int, depth: int) -> int:
    """Those that follow it too, up to a quarter of the buffer; all of them where all fit: the compiler's."""
    share = depth if offsets[-1] <= depth else max(1, depth // 4)
    last = index + 1
    while last + 1 < len(offsets) and offsets[last + 1] - offsets[index] <= share:
        last += 1
    return last


class UopCache:
    """Lists in the buffer of `depth` micro-ops; `load(base, offset, count)` emits a LOAD.

    A missing list is written at a pointer that goes round, over whatever is there; `policy` says what comes with it.
    """

    def __init__(
        self, offsets: Sequence[int], depth: int, load: Callable[[int, int, int], object], policy: Policy
    ) -> None:
        self._offsets, self._depth, self._load, self._policy = offsets, depth, load, policy
        self._base: dict[int, int] = {}
        self._write = 0

    def find(self, index: int) -> range:
        """Where list `index` is in the buffer, after loading it if it is not there."""
        if index not in self._base:
            self._fetch(index)
        base = self._base[index]
        return range(base, base + self._offsets[index + 1] - self._offsets[index])

    def places(self, indices: Sequence[int]) -> tuple[int, ...] | None:
        """Where some lists start, None where one is not in the buffer."""
        found = [self._base.get(index, -1) for index in indices]
        return None if -1 in found else tuple(found)

    def _fetch(self, index: int) -> None:
        start, last = self._offsets[index], self._policy(self._offsets, index, self._depth)
        count = self._offsets[last] - start
        base = self._write if self._write + count <= self._depth else 0
        for other, at in list(self._base.items()):
            size = self._offsets[other + 1] - self._offsets[other]
            if at < base + count and base < at + size:
                del self._base[other]
        self._load(base, start, count)
        for other in range(index, last):
            self._base[other] = base + self._offsets[other] - start
        self._write = base + count
