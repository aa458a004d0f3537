"""Equivalence of commands: a command takes the same time as an equivalent command in the related DRAM pages and rows.

Two commands are equivalent under three conditions. The fields of the commands are equal, except for addresses. The DMA
cuts the commands' DRAM rows into the same requests, in related pages. The rows on chip are related, so that every
comparison of rows and every conflict between banks has the same result. Data never influences time.
"""

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
from tilewright.targets.gemmini.timing.state import LG_PAGE, SHARED
from tilewright.targets.gemmini.timing.store import store_stride
from tilewright.targets.gemmini.timing.unroll_streams import FrontPlan

PAGE_BYTES = 1 << LG_PAGE
#: Two moves with more than this number of DRAM lines (MEMO.line bytes each) are never treated as equivalent.
MOST_LINES = 4096


class Move(NamedTuple):
    """The size of a move in DRAM and on chip."""

    lines: int  # the number of rows in DRAM; a pooled store has one row for all bytes that it may write
    size: int  # the number of bytes of a row
    stride: int  # the distance between the starts of two rows in bytes
    span: int  # the number of rows on chip, from the first row to the last row
    absolute: bool  # whether rows outside of the span matter: repeated pixels, pooling, or no columns


@part
def load_move(m: Array, p: Program, prim: int) -> Move:
    rs1 = p.prims[prim, 1]
    rs2 = p.prims[prim, 2]
    config = configured(p, prim, 1)
    stride = configured(p, prim, 2)
    rows = rows_of(rs2)
    blocks = blocks_of(m, rs2)
    return Move(
        0 if rs1 == 0 else rows if stride else min(rows, 1),
        columns_of(rs2) << lg_bytes(rs2, config),
        stride,
        (blocks - 1) * (config >> 16 & 0xFFFF) + rows,
        config >> 8 & 0xFF > 1 or blocks == 0,
    )


@part
def store_move(m: Array, p: Program, prim: int) -> Move:
    rs2 = p.prims[prim, 2]
    config = configured(p, prim, 1)
    stride = store_stride(p, prim)
    rows = rows_of(rs2)
    blocks = blocks_of(m, rs2)
    # The address and the configuration alone determine which bytes a pooled store writes, and equivalent_moves compares
    # the configurations. So it is enough to relate the pages of a larger range that contains these bytes.
    pooled = config >> 4 & 3 > 0
    size = (columns_of(rs2) + m[SHARED.dim]) * (4 if rs2 >> 29 & 1 else 1)
    if pooled:
        last = max(((config >> 32 & 0xFF) - 1) * (config >> 24 & 0xFF) + (config >> 40 & 0xFF) - 1, 0)
        size += last * stride
    return Move(1 if pooled else rows, size, stride, (blocks - 1) * m[SHARED.dim] + rows, pooled or blocks == 0)


@part
def equivalent(m: Array, p: Program, plan: FrontPlan, memo: Memo, old: int, new: int) -> bool:
    rs1 = p.prims[old, 1]
    rs2 = p.prims[old, 2]
    new_rs1 = p.prims[new, 1]
    new_rs2 = p.prims[new, 2]
    funct = p.prims[old, 0] & 127
    q = p.queue[old]
    identity = memo.registers[MEMO.identity] != 0
    if p.prims[old, 0] != p.prims[new, 0] or q != p.queue[new]:
        return False
    if p.unroller[old] != p.unroller[new]:
        return False
    # The unrollers compare loop counters between streams, so the commands of loops must have equal counters.
    for x in range(3 if p.unroller[old] else 0):
        if plan.loops.at[old, x] != plan.loops.at[new, x] or plan.loops.idle[old] != plan.loops.idle[new]:
            return False
    if rs2 != new_rs2 and (identity or funct == CONFIG):
        return False
    if funct == CONFIG or (q == EX and identity):
        return bool(rs1 == new_rs1)
    if q == EX:
        return equivalent_operands(m, p, memo, old, new)
    return equivalent_moves(m, p, memo, old, new)


@part
def equivalent_moves(m: Array, p: Program, memo: Memo, old: int, new: int) -> bool:
    for word in range(1, 3):
        if configured(p, old, word) != configured(p, new, word):
            return False
    r = memo.registers
    loads = p.queue[old] == LD
    move = load_move(m, p, old) if loads else store_move(m, p, old)
    if r[MEMO.identity] == 0:
        rs2 = p.prims[old, 2]
        new_rs2 = p.prims[new, 2]
        if move.absolute or not equivalent_rows(m, r, memo.rows, rs2, new_rs2, move.span, 0):
            return False
    client = READ_PAGES if loads else WRITTEN_PAGES
    return equivalent_lines(r, memo.pages, client, p.prims[old, 1], p.prims[new, 1], move)


