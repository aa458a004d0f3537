"""Commands that the machine cannot tell apart, but for a relation of DRAM pages and of rows of the memories."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.isa.work import EX, LD
from tilewright.targets.gemmini.timing.bus import ACC_ROWS, READ_PAGES, SPAD_ROWS, WRITTEN_PAGES
from tilewright.targets.gemmini.timing.load import lg_bytes
from tilewright.targets.gemmini.timing.memo import MEMO, Memo, relate_pages, relate_ranges
from tilewright.targets.gemmini.timing.operands import blocks_of, columns_of, is_acc, is_garbage, rows_of
from tilewright.targets.gemmini.timing.program import CONFIG, PRELOAD, Program, configured
from tilewright.targets.gemmini.timing.state import CHIP, LG_PAGE
from tilewright.targets.gemmini.timing.store import store_stride
from tilewright.targets.gemmini.timing.unroll_streams import FrontPlan

PAGE_BYTES = 1 << LG_PAGE
#: Lines of a move that are looked at.
MOST_LINES = 4096


class Move(NamedTuple):
    """What matters of a move beside its address and rows."""

    lines: int  # rows in DRAM, the bytes of one and their distance; all bytes of a pooled store count as one row
    size: int
    apart: int
    span: int  # rows in the memories from the first to the last
    absolute: bool  # whether other rows count too, because of repeated pixels, pooling or no columns


@part
def load_move(m: Array, p: Program, prim: int) -> Move:
    """Return what matters of a load."""
    rs1 = p.prims[prim, 1]
    rs2 = p.prims[prim, 2]
    config = configured(p, prim, 1)
    apart = configured(p, prim, 2)
    rows = rows_of(rs2)
    blocks = blocks_of(m, rs2)
    return Move(
        0 if rs1 == 0 else rows if apart else min(rows, 1),
        columns_of(rs2) << lg_bytes(rs2, config),
        apart,
        (blocks - 1) * (config >> 16 & 0xFFFF) + rows,
        config >> 8 & 0xFF > 1 or blocks == 0,
    )


@part
def store_move(m: Array, p: Program, prim: int) -> Move:
    """Return what matters of a store."""
    rs2 = p.prims[prim, 2]
    config = configured(p, prim, 1)
    apart = store_stride(p, prim)
    rows = rows_of(rs2)
    blocks = blocks_of(m, rs2)
    pooled = config >> 4 & 3 > 0
    size = (columns_of(rs2) + m[CHIP.dim]) * (4 if rs2 >> 29 & 1 else 1)
    if pooled:
        last = max(((config >> 32 & 0xFF) - 1) * (config >> 24 & 0xFF) + (config >> 40 & 0xFF) - 1, 0)
        size += last * apart
    return Move(1 if pooled else rows, size, apart, (blocks - 1) * m[CHIP.dim] + rows, pooled or blocks == 0)


@part
def alike(m: Array, p: Program, plan: FrontPlan, memo: Memo, old: int, new: int) -> bool:
    """Return whether two primitive commands are alike."""
    rs1 = p.prims[old, 1]
    rs2 = p.prims[old, 2]
    other1 = p.prims[new, 1]
    other2 = p.prims[new, 2]
    funct = p.prims[old, 0] & 127
    q = p.queue[old]
    identity = memo.registers[MEMO.identity] != 0
    if p.prims[old, 0] != p.prims[new, 0] or q != p.queue[new]:
        return False
    if p.unroller[old] != p.unroller[new]:
        return False
    for x in range(3 if p.unroller[old] else 0):  # commands of loops are at the same steps of them
        if plan.loops.at[old, x] != plan.loops.at[new, x] or plan.loops.idle[old] != plan.loops.idle[new]:
            return False
    if rs2 != other2 and (identity or funct == CONFIG):
        return False
    if funct == CONFIG or (q == EX and identity):
        return bool(rs1 == other1)
    if q == EX:
        return alike_operands(m, p, memo, old, new)
    return alike_moves(m, p, memo, old, new)


@part
def alike_moves(m: Array, p: Program, memo: Memo, old: int, new: int) -> bool:
    """Return whether two loads, or two stores, are alike."""
    for word in range(1, 3):
        if configured(p, old, word) != configured(p, new, word):
            return False
    r = memo.registers
    loads = p.queue[old] == LD
    move = load_move(m, p, old) if loads else store_move(m, p, old)
    if r[MEMO.identity] == 0:
        rs2 = p.prims[old, 2]
        other2 = p.prims[new, 2]
        if move.absolute or not alike_rows(m, r, memo.rows, rs2, other2, move.span, 0):
            return False
    client = READ_PAGES if loads else WRITTEN_PAGES
    return alike_lines(r, memo.pages, client, p.prims[old, 1], p.prims[new, 1], move)


@part
def alike_operands(m: Array, p: Program, memo: Memo, old: int, new: int) -> bool:
    """Return whether two preloads, or two computes, are alike."""
    rs1, rs2 = p.prims[old, 1], p.prims[old, 2]
    preload = p.prims[old, 0] & 127 == PRELOAD
    size1 = side(m, rs1)
    size2 = side(m, rs2)
    stride = result_or_row_stride(p, old, preload)
    if stride != result_or_row_stride(p, new, preload):
        return False
    if preload:
        if stride != 1 and not m[CHIP.only_ws]:  # output-stationary results may leave the rows of their operand
            return False
        size2 = size2 * stride
        reach1 = m[CHIP.dim]
        reach2 = 0
    else:
        size1 = size1 * stride
        reach1 = m[CHIP.dim] * stride
        reach2 = m[CHIP.dim]
    first = alike_rows(m, memo.registers, memo.rows, rs1, p.prims[new, 1], size1, reach1)
    return first and alike_rows(m, memo.registers, memo.rows, rs2, p.prims[new, 2], size2, reach2)


@part
def result_or_row_stride(p: Program, prim: int, preload: bool) -> int:
    """Return the distance of the rows that a preload's result takes, or of those of a compute's A."""
    return configured(p, prim, 2) >> 48 & 0xFFFF if preload else configured(p, prim, 1) >> 16 & 0xFFFF


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
    first = old & mask
    other = new & mask
    if first != other:
        if first + rows > mask or other + rows > mask:
            return False
        bank = m[CHIP.lg_spad_bank]
        last = max(reach - 1, 0)
        if first >> bank != (first + last) >> bank or other >> bank != (other + last) >> bank:
            return False
    kind = ACC_ROWS if in_acc else SPAD_ROWS
    before = min(rows, mask + 1 - first)
    behind = min(rows - before, mask + 1)  # these wrap around
    return relate_ranges(r, related, kind, first, other, before) and (
        behind == 0 or relate_ranges(r, related, kind, 0, 0, behind)
    )


def alike_lines(r: Array, pages: Array, client: int, first: int, other: int, move: Move) -> bool:
    """Return whether moves at two addresses cut their rows in DRAM into like requests, of related pages."""
    line = r[MEMO.line]
    if (first ^ other) & (line - 1) or (first == 0) != (other == 0):
        return False
    if (first ^ other) & (PAGE_BYTES - 1) == 0:
        line = PAGE_BYTES
    lines = 0
    for row in range(move.lines):
        x = row * move.apart
        end = x + move.size
        while x < end and lines < MOST_LINES:
            page = (first + x) >> LG_PAGE
            partner = (other + x) >> LG_PAGE
            again = r[MEMO.last_pair + 2 * client] == page and r[MEMO.last_pair + 2 * client + 1] == partner
            if not again and not relate_pages(r, pages, client, page, partner):
                return False
            x += line - ((first + x) & (line - 1))
            lines += 1
    return lines < MOST_LINES


def alike_loops(plan: FrontPlan, old: int, new: int, prims: int) -> bool:
    """Return whether two loops have like streams, `prims` commands apart."""
    found = plan.loops.tail[old] == plan.loops.tail[new] and plan.loops.residual[old] == plan.loops.residual[new]
    for x in range(6):
        found = found and plan.loops.starts[old, x] + prims == plan.loops.starts[new, x]
    return bool(found)


def alike_hosts(plan: FrontPlan, memo: Memo, old: int, new: int) -> bool:
    """Return whether the front end treats two commands of the host alike."""
    if plan.action[old] != plan.action[new] or (plan.item[old] < 0) != (plan.item[new] < 0):
        return False
    if (plan.loops.run[old] < 0) != (plan.loops.run[new] < 0):
        return False
    return bool(memo.prims[old + 1] - memo.prims[old] == memo.prims[new + 1] - memo.prims[new])
