"""Stretches of short instructions: which they are, and the tables by which `loop.run` executes them.

What the loop does not know ends a stretch, and so does a large instruction: both are left to Machine's array forms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilewright.array import Array
from tilewright.targets.vta import loop
from tilewright.targets.vta.actions import Action, actions
from tilewright.targets.vta.elaborate import Elaborated
from tilewright.targets.vta.isa.fields import AluOp, Memory
from tilewright.targets.vta.kernel import AluKernel, GemmKernel
from tilewright.targets.vta.moves import NOTHING, Move
from tilewright.targets.vta.semantics import SEMANTICS

#: Nanoseconds that the loop takes for each multiply-accumulate, and for each value that is moved or that the ALU
#: changes; and microseconds that the array forms take for any instruction.
MAC_NS, VALUE_NS, ARRAYS_US = 0.35, 2, 10
#: Steps in a stretch, at least.
SHORTEST = 64

_OPS = {
    AluOp.MIN: loop.MIN,
    AluOp.MAX: loop.MAX,
    AluOp.ADD: loop.SUM,
    AluOp.SHR: loop.SHIFT,
    AluOp.MUL: loop.PRODUCT,
}
_TO = {Memory.INP: loop.TO_INP, Memory.WGT: loop.TO_WGT, Memory.ACC: loop.TO_ACC, Memory.ACC_8BIT: loop.TO_ACC}
_SILENT = (NOTHING, Memory.UOP)  # tokens only, or control state


@dataclass(frozen=True, eq=False)
class Kernels:
    """A program's kernels as the loop takes them; `kind` -1 and no tiles where it does not or should not."""

    kind: Array  # int64 [k]
    rows: Array  # int64 [k, loop.KERNEL]
    tiles: Array  # int64 [3, t]


@dataclass(frozen=True, eq=False)
class Stretch:
    """The steps `numbers` int64 [n], in this order; `stored` as `stored_resets` finds them."""

    program: Elaborated
    numbers: Array
    stored: Mapping[int, Array]
    kernels: Kernels

    @cached_property
    def actions(self) -> tuple[Action, ...]:
        """The stretch for Machine's array forms."""
        return actions(self.program, self.numbers, self.stored)

    @cached_property
    def table(self) -> Table:
        """The stretch for the loop."""
        program, moved = self.program, self.program.moves
        steps = self.numbers
        steps = steps[(program.kernel[steps] >= 0) | ~np.isin(moved.memory[steps], _SILENT)]
        memory, kernel = moved.memory[steps], program.kernel[steps]
        column = {name: getattr(moved, name)[steps] for name in Move._fields}
        kind = np.where(memory == Memory.OUT, loop.STORE, loop.LOAD)
        kind = np.where(kernel >= 0, self.kernels.kind[kernel], kind)
        if SEMANTICS[program.config.semantics].reset_writes_out:
            kind[np.isin(steps, list(self.stored))] = loop.RESET_OUT
        widths = [program.config.sram(item).width for item in Memory]
        widths[Memory.ACC_8BIT] //= 4
        column |= {"kind": kind, "kernel": kernel, "bits": np.array(widths)[memory]}
        column["to"] = np.array([_TO.get(item, 0) for item in Memory])[memory]
        column["height"] = column["top"] + column["rows"] + column["bottom"]
        column["width"] = column["left"] + column["columns"] + column["right"]
        span = (column["rows"] - 1) * column["stride"] + column["row_bytes"]
        end = column["address"] + np.where(moved.transfers[steps], span, 0)
        return Table(np.stack([column[name] for name in loop.STEP], axis=1), column["address"], end)


@dataclass(frozen=True, eq=False)
class Table:
    """Steps as `loop.run` takes them, int64 [n, loop.STEP], and the DRAM bytes that each moves between, int64 [n]."""

    steps: Array
    address: Array
    end: Array


def plan(
    program: Elaborated, sequence: Array, stored: Mapping[int, Array], samples: int
) -> tuple[Action | Stretch, ...]:
    """What the value pass does for so many samples, in the order of `sequence`."""
    config, moved, known = program.config, program.moves, kernels(program, samples)
    values = np.array([config.sram(item).shape[0] * config.sram(item).shape[1] for item in Memory])[moved.memory]
    light = moved.tiles * values * samples * VALUE_NS <= 1000 * ARRAYS_US
    moves = light & np.isin(moved.memory, (*_TO, Memory.OUT))
    silent = (program.kernel < 0) & np.isin(moved.memory, _SILENT)
    short = (moves | silent | (known.kind[program.kernel] >= 0))[sequence]
    edges = np.flatnonzero(np.diff(short, prepend=False, append=False))
    found: list[Action | Stretch] = []
    done = 0
    for start, stop in edges.reshape(-1, 2).tolist():  # each a run of short steps
        if stop - start >= SHORTEST:
            found += actions(program, sequence[done:start], stored)
            found.append(Stretch(program, sequence[start:stop], stored, known))
            done = stop
    return (*found, *actions(program, sequence[done:], stored))


def kernels(program: Elaborated, samples: int) -> Kernels:
    """The kernels that the loop runs faster than array forms do, for so many samples."""
    config, rules = program.config, SEMANTICS[program.config.semantics]
    kind, rows, tiles, start = [], [], [], 0
    for item in program.kernels:
        kind.append(-1)
        rows.append((0,) * len(loop.KERNEL))
        ns = VALUE_NS * config.batch * config.block
        if isinstance(item, GemmKernel):
            ns = MAC_NS * config.macs_per_cycle
        if item.dst.size * samples * ns > 1000 * ARRAYS_US:
            continue
        if isinstance(item, GemmKernel):
            kind[-1] = (loop.RESET if rules.reset_writes_out else loop.RESET_KEEP) if item.reset else loop.ADD
            operation: tuple[int, ...] = (0, 0, 0, 0, 0)
            tiles.append(np.stack([item.dst, item.src, item.wgt]))
        elif isinstance(item, AluKernel) and item.op in _OPS:
            kind[-1] = loop.ALU
            op = loop.NONE if item.op == AluOp.MUL and not rules.multiplies else _OPS[item.op]
            first_is_src = item.first_is_src and op != loop.NONE
            imm = np.array(item.imm or 0).astype(np.int32 if rules.wide_alu else f"int{config.acc.width}")
            operation = (op, item.imm is not None, int(imm), first_is_src, item.negative_field)
            tiles.append(np.stack([item.dst, item.src, item.dst]))
        else:
            continue
        rows[-1] = (start, start + item.dst.size, *operation)
        start += item.dst.size
    return Kernels(
        np.array([*kind, -1], np.int64),
        np.array(rows, np.int64).reshape(-1, len(loop.KERNEL)),
        np.concatenate([np.zeros((3, 0), np.int64), *tiles], axis=1),
    )
