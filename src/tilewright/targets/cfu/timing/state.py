"""The state of a machine, in arrays that persist between calls of the loop; and the bus to main memory.

The bus is LiteX's shared Wishbone bus of 32 bits. It connects the L1 caches to the L2 cache (direct mapped, write-back)
and DRAM, for line fills and posted stores. Times are cycles of the loop's clock, and addresses are offsets into RAM.

Caches have tags and no data. All stores change `ram` at once, and all loads read `ram`, so caches affect only time.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets.cfu.config import LINE_BYTES, Config
from tilewright.targets.cfu.isa.rv32 import NOWHERE, Memory

from .costs import Costs

#: The reason why the loop stopped before the instruction at POSITION. TO_LIMIT: the instruction limit. TO_SYSTEM: an
#: instruction that the loop does not execute. TO_CFU: the CFU has failed. STAYS: the loop has not stopped. The
#: following reasons have an ADDRESS. TO_DEVICE: a load or store outside of RAM. TO_MISALIGNED: a misaligned load or
#: store. TO_TARGET: a jump to an address without code. TO_CODE: a store into code. TO_WATCH: a load or store of watched
#: memory.
STAYS, TO_LIMIT, TO_SYSTEM, TO_DEVICE, TO_MISALIGNED, TO_TARGET, TO_CODE, TO_WATCH, TO_CFU = range(9)
#: The result of `loop.custom` if the CFU has failed.
FAILED = -1
#: Watched accesses: bits in the third column of Machine.watched.
READS, WRITES = 1, 2
#: Owners of the bus.
INSTRUCTIONS = 0
DATA = 1


class Cpu(IntEnum):
    """Indices into `Machine.cpu`, the scalars that the loop keeps between calls."""

    CYCLE = 0
    POSITION = auto()  # index of the next instruction
    FIRST = auto()  # index of the first instruction after the last jump
    RETIRED = auto()  # number of instructions retired before FIRST
    LIMIT = auto()  # the largest number of retired instructions
    REASON = auto()  # the reason why the loop stopped
    ADDRESS = auto()
    BUS_FREE = auto()  # the first cycle in which the bus is free
    CFU_FREE = auto()  # the first cycle in which the CFU can accept a command
    STORED = auto()  # the last store, as word << 4 | byte mask
    STORED_AT = auto()  # the cycle of the last store
    BEFORE = auto()  # the second last store
    BEFORE_AT = auto()
    BARRIER = auto()  # the cycle in which all loads, stores and jumps have completed
    TURN = auto()  # the index in `written` for the next store
    OWNER = auto()  # the last owner of the bus
    REGION = auto()  # the region in which the program is, after its last marker
    READ = auto()  # bytes that the L2 cache has read from DRAM
    WRITTEN = auto()  # bytes that the L2 cache has written to DRAM
    LAST = auto()  # the register of the last load or product


class Cause(IntEnum):
    """Causes of the cycles of an instruction after its first cycle."""

    LOAD_USE = 0  # the instruction waits for a load's result
    RESULT_USE = auto()  # the instruction waits for the result of a shift, product or quotient
    CFU_USE = auto()  # the instruction waits for the CFU's result
    DIVIDE = auto()
    BRANCH = auto()  # branches and jumps
    FETCH = auto()  # misses in the instruction cache
    LOAD_MISS = auto()  # misses in the data cache
    STORE = auto()  # all store slots of the bus are in use
    REDO = auto()  # a load directly after a store to the same bytes
    DRAIN = auto()  # custom-0 waits until loads, stores and jumps have completed
    CFU = auto()  # the CFU is busy, or answers late
    DEVICE = auto()
    SYSTEM = auto()  # CSRs and fences


class Bus(NamedTuple):
    """The memory system below the L1 caches: L2 lines, DRAM banks, and posted stores."""

    tags: Array  # int64: line numbers, -1 where empty
    dirty: Array
    line_shift: int  # log2 of the size of a line in bytes
    rows: Array  # int64 [banks], the open DRAM row of each bank
    row_shift: int
    written: Array  # int64 [slots], the cycle in which each posted store is complete


class Machine(NamedTuple):
    """All arrays of a machine's state. Code is indexed by instruction, RAM by offset from its base, caches by set."""

    code: Array  # int64 [n], packed: isa/rv32.py
    base: int  # address of the first instruction, a multiple of a line
    regs: Array  # int32 [33]
    ready: Array  # int64 [33], the cycle when each register can be read
    late: Array  # int64 [33], the cause of a wait for each register
    ram: Memory
    itags: Array  # int64: line numbers, -1 where empty
    dtags: Array
    bus: Bus
    cpu: Array  # int64, see Cpu
    entered: Array  # int64 [n + 1]: how many sequences of instructions begin here, minus how many end before here
    lost: Array  # int64 [n, causes]: the lost cycles
    times: Array  # int64 [n, causes]: the number of waits
    csrs: Array  # int64 [4096]; a counter has the difference from the real count
    cfu: Array  # int64, the CFU's registers
    buffers: Array  # int32, the CFU's memories
    watched: Array  # int64 [n, 3]: first address, end, READS | WRITES; only a watching loop reads it


