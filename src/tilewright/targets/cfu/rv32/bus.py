"""The one bus to main memory behind the L1 caches: L2 cache, DRAM rows, line fills and posted stores.

Called from the loop; all times are cycles of its clock, addresses offsets into RAM.
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.targets.cfu.config import LINE_BYTES
from tilewright.targets.cfu.jit import callee
from tilewright.targets.cfu.timing import Costs

from .state import Cpu

BUS_FREE, TURN, OWNER, READ, WRITTEN = (
    int(place) for place in (Cpu.BUS_FREE, Cpu.TURN, Cpu.OWNER, Cpu.READ, Cpu.WRITTEN)
)
#: Who has the bus.
INSTRUCTIONS, DATA = 0, 1


@callee
def open_row(rows: Array, row_shift: int, c: Costs, offset: int) -> int:
    """Open the DRAM row that holds `offset`; the cycles it takes."""
    row = offset >> row_shift
    bank = row & (rows.shape[0] - 1)
    if rows[bank] == row:
        return 0
    rows[bank] = row
    return c.dram_row


@callee
def access(
    tags: Array,
    dirty: Array,
    rows: Array,
    cpu: Array,
    l2_shift: int,
    row_shift: int,
    c: Costs,
    offset: int,
    writes: int,
) -> int:
    """Cycles that a word takes longer because the L2 cache does not hold its line."""
    line = offset >> l2_shift
    place = line & (tags.shape[0] - 1)
    before = tags[place]
    if before == line:
        dirty[place] |= writes
        return 0
    cycles = c.l2_miss
    if dirty[place]:
        open_row(rows, row_shift, c, before << l2_shift)
        cycles += c.dram_write
        cpu[WRITTEN] += 1 << l2_shift
    tags[place] = line
    dirty[place] = writes
    cpu[READ] += 1 << l2_shift
    return cycles + c.dram_read + open_row(rows, row_shift, c, offset)


@callee
def fill(
    tags: Array,
    dirty: Array,
    rows: Array,
    cpu: Array,
    l2_shift: int,
    row_shift: int,
    c: Costs,
    owner: int,
    offset: int,
    now: int,
) -> int:
    """Bring the L1 line of `offset` in for instructions or data; the cycle in which the instruction goes on."""
    now = max(now + c.request, cpu[BUS_FREE])
    if cpu[OWNER] != owner:
        cpu[OWNER] = owner
        now += c.grant
    first = offset & -LINE_BYTES
    size = min(LINE_BYTES, 1 << l2_shift)
    for part in range(0, LINE_BYTES, size):
        now += (size >> 2) * c.word + access(tags, dirty, rows, cpu, l2_shift, row_shift, c, first + part, 0)
    cpu[BUS_FREE] = now
    return now + c.restart


@callee
def store(
    tags: Array,
    dirty: Array,
    rows: Array,
    written: Array,
    cpu: Array,
    l2_shift: int,
    row_shift: int,
    c: Costs,
    offset: int,
    now: int,
) -> int:
    """Give a store to the bus; the cycle in which the CPU is rid of it: at once where a slot is free."""
    slots = written.shape[0]
    turn = cpu[TURN]
    cpu[TURN] = turn + 1 if turn + 1 < slots else 0
    taken = max(now, written[turn])
    begun = max(taken + c.request, cpu[BUS_FREE])
    if cpu[OWNER] != DATA:
        cpu[OWNER] = DATA
        begun += c.grant
    done = begun + c.word + access(tags, dirty, rows, cpu, l2_shift, row_shift, c, offset, 1)
    written[turn] = cpu[BUS_FREE] = done
    return taken
