"""The one bus to main memory behind the L1 caches: L2 cache, DRAM rows, line fills and posted stores.

Called from the loop; all times are cycles of its clock, addresses offsets into RAM.
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.targets.cfu.config import LINE_BYTES
from tilewright.targets.cfu.jit import callee

from .costs import Costs
from .state import Bus, Cpu

#: Who has the bus.
INSTRUCTIONS, DATA = 0, 1


@callee
def open_row(bus: Bus, c: Costs, offset: int) -> int:
    """Open the DRAM row that holds `offset`; the cycles it takes."""
    row = offset >> bus.row_shift
    bank = row & (bus.rows.shape[0] - 1)
    if bus.rows[bank] == row:
        return 0
    bus.rows[bank] = row
    return c.dram_row


@callee
def access(bus: Bus, cpu: Array, c: Costs, offset: int, writes: int) -> int:
    """Cycles that a word takes longer because the L2 cache does not hold its line."""
    line = offset >> bus.line_shift
    place = line & (bus.tags.shape[0] - 1)
    before = bus.tags[place]
    if before == line:
        bus.dirty[place] |= writes
        return 0
    cycles = c.l2_miss
    if bus.dirty[place]:
        open_row(bus, c, before << bus.line_shift)
        cycles += c.dram_write
        cpu[Cpu.WRITTEN] += 1 << bus.line_shift
    bus.tags[place] = line
    bus.dirty[place] = writes
    cpu[Cpu.READ] += 1 << bus.line_shift
    return cycles + c.dram_read + open_row(bus, c, offset)


@callee
def fill(bus: Bus, cpu: Array, c: Costs, owner: int, offset: int, now: int) -> int:
    """Bring the L1 line of `offset` in for instructions or data; the cycle in which the instruction goes on."""
    now = max(now + c.request, cpu[Cpu.BUS_FREE])
    if cpu[Cpu.OWNER] != owner:
        cpu[Cpu.OWNER] = owner
        now += c.grant
    first = offset & -LINE_BYTES
    size = min(LINE_BYTES, 1 << bus.line_shift)
    for part in range(0, LINE_BYTES, size):
        now += (size >> 2) * c.word + access(bus, cpu, c, first + part, 0)
    cpu[Cpu.BUS_FREE] = now
    return now + c.restart


@callee
def post(bus: Bus, cpu: Array, c: Costs, offset: int, now: int) -> int:
    """Give a store to the bus; the cycle in which the CPU is rid of it: at once where a slot is free."""
    turn = cpu[Cpu.TURN]
    cpu[Cpu.TURN] = turn + 1 if turn + 1 < bus.written.shape[0] else 0
    taken = max(now, bus.written[turn])
    begun = max(taken + c.request, cpu[Cpu.BUS_FREE])
    if cpu[Cpu.OWNER] != DATA:
        cpu[Cpu.OWNER] = DATA
        begun += c.grant
    done = begun + c.word + access(bus, cpu, c, offset, 1)
    bus.written[turn] = cpu[Cpu.BUS_FREE] = done
    return taken
