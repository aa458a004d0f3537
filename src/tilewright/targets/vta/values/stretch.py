"""Stretches of short instructions: which they are, and the tables by which `loop.run` executes them.

What the loop does not know ends a stretch, and so does a large instruction: both are left to Machine's array forms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tilewright.array import Array, among
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import UOP_MEMORIES, AluOp, Memory
from tilewright.targets.vta.isa.semantics import SEMANTICS
from tilewright.targets.vta.steps.elaborate import Elaborated
from tilewright.targets.vta.steps.micro_kernel import AluKernel, GemmKernel
from tilewright.targets.vta.steps.moves import NOTHING, Move
from tilewright.targets.vta.values import loop
from tilewright.targets.vta.values.actions import Action, actions

#: Nanoseconds that the loop takes for each multiply-accumulate, and for each value that is moved or that the ALU
#: changes; and microseconds that the array forms take for any instruction. Measured with 1 to 16 samples.
MAC_NS, VALUE_NS, ARRAYS_US = 0.35, 2, 10
#: Steps in a stretch: fewer are not worth a call, the tables of more leave the caches. And in all stretches of a
#: program, at least: compiled networks have a few hundred, not worth a compiler.
SHORTEST, LONGEST, ENOUGH = 64, 1 << 15, 1000

_OPS = {
    AluOp.MIN: loop.MIN,
    AluOp.MAX: loop.MAX,
    AluOp.ADD: loop.SUM,
    AluOp.SHR: loop.SHIFT,
    AluOp.MUL: loop.PRODUCT,
}
_TO = {Memory.INP: loop.TO_INP, Memory.WGT: loop.TO_WGT, Memory.ACC: loop.TO_ACC, Memory.ACC_8BIT: loop.TO_ACC}
_SILENT = (NOTHING, *UOP_MEMORIES)  # tokens only, or control state
#: In the loop GEMM writes the out memory: of three stages.
STAGES = 3


@dataclass(frozen=True, eq=False)
class Stretch:
    """The steps `numbers` int64 [n], in this order; `stored` as `stored_resets` finds them."""

    program: Elaborated
    numbers: Array
    stored: Mapping[int, Array]

    @cached_property
    def actions(self) -> tuple[Action, ...]:
        """The stretch for Machine's array forms."""
        return actions(self.program, self.numbers, self.stored)

    @cached_property
    def table(self) -> Table:
        """The stretch for the loop."""
        program, moved, numbers = self.program, self.program.moves, self.numbers
        numbers = numbers[(program.kernel[numbers] >= 0) | ~among(moved.memory[numbers], _SILENT)]
        used, kernel = np.unique(np.append(program.kernel[numbers], -1), return_inverse=True)
        kernel = kernel.reshape(-1)[:-1] - 1
        kinds, kernels, tiles = _kernels([program.kernels[index] for index in used[1:].tolist()], program.config)
        kind = np.where(moved.memory[numbers] == Memory.OUT, loop.STORE, loop.LOAD)
        kind = np.where(kernel >= 0, np.append(kinds, 0)[kernel], kind)
        if SEMANTICS[program.config.semantics].reset_writes_out:
            kind[np.isin(numbers, list(self.stored))] = loop.RESET_OUT
        column = {name: getattr(moved, name)[numbers] for name in Move._fields}
        widths = [program.config.sram(item).width for item in Memory]
        widths[Memory.ACC_8BIT] //= 4
        column |= {"kind": kind, "kernel": kernel, "bits": np.array(widths)[column["memory"]]}
        column["to"] = np.array([_TO.get(item, 0) for item in Memory])[column["memory"]]
        column["height"] = column["top"] + column["rows"] + column["bottom"]
        column["width"] = column["left"] + column["columns"] + column["right"]
        span = (column["rows"] - 1) * column["stride"] + column["row_bytes"]
        end = column["address"] + np.where(moved.transfers[numbers], span, 0)
        steps = loop.Steps(**{name: np.ascontiguousarray(column[name]) for name in loop.Steps._fields})
        return Table(steps, column["address"], end, kernels, tiles)