@part
def equivalent_operands(m: Array, p: Program, memo: Memo, old: int, new: int) -> bool:
    rs1, rs2 = p.prims[old, 1], p.prims[old, 2]
    preload = p.prims[old, 0] & 127 == PRELOAD
    size1 = side(m, rs1)
    size2 = side(m, rs2)
    stride = result_or_row_stride(p, old, preload)
    if stride != result_or_row_stride(p, new, preload):
        return False
    if preload:
        # The array writes an output-stationary result backwards from its last row (array.step_results). With a stride,
        # the array writes rows outside of the range that the station tracks.
        if stride != 1 and not m[SHARED.only_ws]:
            return False
        size2 = size2 * stride
        reach1 = m[SHARED.dim]
        reach2 = 0
    else:
        size1 = size1 * stride
        reach1 = m[SHARED.dim] * stride
        reach2 = m[SHARED.dim]
    first = equivalent_rows(m, memo.registers, memo.rows, rs1, p.prims[new, 1], size1, reach1)
    return first and equivalent_rows(m, memo.registers, memo.rows, rs2, p.prims[new, 2], size2, reach2)


@part
def result_or_row_stride(p: Program, prim: int, preload: bool) -> int:
    """Return a stride of the applicable config_ex: of a preload's result, or of a compute's operand A."""
    return configured(p, prim, 2) >> 48 & 0xFFFF if preload else configured(p, prim, 1) >> 16 & 0xFFFF


@part
def side(m: Array, word: int) -> int:
    """Return an upper bound of an operand's rows, whether or not the operand is transposed."""
    fit = 2 * m[SHARED.dim] - 1
    return max(word >> 48 & fit, word >> 32 & fit)


def equivalent_rows(m: Array, r: Array, related: Array, old: int, new: int, rows: int, reach: int) -> bool:
    """Relate the rows of two operands of `rows` rows. Return whether the operands' words are equivalent.

    `reach` is the number of rows whose banks the execute controller compares. It may exceed the number of rows read.
    """
    if is_garbage(m, old) or is_garbage(m, new):
        return old == new
    in_acc = is_acc(old) != 0
    mask = m[SHARED.acc] if in_acc else m[SHARED.spad]
    if (old ^ new) & ~mask:
        return False
    first = old & mask
    partner = new & mask
    # Operands in different rows can be equivalent only if each of them is in one bank and does not wrap around.
    if first != partner:
        if first + rows > mask or partner + rows > mask:
            return False
        bank = m[SHARED.lg_spad_bank]
        last = max(reach - 1, 0)
        if first >> bank != (first + last) >> bank or partner >> bank != (partner + last) >> bank:
            return False
    kind = ACC_ROWS if in_acc else SPAD_ROWS
    before = min(rows, mask + 1 - first)
    wrapped = min(rows - before, mask + 1)  # the number of rows that wrap around to the start of the memory
    return relate_ranges(r, related, kind, first, partner, before) and (
        wrapped == 0 or relate_ranges(r, related, kind, 0, 0, wrapped)
    )


def equivalent_lines(r: Array, pages: Array, client: int, first: int, second: int, move: Move) -> bool:
    """Relate the DRAM pages of moves at two addresses. Return whether the moves send the same requests (DMA.scala)."""
    # Requests are aligned and at most one line long, so two moves send the same requests if their offsets in a line are
    # equal. If the offsets in a page are also equal, one comparison per page is enough.
    line = r[MEMO.line]
    if (first ^ second) & (line - 1) or (first == 0) != (second == 0):
        return False
    if (first ^ second) & (PAGE_BYTES - 1) == 0:
        line = PAGE_BYTES
    lines = 0
    for row in range(move.lines):
        x = row * move.stride
        end = x + move.size
        while x < end and lines < MOST_LINES:
            page = (first + x) >> LG_PAGE
            partner = (second + x) >> LG_PAGE
            again = r[MEMO.last_pair + 2 * client] == page and r[MEMO.last_pair + 2 * client + 1] == partner
            if not again and not relate_pages(r, pages, client, page, partner):
                return False
            x += line - ((first + x) & (line - 1))
            lines += 1
    return lines < MOST_LINES


def equivalent_loops(plan: FrontPlan, old: int, new: int, prims: int) -> bool:
    """Return whether the streams of two loops are equal, if the loops are `prims` primitive commands apart."""
    equal = plan.loops.tail[old] == plan.loops.tail[new] and plan.loops.residual[old] == plan.loops.residual[new]
    for x in range(6):
        equal = equal and plan.loops.starts[old, x] + prims == plan.loops.starts[new, x]
    return bool(equal)


def equivalent_hosts(plan: FrontPlan, memo: Memo, old: int, new: int) -> bool:
    """Return whether the front end treats two commands of the host in the same way."""
    if plan.action[old] != plan.action[new] or (plan.item[old] < 0) != (plan.item[new] < 0):
        return False
    if (plan.loops.run[old] < 0) != (plan.loops.run[new] < 0):
        return False
    return bool(memo.prims[old + 1] - memo.prims[old] == memo.prims[new + 1] - memo.prims[new])
