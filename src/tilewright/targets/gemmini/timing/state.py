"""What all units of the machine share: parameters, wires, registers, and the program."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.isa.fields import Configured, Funct
from tilewright.targets.gemmini.isa.work import EX, LD, NONE
from tilewright.targets.gemmini.loops import Expansion
from tilewright.targets.gemmini.timing.records import (
    FIXED,
    PLAIN,
    PLAIN3,
    POINTER,
    RULE,
    WIRE,
    columns,
    registers,
    saved,
    table,
)


class Chip:
    """Parameters, wires, and the registers that several units use."""

    dim = FIXED
    lg_dim = FIXED  # lg: the logarithm of a number
    spad = FIXED  # a mask of rows of the scratchpad
    lg_spad_bank = FIXED
    acc = FIXED  # a mask of rows of the accumulator
    lg_acc_bank = FIXED
    rows = FIXED  # a mask of the row in a local address
    garbage = FIXED  # the bits that the hardware tests for "no operand"
    dma_bytes = FIXED
    lg_bus = FIXED
    max_reads = FIXED
    max_writes = FIXED
    slots = FIXED  # commands that a tracker of the DMA holds
    latency = FIXED
    only_ws = FIXED
    scales = FIXED  # whether the program scales any load, so that the turn of the lanes matters
    holders = saved(RULE.wire, size=7)  # see find_configurations
    active = WIRE  # whether a register changed in this cycle
    ex_done = WIRE  # the entry of the station whose command a controller completes (-1: none)
    ld_done = WIRE  # the slot of the tracker
    st_done = WIRE
    spad_writes = WIRE  # banks, as bits, that are written
    acc_writes = WIRE  # those that are offered a write
    acc_adds = WIRE
    ex_reads = WIRE  # those that the array reads
    progress = WIRE  # see `went_on`
    number = PLAIN3  # of the station: entries in use in each queue
    lone = PLAIN  # whether a preload waits for its compute
    loads_used = PLAIN  # slots of the trackers in use
    stores_used = PLAIN
    zeros_valid = PLAIN  # a row of zeros to write
    zeros_slot = PLAIN
    zeros_address = saved(RULE.local, when="zeros_valid")
    zeros_column = PLAIN
    pending = saved(RULE.entry, among=EX, size=2, reset=-1)  # entries that are complete but not reported
    os = PLAIN  # whether the dataflow is output-stationary
    c_stride = PLAIN
    ex_state = PLAIN  # of the execute controller
    next_command = POINTER  # in the table of commands
    first_out = POINTER
    rows_out = PLAIN  # rows in the array
    may_ask = PLAIN  # whether an operation of the array can begin in this cycle
    asked = PLAIN  # whether one did
    pipe = PLAIN  # the stages of the scale pipeline, as bits
    full = PLAIN  # whether the first one is stalled
    first_answer = POINTER
    answers = PLAIN  # answers of the memory to come
    acc_fetched = PLAIN  # banks of the accumulator, as bits, that are being read for the writer
    acc_held = PLAIN  # those whose row waits for the writer


class Moving:
    """The states of the controllers of loads and stores."""

    waiting: int
    waiting_dma: int
    sending: int


class Bank:
    """The rows of a bank of the accumulator that are being written: see moves.written."""

    rows = saved(RULE.wire, size=4, reset=-1)


class Pipe:
    """Rows on their way from the scratchpad, as bits of their banks."""

    fetched = PLAIN
    held = PLAIN  # in the bank
    first = PLAIN  # the four stages of the bank's pipe
    second = PLAIN
    third = PLAIN
    last = PLAIN
    under_way = PLAIN  # whether there are any


CHIP = registers(Chip, 0)
MOVING = columns(Moving)
TO_ARRAY = registers(Pipe, 1)
TO_WRITER = registers(Pipe, 2)
ACC_BANKS = table(Bank, "acc_banks")


LG_PAGE = 12
#: The commands, as plain numbers for compiled loops.
CONFIG, MVIN2, PRELOAD, MVIN3 = (int(each) for each in (Funct.CONFIG, Funct.MVIN2, Funct.PRELOAD, Funct.MVIN3))
COMPUTE_FLIP = int(Funct.COMPUTE_PRELOADED)
COMPUTE_STAY = int(Funct.COMPUTE_ACCUMULATED)
CONFIG_NORM = int(Configured.NORM)
#: The float32 scale 1.0, which passes the scale unit at once.
ONE = 0x3F800000
#: Load states that a configuration may name; loads use three.
LOAD_STATES = 4


class Program(NamedTuple):
    """The primitive commands, and what is recorded of them."""

    prims: Array  # int64 [m, 3]
    unroller: Array  # int64 [m]
    queue: Array  # int64 [m]: of the reservation station
    config: Array  # int64 [m]: the configuration that counts for a command, or NONE
    whole: Array  # int64 [m]: of execute commands, the same without those that set strides only
    times: Array  # int64 [m, 3]: taken, issued, done
    order: Array  # int64 [m]


def record(expansion: Expansion) -> Program:
    """Return an expanded program, of which nothing is recorded."""
    m = len(expansion.prims)
    prims = np.ascontiguousarray(expansion.prims).view(np.int64)
    unroller = expansion.unroller.astype(np.int64)
    queue = expansion.kind.astype(np.int64)
    config, whole, order = np.full((3, m), -1, np.int64)
    return Program(prims, unroller, queue, config, whole, np.full((m, 3), -1, np.int64), order)


def find_configurations(m: Array, p: Program) -> None:
    """Set the configuration of each command: a queue has one, that of loads one for each load state."""
    for holder in range(LOAD_STATES + 3):
        m[CHIP.holders + holder] = NONE
    whole = NONE
    for x in range(p.queue.shape[0]):
        q = p.queue[x]
        funct = p.prims[x, 0] & 127
        rs1 = p.prims[x, 1]
        holder = CHIP.holders + LOAD_STATES + q
        if q == LD:
            holder = CHIP.holders + (rs1 >> 3 & 3 if funct == CONFIG else 1 if funct == MVIN2 else 2 * (funct == MVIN3))
        if funct == CONFIG and rs1 & 3 != CONFIG_NORM:
            m[holder] = x
            if q == EX and not rs1 >> 7 & 1:
                whole = x
            if q == LD and rs1 >> 32 & 0xFFFFFFFF != ONE:
                m[CHIP.scales] = 1
        p.config[x] = m[holder]
        p.whole[x] = whole


@part
def configured(p: Program, prim: int, word: int) -> int:
    """Return a word of the configuration that counts for a command, or 0."""
    return p.prims[p.config[prim], word] if p.config[prim] >= 0 else 0


@part
def moved(stages: int, last: int) -> int:
    """Move a pipeline on (Pipeline.scala), a bit per stage: rows behind a gap move, and all if `last` is empty."""
    stalled = 0
    if stages & last:
        stalled = stop = last
        while stages & stop >> 1:
            stop >>= 1
            stalled |= stop
    return (stages & ~stalled) << 1 | stalled


#: What a word of an operand names.
ABSENT, IN_SPAD, IN_ACC = range(3)


@part
def is_acc(word: int) -> int:
    """Return 1 if a word has an address of the accumulator, else 0."""
    return word >> 31 & 1


@part
def is_garbage(m: Array, word: int) -> bool:
    """Return whether an operand's word has the address that stands for none (LocalAddr.scala)."""
    return (word & m[CHIP.garbage]) == m[CHIP.garbage]


@part
def local(m: Array, word: int) -> tuple[int, int]:
    """Return the kind and the row of an operand's word: ABSENT, IN_SPAD or IN_ACC."""
    if is_garbage(m, word):
        return ABSENT, 0
    if is_acc(word):
        return IN_ACC, word & m[CHIP.acc]
    return IN_SPAD, word & m[CHIP.spad]


@part
def rows_of(word: int) -> int:
    """Return the rows in an operand's word."""
    return word >> 48 & 0xFFFF


@part
def columns_of(word: int) -> int:
    """Return the columns in an operand's word."""
    return word >> 32 & 0xFFFF


@part
def blocks_of(m: Array, word: int) -> int:
    """Return the blocks of columns, each as wide as the array, of an operand's word."""
    return (columns_of(word) + m[CHIP.dim] - 1) >> m[CHIP.lg_dim]
