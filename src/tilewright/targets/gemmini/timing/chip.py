"""What all units of the machine share: parameters, wires, registers, queues and the program.

The units run from the last consumer to the first producer. So an element that enters a queue is not seen before the
next cycle. An ordinary queue that is full takes no element in the cycle in which it loses one; a piped queue does.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.fields import Funct
from tilewright.targets.gemmini.loops import EX, Expansion
from tilewright.targets.gemmini.timing.state import (
    END,
    ENTRY,
    LENGTHS,
    LOCAL,
    PER_QUEUE,
    QUEUES,
    RING,
    TABLES,
    WIDTH,
    WIRE,
    Fixed,
    Plain,
    Plain3,
    Pointer,
    Saved,
    Wire,
    columns,
    queues,
    registers,
    reset,
    table,
)


class Chip:
    """Parameters, wires, and the registers that several units use."""

    dim: Fixed
    lg_dim: Fixed  # lg: the logarithm of a number
    spad: Fixed  # a mask of rows of the scratchpad
    lg_spad_bank: Fixed
    acc: Fixed  # a mask of rows of the accumulator
    lg_acc_bank: Fixed
    rows: Fixed  # a mask of the row in a local address
    garbage: Fixed  # the bits that the hardware tests for "no operand"
    dma_bytes: Fixed
    lg_bus: Fixed
    max_reads: Fixed
    max_writes: Fixed
    slots: Fixed  # commands that a tracker of the DMA holds
    latency: Fixed
    only_ws: Fixed
    scales: Fixed  # whether the program scales any load, so that the turn of the lanes matters
    active: Wire  # whether a register changed in this cycle
    ex_done: Wire  # the entry of the station whose command a controller completes (-1: none)
    ld_done: Wire  # the slot of the tracker
    st_done: Wire
    spad_writes: Wire  # banks, as bits, that are written
    acc_writes: Wire  # those that are offered a write
    acc_adds: Wire
    ex_reads: Wire  # those that the array reads
    progress: Wire  # see `went_on`
    number: Plain3  # of the station: entries in use in each queue
    lone: Plain  # whether a preload waits for its compute
    loading: Plain  # whether loads may be under way
    storing: Plain
    loads_used: Plain  # slots of the trackers in use
    stores_used: Plain
    zeros_valid: Plain  # a row of zeros to write
    zeros_slot: Plain
    zeros_address: Annotated[int, Saved(LOCAL, ("zeros_valid",))]
    zeros_column: Plain
    pending: Annotated[int, Saved(ENTRY, among=EX, size=2, reset=-1)]  # entries that are complete but not reported
    os: Plain  # whether the dataflow is output-stationary
    c_stride: Plain
    ex_state: Plain  # of the execute controller
    next_command: Pointer  # in the table of commands
    first_out: Pointer
    rows_out: Plain  # rows in the array
    may_ask: Plain  # whether an operation of the array can begin in this cycle
    asked: Plain  # whether one did
    pipe: Plain  # the stages of the scale pipeline, as bits
    full: Plain  # whether the first one is stalled
    first_answer: Pointer
    answers: Plain  # answers of the memory to come
    acc_fetched: Plain  # banks of the accumulator, as bits, that are being read for the writer
    acc_held: Plain  # those whose row waits for the writer


class Bank:
    """The rows of a bank of the accumulator that are being written: see moves.written."""

    rows: Annotated[int, Saved(WIRE, size=4)]


class Pipe:
    """Rows on their way from the scratchpad, as bits of their banks."""

    fetched: Plain
    held: Plain  # in the bank
    first: Plain  # the four stages of the bank's pipe
    second: Plain
    third: Plain
    last: Plain
    under_way: Plain  # whether there are any


CHIP = registers(Chip, 0)
TO_ARRAY, TO_WRITER = registers(Pipe, 1), registers(Pipe, 2)
ACC_BANKS = table(Bank, "acc_banks")


class Queue:
    """The numbers of a queue, from its place on; then the elements in a ring."""

    count: int
    head: int  # the place of the first element
    length: int
    left: int  # the cycle in which an element left last, with the number that did (two bits)
    items: int


Two = Annotated[int, 2]
Five = Annotated[int, 5]
Six = Annotated[int, 6]
Configured = Annotated[int, 0]


class Queues:
    """The queues, with their lengths (Scratchpad.scala, MeshWithDelays.scala, TLBuffer of rocket-chip).

    D: beats and acknowledgements from the memory, A: requests to it. The last three are piped.
    """

    loads: Configured
    transposes: Two
    executes: Configured
    stores: Configured
    dispatch: Two
    norm: Six
    passed: Two
    scale: Six
    scaling: Annotated[int, 3]
    tags: Six
    totals: Six
    a_read: Two
    a_write: Two
    a_out: Two
    d_in: Two
    d_read: Two
    d_write: Two
    reads: Five
    control: Five
    issue: Five


QUEUE, Q = columns(Queue), queues(Queues)


#: What a word of an operand names.
ABSENT, IN_SPAD, IN_ACC = range(3)
#: The commands, as plain numbers.
CONFIG, MVIN2, PRELOAD, MVIN3 = (int(each) for each in (Funct.CONFIG, Funct.MVIN2, Funct.PRELOAD, Funct.MVIN3))
COMPUTE_FLIP, COMPUTE_STAY = int(Funct.COMPUTE_PRELOADED), int(Funct.COMPUTE_ACCUMULATED)
#: The float32 scale 1.0, which passes the scale unit at once.
ONE = 0x3F800000
LG_PAGE = 12


class Program(NamedTuple):
    """The primitive commands, and what is recorded of them."""

    prims: Array  # int64 [m, 3]
    unroller: Array  # int64 [m]
    queue: Array  # int64 [m]: of the reservation station
    times: Array  # int64 [m, 3]: taken, issued, done
    order: Array  # int64 [m]


def record(expansion: Expansion) -> Program:
    """Return an expanded program, of which nothing is recorded."""
    m = len(expansion.prims)
    prims = np.ascontiguousarray(expansion.prims).view(np.int64)
    unroller, queue = expansion.unroller.astype(np.int64), expansion.kind.astype(np.int64)
    return Program(prims, unroller, queue, np.full((m, 3), -1, np.int64), np.full(m, -1, np.int64))


def build(config: Config, latency: int) -> Array:
    """Return a machine after reset, int64 [END]."""
    m = np.zeros(END, np.int64)
    reset(m)
    for name, value in _parameters(config, latency).items():
        m[getattr(CHIP, name)] = value
    rings = m[QUEUES:TABLES].reshape(-1, PER_QUEUE)
    rings[:, QUEUE.length] = LENGTHS
    rings[:, QUEUE.left] = -1
    for name in ("load", "execute", "store"):
        m[getattr(Q, f"{name}s") + QUEUE.length] = getattr(config, f"queue_{name}")
    m[ACC_BANKS.rows : ACC_BANKS.rows + WIDTH * config.acc_banks] = -1
    m[CHIP.os] = config.dataflow != "ws"
    return m


def _parameters(config: Config, latency: int) -> dict[str, int]:
    """Return the fixed numbers of a machine by their names in `Chip`."""
    lg = int.bit_length
    return {
        "dim": config.dim,
        "lg_dim": lg(config.dim) - 1,
        "spad": config.all_spad_rows - 1,
        "lg_spad_bank": lg(config.spad_rows) - 1,
        "acc": config.acc_rows - 1,
        "lg_acc_bank": lg(config.acc_rows // config.acc_banks) - 1,
        "rows": (1 << config.row_bits) - 1,
        "garbage": 0b111 << 29 | 1 << config.row_bits | (1 << config.row_bits) - 1,
        "dma_bytes": config.dma_bytes,
        "lg_bus": lg(config.bus_bytes) - 1,
        "max_reads": config.reads_in_flight,
        "max_writes": config.writes_in_flight,
        "slots": config.reads_in_flight // config.dim + 1,
        "latency": latency,
        "only_ws": config.dataflow == "ws",
    }


@part
def count(m: Array, queue: int) -> int:
    """Return the elements of a queue."""
    return m[queue + QUEUE.count]


@part
def ready(m: Array, queue: int, t: int) -> bool:
    """Return whether a queue takes an element in cycle `t`."""
    left = m[queue + QUEUE.left]
    return m[queue] + (left & 3 if left >> 2 == t else 0) < m[queue + QUEUE.length]


@part
def push(m: Array, queue: int, value: int) -> None:
    """Put an element into a queue that is ready."""
    m[item(m, queue, count(m, queue))] = value
    m[queue + QUEUE.count] += 1
    m[CHIP.active] = 1


@part
def peek(m: Array, queue: int, place: int) -> int:
    """Return the element at a place behind the first."""
    return m[item(m, queue, place)]


@part
def item(m: Array, queue: int, place: int) -> int:
    """Return where the element at a place behind the first is."""
    return queue + QUEUE.items + ((m[queue + QUEUE.head] + place) & (RING - 1))


@part
def pop(m: Array, queue: int, t: int) -> int:
    """Take the first element of an ordinary queue, at most three times in a cycle."""
    left = queue + QUEUE.left
    m[left] = m[left] + 1 if m[left] >> 2 == t else t << 2 | 1
    return take(m, queue)


@part
def take(m: Array, queue: int) -> int:
    """Take the first element of a piped queue."""
    head = m[queue + QUEUE.head]
    m[queue + QUEUE.head] = (head + 1) & (RING - 1)
    m[queue + QUEUE.count] -= 1
    m[CHIP.active] = 1
    return m[queue + QUEUE.items + head]


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
def moved(stages: int, last: int) -> int:
    """Move a pipeline on (Pipeline.scala), a bit per stage: rows behind a gap move, and all if `last` is empty."""
    stalled = 0
    if stages & last:
        stalled = stop = last
        while stages & stop >> 1:
            stop >>= 1
            stalled |= stop
    return (stages & ~stalled) << 1 | stalled
