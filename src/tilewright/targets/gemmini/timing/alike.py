"""Commands that the machine cannot tell apart, but for a relation of DRAM pages and of rows of the memories."""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.isa.work import EX, LD, ST
from tilewright.targets.gemmini.timing.bus import ACC_ROWS, READ_PAGES, SPAD_ROWS, WRITTEN_PAGES
from tilewright.targets.gemmini.timing.chip import CHIP, LG_PAGE, Program
from tilewright.targets.gemmini.timing.controller import EXECUTION, configure_array
from tilewright.targets.gemmini.timing.load import STATES, configure_load, load_state
from tilewright.targets.gemmini.timing.memo import MEMO, Memo, relate_pages, relate_ranges, was_last
from tilewright.targets.gemmini.timing.operands import (
    CONFIG,
    PRELOAD,
    blocks_of,
    columns_of,
    is_acc,
    is_garbage,
    rows_of,
)
from tilewright.targets.gemmini.timing.records import at, columns, row_offset
from tilewright.targets.gemmini.timing.station import LOAD_STATES
from tilewright.targets.gemmini.timing.store import CONFIG_ST, STORER, configure_store
from tilewright.targets.gemmini.timing.unroll_state import FrontPlan

PAGE_BYTES = 1 << LG_PAGE
#: Lines of a move that are looked at.
MOST_LINES = 4096


class MoveShape:
    """Columns of Memo.shapes: all of a command that matters besides its address and rows."""

    lines: int  # of a move: rows in DRAM, the bytes of one and their distance
    bytes: int
    apart: int
    span: int  # rows in the memories from the first to the last
    absolute: (
        int  # whether other rows count too (repeated pixels, pooling, no columns): it repeats in the same rows only
    )
    stride: int  # of a preload: of C; of other execute commands: of A


SHAPE = columns(MoveShape)


def lay_shapes(m: Array, p: Program, memo: Memo) -> None:
    """Set the shapes of all commands, as controllers and reservation station will see them.

    Configurations are tried on the machine, which is in the state after reset, and stays so.
    """
    os = m[CHIP.os]
    for x in range(memo.shapes.shape[0]):
        funct, rs1, rs2 = p.prims[x, 0] & 127, p.prims[x, 1], p.prims[x, 2]
        if funct == CONFIG:
            try_configuration(m, p.queue[x], rs1, rs2)
        elif p.queue[x] == EX:
            memo.shapes[x, SHAPE.stride] = m[CHIP.c_stride] if funct == PRELOAD else m[EXECUTION.a_stride]
        elif p.queue[x] == LD:
            lay_load(m, memo.shapes[x], row_offset(load_state(funct)), rs1, rs2)
        else:
            lay_store(m, memo.shapes[x], rs2)
    for place in range(STATES.stride, at(STATES.pixels, LOAD_STATES) + 1):
        m[place] = 0
    for place in range(STORER.state, STORER.l_pad + 1):
        m[place] = 0
    m[EXECUTION.a_turned] = m[EXECUTION.b_turned] = m[EXECUTION.a_stride] = m[CHIP.c_stride] = 0
    m[CHIP.os] = os


def try_configuration(m: Array, q: int, rs1: int, rs2: int) -> None:
    """Let a controller take a configuration."""
    if q == EX:
        configure_array(m, rs1, rs2)
    elif q == LD:
        configure_load(m, rs1, rs2)
        m[CHIP.scales] = m[CHIP.scales] or m[at(STATES.scaled, rs1 >> 3 & 3)]
    elif rs1 & 3 == CONFIG_ST:
        configure_store(m, rs1, rs2)


def lay_load(m: Array, shape: Array, state: int, rs1: int, rs2: int) -> None:
    """Set the shape of a load, which uses the load state at `state`."""
    apart, rows, blocks = m[state + STATES.stride], rows_of(rs2), blocks_of(m, rs2)
    shape[SHAPE.lines] = 0 if rs1 == 0 else rows if apart else min(rows, 1)
    shape[SHAPE.apart] = apart
    shape[SHAPE.bytes] = columns_of(rs2) << (2 if is_acc(rs2) and not m[state + STATES.shrunk] else 0)
    shape[SHAPE.span] = (blocks - 1) * m[state + STATES.block] + rows
    shape[SHAPE.absolute] = m[state + STATES.pixels] > 1 or blocks == 0


def lay_store(m: Array, shape: Array, rs2: int) -> None:
    """Set the shape of a store; all bytes of a pooled one count as one row."""
    rows, blocks, pooled = rows_of(rs2), blocks_of(m, rs2), m[STORER.pool_stride] > 0
    shape[SHAPE.lines], shape[SHAPE.apart] = rows, m[STORER.stride]
    shape[SHAPE.bytes] = (columns_of(rs2) + m[CHIP.dim]) * (4 if rs2 >> 29 & 1 else 1)
    shape[SHAPE.span] = (blocks - 1) * m[CHIP.dim] + rows
    shape[SHAPE.absolute] = pooled or blocks == 0
    if pooled:
        last = max((m[STORER.p_rows] - 1) * m[STORER.out_dim] + m[STORER.p_columns] - 1, 0)
        shape[SHAPE.lines] = 1
        shape[SHAPE.bytes] += last * m[STORER.stride]