def machine(config: Config, code: Array, base: int, ram: Array, cfu: Array, buffers: Array, slots: int) -> Machine:
    """Return a machine after reset, with decoded `code` and filled `ram` (uint8). The bus has `slots` store slots."""

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
    m = Machine(
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
        watched=zeros(0, 3),
    )
    m.cpu[[Cpu.STORED, Cpu.BEFORE]] = -1
    return m


def instructions(cpu: Array) -> int:
    return int(cpu[Cpu.RETIRED] + cpu[Cpu.POSITION] - cpu[Cpu.FIRST])


def index_of(m: Machine, address: int) -> int | None:
    at = address - m.base
    return None if at & 3 or not 0 <= at < 4 * len(m.code) else at >> 2


def go_to(m: Machine, index: int) -> None:
    """Continue at the instruction `index`, as after a jump."""
    m.entered[m.cpu[Cpu.POSITION]] -= 1
    m.cpu[Cpu.RETIRED] = instructions(m.cpu)
    m.cpu[[Cpu.POSITION, Cpu.FIRST]] = index
    m.entered[index] += 1


def open_row(bus: Bus, c: Costs, offset: int) -> int:
    """Open the DRAM row at byte `offset` of RAM. Return the cycles that this takes: 0 if the row is already open.

    Neighbouring rows are in neighbouring banks (LiteDRAM's ROW_BANK_COL), and each bank keeps its last row open.
    """
    row = offset >> bus.row_shift
    bank = row & (bus.rows.shape[0] - 1)
    if bus.rows[bank] == row:
        return 0
    bus.rows[bank] = row
    return c.dram_row


def access(bus: Bus, cpu: Array, c: Costs, offset: int, writes: int) -> int:
    """Access the word at `offset` through the L2 cache. Return the additional cycles of a miss, or 0 on a hit.

    A miss evicts the old line. A dirty line is first written back. A store also reads its line (write-allocate).
    """
    line = offset >> bus.line_shift
    place = line & (bus.tags.shape[0] - 1)
    before = bus.tags[place]
    if before == line:
        bus.dirty[place] |= writes
        return 0
    cycles = c.l2_miss
    if bus.dirty[place]:
        open_row(bus, c, before << bus.line_shift)  # `dram_write` includes the cycles for a row change
        cycles += c.dram_write
        cpu[Cpu.WRITTEN] += 1 << bus.line_shift
    bus.tags[place] = line
    bus.dirty[place] = writes
    cpu[Cpu.READ] += 1 << bus.line_shift
    return cycles + c.dram_read + open_row(bus, c, offset)


def fill(bus: Bus, cpu: Array, c: Costs, owner: int, offset: int, now: int) -> int:
    """Fill the L1 cache line of `offset`, from cycle `now` on. Return the cycle in which the CPU continues.

    The bus has no bursts: it reads word by word through the L2 cache.
    """
    # The arbiter changes the owner only when the bus is free. The same owner needs no new grant.
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


def post(bus: Bus, cpu: Array, c: Costs, offset: int, now: int) -> int:
    """Post a store to `offset` in cycle `now`. Return the cycle in which the CPU continues: `now` if a slot is free.

    `written` is a ring buffer with the completion cycles of the last stores. Slot `turn` has the oldest store.
    """
    turn = cpu[Cpu.TURN]
    cpu[Cpu.TURN] = turn + 1 if turn + 1 < bus.written.shape[0] else 0
    accepted = max(now, bus.written[turn])
    begun = max(accepted + c.request, cpu[Cpu.BUS_FREE])
    if cpu[Cpu.OWNER] != DATA:
        cpu[Cpu.OWNER] = DATA
        begun += c.grant
    done = begun + c.word + access(bus, cpu, c, offset, 1)
    bus.written[turn] = cpu[Cpu.BUS_FREE] = done
    return accepted
