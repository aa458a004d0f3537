"""Build instruction streams for the runtime and the compiler: instructions with tokens, NOPs, and micro-op lists.

Tokens follow the rules of upstream's InsnQueue (TVM vta/runtime/runtime.cc). If possible, the last instruction pushes a
token, and the next instruction of the target unit pops the token. Otherwise a NOP pushes or pops the token.
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
from tilewright.targets.vta.isa.fields import COMMON, INSN_BYTES, MEM, Fields, Link, Memory, Opcode, Stream, Uops
from tilewright.targets.vta.isa.stream import decode, encode_uops, groups

#: The column of each field in a row of InstructionBuffer; all formats share the first COMMON_SIZE columns.
COLUMN = {field.name: index for index, field in enumerate((*COMMON, *MEM))}
COMMON_SIZE = len(COMMON)
X_SIZE = COLUMN["x_size"]
TRANSFERS = (Opcode.LOAD, Opcode.STORE)
#: No padding: y_pad_0, y_pad_1, x_pad_0, x_pad_1.
NO_PADS = (0, 0, 0, 0)


class Loop(NamedTuple):
    """A loop around micro-ops with `extent` iterations, each of which adds dst, src and wgt to the tile indices."""

    extent: int
    dst: int
    src: int
    wgt: int = 0


ONCE = Loop(1, 0, 0, 0)


class InstructionBuffer:
    """Instructions in stream order, for units given by number. Methods that add an instruction return its index."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.pipeline = config.pipeline
        self.rows: list[list[int]] = []  # opcode, token bits, then the fields of the format
        self.units: list[int] = []
        self._pending: list[list[int]] = [[] for _ in self.pipeline.units]  # columns of the pop bits, by unit

    @classmethod
    def of(cls, code: Raw, config: Config) -> InstructionBuffer:
        """Decode encoded instructions, uint8 [n, 16]. Raises ProgramError if the machine lacks an instruction."""
        buffer = cls(config)
        stream = decode(code, config)
        buffer.rows = [[] for _ in code]
        buffer.units = config.pipeline.units_of(stream).tolist()
        for _, layout, mine in groups(stream.opcode, config):
            for row, values in zip(mine.tolist(), layout.values(code[mine]).T.tolist(), strict=True):
                buffer.rows[row] = values
        return buffer

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def pending(self) -> bool:
        """Whether a recorded pop of a token still waits for its instruction."""
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
        """Add a LOAD or STORE of `shape` (rows, tiles per row), from SRAM tile `base` and DRAM tile `address` on."""
        return self._add([opcode, 0, 0, 0, 0, memory, base, address, *shape, stride, *pads], memory)

    def load_uops(self, memory: Memory, base: int, address: int, count: int) -> int:
        """Add a LOAD of `count` micro-ops into UOP or ALU_UOP, as one row, the only form that HLS supports."""
        return self.transfer(Opcode.LOAD, memory, base, address, (1, count), count)

    def gemm(self, uops: range, outer: Loop, inner: Loop, reset: bool = False) -> int:
        factors = (outer.dst, inner.dst, outer.src, inner.src, outer.wgt, inner.wgt)
        loops = (uops.start, uops.stop, outer.extent, inner.extent)
        return self._add([Opcode.GEMM, 0, 0, 0, 0, int(reset), *loops, *factors])

    def alu(self, op: AluOp, uops: range, outer: Loop, inner: Loop, imm: int | None, reset: bool = False) -> int:
        """Add an ALU instruction. The second operand is `imm`, or acc[src] if `imm` is None.

        REQ instead reads the memory par; each outer iteration adds `outer.wgt` to the index of its factors. The bit
        `reset` has no effect.
        """
        field = outer.wgt if op == AluOp.REQ else imm or 0
        return self.operate(op, uops, outer, inner, imm is not None, field, reset)

    def operate(
        self, opcode: int, uops: range, outer: Loop, inner: Loop, use_imm: bool, imm: int, reset: bool = False
    ) -> int:
        """Add an ALU instruction of any opcode, with the fields `use_imm` and `imm`."""
        factors = (outer.dst, inner.dst, outer.src, inner.src)
        loops = (uops.start, uops.stop, outer.extent, inner.extent)
        return self._add([Opcode.ALU, 0, 0, 0, 0, int(reset), *loops, *factors, opcode, int(use_imm), imm])

    def finish(self) -> int:
        return self._add([Opcode.FINISH, 0, 0, 0, 0])

    def dep_push(self, source: int, target: int) -> None:
        """Let unit `source` push a token to unit `target` after its instructions recorded so far.

        If the last instruction belongs to `source` and its push bit is free, this instruction pushes the token;
        otherwise a NOP does. As upstream, a LOAD with x_size 0 does not count as an instruction of `source`.
        """
        push = COLUMN[self._link(source, target, "dep_push").push]
        self.commit(source)
        last = self.rows[-1] if self.rows else None
        empty = last is not None and last[0] == Opcode.LOAD and not last[X_SIZE]
        # Like upstream, only the last instruction of the stream is considered.
        if last is None or self.units[-1] != source or empty or last[push]:
            self._nop(source)
        self.rows[-1][push] = 1

    def dep_pop(self, source: int, target: int) -> None:
        """Let the next instruction of `target` pop a token of `source`. A NOP first takes such a pending pop."""
        pop = COLUMN[self._link(source, target, "dep_pop").pop]
        if pop in self._pending[target]:
            self.commit(target)
        self._pending[target].append(pop)

    def commit(self, unit: int) -> None:
        """If pops are recorded for the next instruction of `unit`, add a NOP with these pops."""
        if self._pending[unit]:
            self._nop(unit)

    def drain(self) -> None:
        """Pass tokens from every unit to the unit of FINISH, so that FINISH waits for all. No pop stays pending."""
        # Tokens pass from both ends of the pipeline to the unit of FINISH. This unit's two pops come last, so that one
        # NOP is enough for both.
        home = self.pipeline.home
        path = self.pipeline.path
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
        """Return an independent copy, pending pops included."""
        copied = InstructionBuffer(self.config)
        copied.rows = [list(row) for row in self.rows]
        copied.units = list(self.units)
        copied._pending = [list(pops) for pops in self._pending]
        return copied

    def encode(self) -> Raw:
        """Return the encoded instructions, uint8 [n, 16]. Raises ProgramError if a value does not fit its field."""
        code = np.zeros((len(self.rows), INSN_BYTES), np.uint8)
        for _, layout, mine in groups(np.array([row[0] for row in self.rows], np.int64), self.config):
            values = np.array([self.rows[row] for row in mine.tolist()], np.int64).reshape(-1, len(layout.fields))
            code[mine] = layout.encode(dict(zip(layout.by_name, values.T, strict=True)), mine)
        return code

    def stream(self, index: Array, bits: Array) -> Stream:
        """Return the decoded instructions `index` [n] with token bits `bits` [4, n]. Only `encode` checks values."""
        opcode = np.array([row[0] for row in self.rows], np.int64)
        parts: dict[str, Fields] = {}
        common = np.zeros((COMMON_SIZE, len(opcode)), np.int64)
        for name, layout, mine in groups(opcode, self.config):
            values = np.array([self.rows[row] for row in mine.tolist()], np.int64).reshape(-1, len(layout.fields)).T
            # All formats begin with the same fields: the opcode and the token bits.
            common[:, mine] = values[:COMMON_SIZE]
            columns = np.zeros((len(layout.fields) - COMMON_SIZE, len(opcode)), np.int64)
            columns[:, mine] = values[COMMON_SIZE:]
            parts[name] = Fields(zip(list(layout.by_name)[COMMON_SIZE:], columns[:, index], strict=True))
        pop_prev, pop_next, push_prev, push_next = common[1:, index] | bits
        tokens = pop_prev, pop_next, push_prev, push_next
        return Stream(common[0, index], *tokens, parts["mem"], parts["gemm"], parts["alu"])

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
            queues = ", ".join(f"{names[a]}->{names[b]}" for a, b in self.pipeline.links)
            where = f"{call}({names[source]}, {names[target]})"
            raise ProgramError(where, "there is no such token queue", f"this machine has {queues}")
        return link


