"""What LOAD and STORE move: the one reading of their fields that footprints, time and values share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tilewright.array import Array, among
from tilewright.program.instruction import Column
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import UOP_MEMORIES, Memory, Opcode
from tilewright.targets.vta.isa.semantics import SEMANTICS
from tilewright.targets.vta.isa.stream import Stream

NOTHING = -1
#: The control register with the base address of each memory id.
REGISTER_OF = ("uop", "wgt", "inp", "acc", "out", "acc", "uop", "acc")


class Move(NamedTuple):
    """One row of Moves, in plain integers."""

    memory: int
    base: int
    top: int
    bottom: int
    left: int
    right: int
    rows: int
    columns: int
    address: int
    row_bytes: int
    stride: int

    @property
    def height(self) -> int:
        return self.top + self.rows + self.bottom

    @property
    def width(self) -> int:
        return self.left + self.columns + self.right

    @property
    def end(self) -> int:
        """One past the last tile on chip."""
        return self.base + self.height * self.width


@dataclass(frozen=True, eq=False)
class Moves:
    """int64 [n] columns; all but `memory` are 0 for what moves nothing.

    `memory` is a Memory or NOTHING. On chip: from tile `base`, rows of left + columns + right tiles, `top` and
    `bottom` rows of padding around `rows` of data. In DRAM: `rows` of `row_bytes` from byte `address`, `stride`
    bytes apart; row_bytes is 0 where only padding is written.
    """

    memory: Column
    base: Column
    top: Column
    bottom: Column
    left: Column
    right: Column
    rows: Column
    columns: Column
    address: Column
    row_bytes: Column
    stride: Column

    @cached_property
    def tiles(self) -> Column:
        """Tiles touched on chip, padding included."""
        return (self.top + self.rows + self.bottom) * (self.left + self.columns + self.right)

    @cached_property
    def transfers(self) -> Array:
        """Whether anything passes the DRAM port: bool [n]."""
        return (self.rows > 0) & (self.row_bytes > 0)

    @cached_property
    def of_uops(self) -> Array:
        """Whether micro-ops are loaded, which are control state: bool [n]."""
        return among(self.memory, UOP_MEMORIES)

    @cached_property
    def each(self) -> list[Move]:
        """The rows one by one, for what is done one by one."""
        return self.of(np.arange(len(self.memory)))

    def of(self, steps: Array) -> list[Move]:
        """Some rows one by one."""
        columns = (getattr(self, name)[steps].tolist() for name in Move._fields)
        return list(map(Move._make, zip(*columns, strict=True)))


def moves(stream: Stream, config: Config, bases: Mapping[str, int]) -> Moves:
    """The moves of a stream; `bases` are the byte addresses in the control registers."""
    rules, mem = SEMANTICS[config.semantics], stream.mem
    store, load = stream.opcode == Opcode.STORE, stream.opcode == Opcode.LOAD
    memory = np.where(store, int(Memory.OUT), np.where(load, mem.memory_type, NOTHING))
    memory = np.where(load & (memory == Memory.OUT), NOTHING, memory)
    if not rules.loads_acc_8bit or (config.acc.width, config.inp.width) != (32, 8):  # fsim aborts on other widths
        memory = np.where(memory == Memory.ACC_8BIT, NOTHING, memory)
    if not rules.empty_loads_pad:
        memory = np.where(mem.x_size == 0, NOTHING, memory)
    active = memory != NOTHING
    pads = load & active & (rules.full_loads | among(memory, (Memory.INP, Memory.ACC)))
    one_row = among(memory, UOP_MEMORIES) & (not rules.full_loads)
    tile = np.array([config.dram_tile_bytes(item) for item in Memory] + [0], np.int64)[memory]
    base = np.array([bases[name] for name in REGISTER_OF] + [0], np.int64)[memory]

    def where(mask: Array, column: Array) -> Column:
        return np.where(mask, column, 0).astype(np.int64)

    return Moves(
        memory=memory.astype(np.int64),
        base=where(active, mem.sram_base),
        top=where(pads, mem.y_pad_0),
        bottom=where(pads, mem.y_pad_1),
        left=where(pads, mem.x_pad_0),
        right=where(pads, mem.x_pad_1),
        rows=where(active, np.where(one_row, 1, mem.y_size)),
        columns=where(active, mem.x_size),
        address=where(active, base + mem.dram_base * tile),
        row_bytes=where(active, mem.x_size * tile),
        stride=where(active, mem.x_stride * tile),
    )