@part
def alike(m: Array, p: Program, plan: FrontPlan, memo: Memo, old: int, new: int) -> bool:
    """Return whether two primitive commands are alike."""
    rs1, rs2, other1, other2 = p.prims[old, 1], p.prims[old, 2], p.prims[new, 1], p.prims[new, 2]
    funct, q, identity = p.prims[old, 0] & 127, p.queue[old], memo.registers[MEMO.identity] != 0
    if p.prims[old, 0] != p.prims[new, 0] or q != p.queue[new]:
        return False
    if p.unroller[old] != p.unroller[new] or (p.unroller[old] and not alike_steps(plan, old, new)):
        return False
    if rs2 != other2 and (identity or funct == CONFIG):
        return False
    if funct == CONFIG or (q == EX and identity):
        return bool(rs1 == other1)
    if q == EX:
        return alike_operands(m, memo, funct == PRELOAD, old, new, rs1, rs2, other1, other2)
    for x in range(SHAPE.stride):
        if memo.shapes[old, x] != memo.shapes[new, x]:
            return False
    if not identity:
        span = memo.shapes[old, SHAPE.span]
        if memo.shapes[old, SHAPE.absolute] or not alike_rows(m, memo.registers, memo.rows, rs2, other2, span, 0):
            return False
    return alike_lines(
        memo.registers, memo.pages, WRITTEN_PAGES if q == ST else READ_PAGES, rs1, other1, memo.shapes[old]
    )


@part
def alike_operands(
    m: Array, memo: Memo, preload: bool, old: int, new: int, rs1: int, rs2: int, other1: int, other2: int
) -> bool:
    """Return whether two preloads, or two computes, are alike."""
    stride, size1, size2 = memo.shapes[old, SHAPE.stride], side(m, rs1), side(m, rs2)
    if stride != memo.shapes[new, SHAPE.stride]:
        return False
    if preload:
        if stride != 1 and not m[CHIP.only_ws]:  # output-stationary results may leave the rows of their operand
            return False
        size2, reach1, reach2 = size2 * stride, m[CHIP.dim], 0
    else:
        size1, reach1, reach2 = size1 * stride, m[CHIP.dim] * stride, m[CHIP.dim]
    first = alike_rows(m, memo.registers, memo.rows, rs1, other1, size1, reach1)
    return first and alike_rows(m, memo.registers, memo.rows, rs2, other2, size2, reach2)


@part
def alike_steps(plan: FrontPlan, old: int, new: int) -> bool:
    """Return whether two commands of loops are at the same steps of them."""
    same = plan.at[old, 0] == plan.at[new, 0] and plan.at[old, 1] == plan.at[new, 1]
    return bool(same and plan.at[old, 2] == plan.at[new, 2] and plan.idle[old] == plan.idle[new])


@part
def side(m: Array, word: int) -> int:
    """Return the rows of an operand that may be transposed."""
    fit = 2 * m[CHIP.dim] - 1
    return max(word >> 48 & fit, word >> 32 & fit)


def alike_rows(m: Array, r: Array, related: Array, old: int, new: int, rows: int, reach: int) -> bool:
    """Return whether two words of operands are alike, whose rows are related.

    The execute controller looks at the banks of `reach` rows, though it may read fewer.
    """
    if is_garbage(m, old) or is_garbage(m, new):
        return old == new
    in_acc = is_acc(old) != 0
    mask = m[CHIP.acc] if in_acc else m[CHIP.spad]
    if (old ^ new) & ~mask:
        return False
    first, other = old & mask, new & mask
    if first != other:
        if first + rows > mask or other + rows > mask:
            return False
        bank, last = m[CHIP.lg_spad_bank], max(reach - 1, 0)
        if first >> bank != (first + last) >> bank or other >> bank != (other + last) >> bank:
            return False
    kind = ACC_ROWS if in_acc else SPAD_ROWS
    before = min(rows, mask + 1 - first)
    behind = min(rows - before, mask + 1)  # these wrap around
    return relate_ranges(r, related, kind, first, other, before) and (
        behind == 0 or relate_ranges(r, related, kind, 0, 0, behind)
    )


def alike_lines(r: Array, pages: Array, client: int, first: int, other: int, shape: Array) -> bool:
    """Return whether two moves of the same shape cut their rows in DRAM into like requests, of related pages."""
    line = r[MEMO.line]
    if (first ^ other) & (line - 1) or (first == 0) != (other == 0):
        return False
    if (first ^ other) & (PAGE_BYTES - 1) == 0:
        line = PAGE_BYTES
    lines = 0
    for row in range(shape[SHAPE.lines]):
        x = row * shape[SHAPE.apart]
        end = x + shape[SHAPE.bytes]
        while x < end and lines < MOST_LINES:
            page, partner = (first + x) >> LG_PAGE, (other + x) >> LG_PAGE
            if not was_last(r, client, page, partner) and not relate_pages(r, pages, client, page, partner):
                return False
            x += line - ((first + x) & (line - 1))
            lines += 1
    return lines < MOST_LINES


def alike_loops(plan: FrontPlan, old: int, new: int, prims: int) -> bool:
    """Return whether two loops have like streams, `prims` commands apart."""
    found = plan.tail[old] == plan.tail[new] and plan.residual[old] == plan.residual[new]
    for x in range(6):
        found = found and plan.starts[old, x] + prims == plan.starts[new, x]
    return bool(found)


def alike_hosts(plan: FrontPlan, memo: Memo, old: int, new: int) -> bool:
    """Return whether the front end treats two commands of the host alike."""
    if plan.action[old] != plan.action[new] or (plan.item[old] < 0) != (plan.item[new] < 0):
        return False
    if (plan.run[old] < 0) != (plan.run[new] < 0):
        return False
    return bool(memo.prims[old + 1] - memo.prims[old] == memo.prims[new + 1] - memo.prims[new])