def serial(recorded: InstructionBuffer) -> InstructionBuffer:
    """Return the instructions with new tokens that force stream order, and FINISH at the end.

    Upstream's runtime does not order a load after a store, because no queue joins their units. Here, a NOP of each unit
    in between passes the token on. Recorded NOPs are omitted.
    """
    ordered = InstructionBuffer(recorded.config)
    finish = [int(Opcode.FINISH), *[0] * (COMMON_SIZE - 1)]
    for row in (*recorded.rows, finish):
        # A transfer without tiles and padding is a NOP.
        if row[0] in TRANSFERS and not row[X_SIZE] and not any(row[X_SIZE + 2 :]):
            continue  # a NOP
        memory = row[COMMON_SIZE] if row[0] in TRANSFERS else 0
        unit = ordered.pipeline.unit_of(row[0], memory)
        path = ordered.pipeline.path(ordered.units[-1], unit) if len(ordered) else ()
        for source, target in pairwise(path):
            ordered.rows[-1][COLUMN[ordered.pipeline.links[source, target].push]] = 1
            ordered.dep_pop(source, target)
            if target != unit:
                ordered.commit(target)
        ordered._add([row[0], *[0] * (COMMON_SIZE - 1), *row[COMMON_SIZE:]], memory)
    return ordered


