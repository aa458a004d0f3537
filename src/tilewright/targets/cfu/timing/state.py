"""The state of a machine: memories, caches, registers and counters, as arrays that outlive each call of the loop.

And the one bus to main memory behind the L1 caches: L2 cache, DRAM rows, line fills and posted stores. Its functions
are called from the loop; all times are cycles of its clock, addresses offsets into RAM.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets.cfu.config import LINE_BYTES, Config
from tilewright.targets.cfu.isa.rv32 import NOWHERE, Memory
from tilewright.targets.cfu.jit import callee

from .costs import Costs

#: Why the loop was left, the instruction at POSITION not executed: its limit; an instruction that the loop does not
#: know; a load or store at ADDRESS, not in RAM; a misaligned one; a jump to ADDRESS, where there is no code; a store at
#: ADDRESS, into code. STAYS: none of these.
STAYS, TO_LIMIT, TO_SYSTEM, TO_DEVICE, TO_MISALIGNED, TO_TARGET, TO_CODE = range(7)
#: Who has the bus.
INSTRUCTIONS, DATA = 0, 1


class Cpu(IntEnum):
    """Places in `Machine.cpu`, the scalars that the loop keeps between calls."""

    CYCLE = 0
    POSITION = auto()  # index of the next instruction
    FIRST = auto()  # index of the first of this straight stretch; what is before it is counted
    RETIRED = auto()  # instructions before this stretch
    LIMIT = auto()  # of retired instructions
    REASON = auto()  # why the loop was left
    ADDRESS = auto()
    BUS_FREE = auto()  # when the bus ends what it was given
    CFU_FREE = auto()  # when the CFU takes the next command
    STORED = auto()  # what was last stored to, word << 4 | a bit a byte, and when
    STORED_AT = auto()
    BEFORE = auto()  # and the store before it
    BEFORE_AT = auto()
    BARRIER = auto()  # when loads, stores and jumps are sure to have happened
    TURN = auto()  # the place in `written` that the next store takes
    OWNER = auto()  # of the bus
    REGION = auto()  # set by the program's markers
    READ = auto()  # bytes of DRAM that the L2 cache has read and written
    WRITTEN = auto()


class Cause(IntEnum):
    """Where cycles go besides the one of each instruction."""

    LOAD_USE = 0  # waits for a load's result
    RESULT_USE = auto()  # for the result of a shift, product or quotient
    CFU_USE = auto()  # for the CFU's result
    DIVIDE = auto()
    BRANCH = auto()  # branches and jumps
    FETCH = auto()  # misses in the instruction cache
    LOAD_MISS = auto()  # misses in the data cache
    STORE = auto()  # the bus is behind
    REDO = auto()  # a load right behind a store to the same word
    DRAIN = auto()  # custom-0 waits for loads, stores and jumps to have happened
    CFU = auto()  # the CFU was busy, or took its time
    DEVICE = auto()
    SYSTEM = auto()  # CSRs and fences


class Bus(NamedTuple):
    """What lies behind the first-level caches: the L2 cache by line, the DRAM's banks, and stores on their way."""

    tags: Array  # int64: line numbers, -1 where empty
    dirty: Array
    line_shift: int  # log2 of a line's bytes
    rows: Array  # int64 [banks], the open DRAM row
    row_shift: int
    written: Array  # int64, when each of the last stores has left the CPU


class Machine(NamedTuple):
    """All arrays. Code is indexed by instruction, RAM from its base, caches by set."""

    code: Array  # int64 [n], packed: isa/rv32.py
    base: int  # address of the first instruction, a multiple of a line
    regs: Array  # int32 [33]
    ready: Array  # int64 [33], cycles
    late: Array  # int64 [33], the cause when one waits for it
    ram: Memory
    itags: Array  # int64: line numbers, -1 where empty
    dtags: Array
    bus: Bus
    cpu: Array  # int64, see Cpu
    entered: Array  # int64 [n + 1], how often a stretch starts minus ends here: its sum counts executions
    lost: Array  # int64 [n, causes], cycles
    times: Array  # int64 [n, causes], events
    csrs: Array  # int64 [4096]; counters hold what was written to them, less the count then
    cfu: Array  # int64, the CFU's registers
    buffers: Array  # int32, the CFU's memories


def machine(config: Config, code: Array, base: int, ram: Array, cfu: Array, buffers: Array, slots: int) -> Machine:
    """A machine after reset with `code` decoded and `ram` uint8 filled; `slots` stores wait for the bus."""

    def empty(size: int) -> Array:
        return np.full(size, -1, np.int64)

    def zeros(*shape: int) -> Array:
        return np.zeros(shape, np.int64)

    count = len(code)
    bus = Bus(
        tags=empty(config.l2_bytes // config.l2_line_bytes),
        dirty=zeros(config.l2_bytes // config.l2_line_bytes),
        line_shift=config.l2_line_bytes.bit_length() - 1,
        rows=empty(config.dram_banks),
        row_shift=config.dram_row_bytes.bit_length() - 1,
        written=zeros(max(1, slots)),
    )
    made = Machine(
        code=code,
        base=base,
        regs=np.zeros(NOWHERE + 1, np.int32),
        ready=zeros(NOWHERE + 1),
        late=zeros(NOWHERE + 1),
        ram=Memory(ram, ram.view(np.uint16), ram.view(np.int32)),
        itags=empty(config.icache_bytes // LINE_BYTES),
        dtags=empty(config.dcache_bytes // LINE_BYTES),
        bus=bus,
        cpu=zeros(len(Cpu)),
        entered=zeros(count + 1),
        lost=zeros(count, len(Cause)),
        times=zeros(count, len(Cause)),
        csrs=zeros(4096),
        cfu=cfu,
        buffers=buffers,
    )
    made.cpu[[Cpu.STORED, Cpu.BEFORE]] = -1
    return made


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