class Table(NamedTuple):
    """What `loop.run` takes; `address`, `end` int64 [n]: the bytes of DRAM between which a step moves data."""

    steps: loop.Steps
    address: Array
    end: Array
    kernels: loop.Kernels
    tiles: loop.Tiles


def plan(
    program: Elaborated, sequence: Array, stored: Mapping[int, Array], samples: int
) -> tuple[Action | Stretch, ...]:
    """What the value pass does for so many samples, in the order of `sequence`."""
    if len(sequence) < ENOUGH or program.config.stages != STAGES:
        return actions(program, sequence, stored)
    config, memory = program.config, program.moves.memory
    values = np.array([config.sram(item).shape[0] * config.sram(item).shape[1] for item in Memory])[memory]
    light = program.moves.tiles * values * samples * VALUE_NS <= 1000 * ARRAYS_US
    moves = (light & among(memory, (*_TO, Memory.OUT))) | among(memory, _SILENT)
    kernels = np.array([*(_is_short(item, config, samples) for item in program.kernels), False], np.bool_)
    short = np.where(program.kernel >= 0, kernels[program.kernel], moves)[sequence]
    runs = np.flatnonzero(np.diff(short, prepend=False, append=False)).reshape(-1, 2)
    runs = runs[runs[:, 1] - runs[:, 0] >= SHORTEST]
    if (runs[:, 1] - runs[:, 0]).sum() < ENOUGH:
        return actions(program, sequence, stored)
    found: list[Action | Stretch] = []
    done = 0
    for start, stop in runs.tolist():
        found += actions(program, sequence[done:start], stored)
        cuts = [*range(start, stop, LONGEST), stop]
        found += [Stretch(program, sequence[a:b], stored) for a, b in pairwise(cuts)]
        done = stop
    return (*found, *actions(program, sequence[done:], stored))


def _is_short(item: GemmKernel | AluKernel, config: Config, samples: int) -> bool:
    """The loop knows the instruction, and takes less time for it than the array forms."""
    if isinstance(item, GemmKernel):
        ns = MAC_NS * config.macs_per_cycle
    elif item.op in _OPS:
        ns = VALUE_NS * config.batch * config.block
    else:
        return False
    return item.size * samples * ns <= 1000 * ARRAYS_US


def _kernels(items: Sequence[GemmKernel | AluKernel], config: Config) -> tuple[Array, loop.Kernels, loop.Tiles]:
    """The kind of each kernel for steps that run it, its row, and the tiles of all."""
    rules = SEMANTICS[config.semantics]
    reset = loop.RESET if rules.reset_writes_out else loop.RESET_KEEP
    kinds, rows, tiles, start = [], [], [np.zeros((3, 0), np.int64)], 0
    for item in items:
        stop = start + item.size
        if isinstance(item, GemmKernel):
            kinds.append(reset if item.reset else loop.ADD)
            rows.append((start, stop, 0, 0, 0, 0, 0))
            tiles.append(np.stack([item.dst, item.src, item.wgt]))
        else:
            op = loop.NONE if item.op == AluOp.MUL and not rules.multiplies else _OPS[item.op]
            first_is_src = item.first_is_src and op != loop.NONE
            imm = np.array(item.imm or 0).astype(np.int32 if rules.wide_alu else f"int{config.acc.width}")
            kinds.append(loop.ALU)
            rows.append((start, stop, op, item.imm is not None, int(imm), first_is_src, item.negative_field))
            tiles.append(np.stack([item.dst, item.src, item.dst]))
        start = stop
    columns = np.array(rows, np.int64).reshape(-1, len(loop.Kernels._fields)).T.copy()
    return np.array(kinds, np.int64), loop.Kernels(*columns), loop.Tiles(*np.concatenate(tiles, axis=1))