class UopLists:
    """The distinct micro-op lists of a launch, ordered in DRAM by first use. List i begins at micro-op `offsets[i]`."""

    def __init__(self) -> None:
        self.offsets = [0]
        self._index: dict[bytes, int] = {}
        self._parts: list[Array] = []

    def add(self, listed: bytes) -> int:
        """Return the number of a micro-op list; a new list is added. `listed`: bytes of int64 [3, m]: dst, src, wgt."""
        index = self._index.get(listed)
        if index is None:
            index = self._index[listed] = self._append(np.frombuffer(listed, np.int64).reshape(3, -1))
        return index

    def reserve(self, count: int) -> int:
        """Add a list of `count` micro-ops whose contents are not known yet (zeros), and return its number."""
        return self._append(np.zeros((3, count), np.int64))

    def _append(self, part: Array) -> int:
        self._parts.append(part)
        self.offsets.append(self.offsets[-1] + part.shape[1])
        return len(self._parts) - 1

    def encode(self, config: Config) -> Raw:
        """Return the encoded micro-ops of all lists, uint8 [m, 4]. Raises ProgramError if an index does not fit."""
        return encode_uops(Uops(*np.concatenate([np.zeros((3, 0), np.int64), *self._parts], axis=1)), config)


#: A rule for the lists that one LOAD fetches: (offsets, number of the missing list, cache depth) -> end (exclusive).
Policy = Callable[[Sequence[int], int, int], int]


def alone(offsets: Sequence[int], index: int, depth: int) -> int:
    """Return the end of the lists to fetch (exclusive). As in upstream, only the missing list `index` is fetched."""
    return index + 1


def ahead(offsets: Sequence[int], index: int, depth: int) -> int:
    """Return the end of the lists to fetch (exclusive): the missing list `index`, and some of the next lists."""
    # If the lists of the whole program fit the cache of `depth` micro-ops, all later lists are fetched. Otherwise lists
    # are fetched up to a quarter of the cache.
    share = depth if offsets[-1] <= depth else max(1, depth // 4)
    last = index + 1
    while last + 1 < len(offsets) and offsets[last + 1] - offsets[index] <= share:
        last += 1
    return last


class UopCache:
    """The micro-op lists in an on-chip cache of `depth` micro-ops. `load(base, offset, count)` emits a LOAD.

    A missing list is loaded at a circular write pointer, together with the next lists that `policy` selects.
    Overwritten lists are evicted.
    """

    def __init__(
        self, offsets: Sequence[int], depth: int, load: Callable[[int, int, int], object], policy: Policy
    ) -> None:
        self._offsets = offsets
        self._depth = depth
        self._load = load
        self._policy = policy
        self._base: dict[int, int] = {}
        self._write = 0

    def find(self, index: int) -> range:
        """Return the range of cache indices of list `index`. If the list is missing, load the list first."""
        if index not in self._base:
            start = self._offsets[index]
            last = self._policy(self._offsets, index, self._depth)
            count = self._offsets[last] - start
            # A list is never split. If a list does not fit after the write pointer, the list starts at 0.
            base = self._write if self._write + count <= self._depth else 0
            for cached, at in list(self._base.items()):
                size = self._offsets[cached + 1] - self._offsets[cached]
                # The LOAD overwrites each list that overlaps the new range.
                if at < base + count and base < at + size:
                    del self._base[cached]
            self._load(base, start, count)
            for cached in range(index, last):
                self._base[cached] = base + self._offsets[cached] - start
            self._write = base + count
        base = self._base[index]
        return range(base, base + self._offsets[index + 1] - self._offsets[index])

    def places(self, indices: Sequence[int]) -> tuple[int, ...] | None:
        """Return the cache index of each list's first micro-op, or None if one of the lists is not in the cache."""
        bases = [self._base.get(index, -1) for index in indices]
        return None if -1 in bases else tuple(bases)
