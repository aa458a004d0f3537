"""The state of the machine, in one array of numbers: parameters, registers of the units, queues and tables.

The units run from the last consumer to the first producer. So an element that enters a queue is not seen before the
next cycle. An ordinary queue that is full takes no element in the cycle in which it loses one; a piped queue does.

All names below are places in the array. Each unit names its own registers, and the columns of the tables, in its file.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.loops import Expansion

#: Parameters. LG: a logarithm. SPAD, ACC and ROWS are masks: of rows, and of the row index in a local address. GARBAGE
#: are the bits that the hardware tests for "no operand". SLOTS: commands that a tracker of the DMA holds.
DIM, LG_DIM, SPAD, LG_SPAD_BANK, ACC, LG_ACC_BANK, ROWS, GARBAGE, DMA_BYTES, LG_BUS, MAX_READS, MAX_WRITES = range(12)
SLOTS, LATENCY, ONLY_WS = range(12, 15)
#: Wires: a register changed in this cycle; the command that a controller completes (-1: none), an entry of the
#: station or a slot of a tracker; the banks, as bits, that are written, offered a write, offered an addition, read by
#: the array.
ACTIVE, EX_DONE, LD_DONE, ST_DONE, SPAD_WRITES, ACC_WRITES, ACC_ADDS, EX_READS = range(20, 28)
#: Registers that several units use. Of the station: entries in use in each queue, whether a preload waits for its
#: compute; whether loads and stores may be under way. Of the controllers: slots of the trackers in use, the row of
#: zeros to write, entries that are complete but not reported; the dataflow, stride and state of the execute controller,
#: and the next place in COMMANDS. Of the array: rows in it, whether an operation can begin in this cycle, and whether
#: one did. Of the writer: its state, the stages of the scale pipeline (bits), whether the first one is stalled. Of the
#: memory: the answers to come. Of the accumulator: banks (bits) that are being read for the writer, and those whose row
#: waits for it.
NUMBER, LONE, LOADS_USED, STORES_USED, LOADING, STORING = 28, 31, 32, 33, 55, 56
ZEROS_VALID, ZEROS_SLOT, ZEROS_ADDR, ZEROS_COLUMN = range(34, 38)
PENDING, OS, C_STRIDE, EX_STATE, NEXT_COMMAND, FIRST_OUT, ROWS_OUT, MAY_ASK, ASKED = 38, *range(40, 48)
WRITER_STATE, PIPE, FULL, FIRST_ANSWER, ANSWERS, ACC_FETCHED, ACC_HELD = range(48, 55)
#: Commands, operations of the array, requests, beats and rows that went on: a machine that only goes around in circles
#: (requests that the bus refuses, flushes of the array) adds nothing.
PROGRESS = 57
#: The units' own registers.
STATION, LOAD, READER, MOVE, STORE, WRITER, BUS, EXECUTE, ARRAY = 64, 88, 96, 128, 160, 180, 204, 208, 240
#: Rows on their way from the scratchpad to the array and to the writer, as bits of their banks: fetched, held in the
#: bank, in the four stages of the bank's pipe; whether there are any.
TO_ARRAY, TO_WRITER = 256, 264
FETCHED, HELD, STAGES, LAST_STAGE, UNDER_WAY = 0, 1, 2, 5, 6

#: Queues, and their lengths (Scratchpad.scala, MeshWithDelays.scala, TLBuffer of rocket-chip); 0: of the configuration.
#: D: beats and acknowledgements from the memory, A: requests to it. The last three are piped.
LOADS, TRANSPOSES, EXECUTES, STORES, DISPATCH, NORM, PASSED, SCALE, SCALING, TAGS, TOTALS = range(11)
A_READ, A_WRITE, A_OUT, D_IN, D_READ, D_WRITE, READS, CONTROL, ISSUE = range(11, 20)
LENGTHS = (0, 2, 0, 0, 2, 6, 2, 6, 3, 6, 6, 2, 2, 2, 2, 2, 2, 5, 5, 5)
#: Where the queues lie, and what is in each: elements, the place of the first, the length, the cycle in which an
#: element left last with the number that did (two bits); then the elements in a ring.
QUEUES = 272
COUNT, HEAD, LENGTH, LEFT, ITEMS = range(5)
RING = 128
PER_QUEUE = ITEMS + RING

#: Tables, with rows of 16 columns: banks of the accumulator; load states; the station's entries (64 of each queue), and
#: those not issued, in order; rows between reader and memories, between store controller and writer; commands for the
#: execute controller; what it asks of the array; tags of its results; rows in it; loads and stores in the trackers;
#: read transactions; answers to come.
WIDTH = 16
TABLES = QUEUES + len(LENGTHS) * PER_QUEUE
_LENGTHS = 64, 4, 192, RING, RING, RING, RING, RING, RING, 512, 516, 516, 1024, 2048
_PLACES = tuple(TABLES + WIDTH * sum(_LENGTHS[:table]) for table in range(len(_LENGTHS) + 1))
ACC_BANK, STATES, ENTRIES, WAITING, MOVED, STORED, COMMANDS, OPS, TAGGED = _PLACES[:9]
OUT, LOADED, STORE_SLOTS, TRANSACTIONS, MEMORY, END = _PLACES[9:]
OUT_RING = 512

#: What a word of an operand names.
ABSENT, IN_SPAD, IN_ACC = range(3)


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
    lg = int.bit_length
    m[[DIM, LG_DIM]] = config.dim, lg(config.dim) - 1
    m[[SPAD, LG_SPAD_BANK]] = config.all_spad_rows - 1, lg(config.spad_rows) - 1
    m[[ACC, LG_ACC_BANK]] = config.acc_rows - 1, lg(config.acc_rows // config.acc_banks) - 1
    m[ROWS] = (1 << config.row_bits) - 1
    m[GARBAGE] = 0b111 << 29 | 1 << config.row_bits | (1 << config.row_bits) - 1
    m[[DMA_BYTES, LG_BUS]] = config.dma_bytes, lg(config.bus_bytes) - 1
    m[[MAX_READS, MAX_WRITES]] = config.reads_in_flight, config.writes_in_flight
    m[[SLOTS, LATENCY, ONLY_WS]] = config.reads_in_flight // config.dim + 1, latency, config.dataflow == "ws"
    queues = m[QUEUES:TABLES].reshape(-1, PER_QUEUE)
    queues[:, LENGTH], queues[:, LEFT] = LENGTHS, -1
    queues[[LOADS, EXECUTES, STORES], LENGTH] = config.queue_load, config.queue_execute, config.queue_store
    m[ACC_BANK:STATES] = -1  # rows being written: see moves.py
    m[OS] = config.dataflow != "ws"
    none = [READER, READER + 1, WRITER, WRITER + 1, PENDING, PENDING + 1]  # see bus.py
    m[none] = -1
    return m


@part
def at(table: int, row: int) -> int:
    """Return the place of a row of a table."""
    return table + WIDTH * row


@part
def count(m: Array, queue: int) -> int:
    """Return the elements of a queue."""
    return m[QUEUES + queue * PER_QUEUE + COUNT]


@part
def ready(m: Array, queue: int, t: int) -> bool:
    """Return whether a queue takes an element in cycle `t`."""
    q = QUEUES + queue * PER_QUEUE
    left = m[q + LEFT]
    return m[q + COUNT] + (left & 3 if left >> 2 == t else 0) < m[q + LENGTH]


@part
def push(m: Array, queue: int, value: int) -> None:
    """Put an element into a queue that is ready."""
    q = QUEUES + queue * PER_QUEUE
    m[q + ITEMS + ((m[q + HEAD] + m[q + COUNT]) & (RING - 1))] = value
    m[q + COUNT] += 1
    m[ACTIVE] = 1


@part
def peek(m: Array, queue: int, place: int) -> int:
    """Return the element at a place behind the first."""
    q = QUEUES + queue * PER_QUEUE
    return m[q + ITEMS + ((m[q + HEAD] + place) & (RING - 1))]


@part
def pop(m: Array, queue: int, t: int) -> int:
    """Take the first element of an ordinary queue, at most three times in a cycle."""
    left = QUEUES + queue * PER_QUEUE + LEFT
    m[left] = m[left] + 1 if m[left] >> 2 == t else t << 2 | 1
    return take(m, queue)


@part
def take(m: Array, queue: int) -> int:
    """Take the first element of a piped queue."""
    q = QUEUES + queue * PER_QUEUE
    head = m[q + HEAD]
    m[q + HEAD] = (head + 1) & (RING - 1)
    m[q + COUNT] -= 1
    m[ACTIVE] = 1
    return m[q + ITEMS + head]


@part
def is_acc(word: int) -> int:
    """Return 1 if a word has an address of the accumulator, else 0."""
    return word >> 31 & 1


@part
def is_garbage(m: Array, word: int) -> bool:
    """Return whether an operand's word has the address that stands for none (LocalAddr.scala)."""
    return (word & m[GARBAGE]) == m[GARBAGE]


@part
def local(m: Array, word: int) -> tuple[int, int]:
    """Return the kind and the row of an operand's word: ABSENT, IN_SPAD or IN_ACC."""
    if is_garbage(m, word):
        return ABSENT, 0
    if is_acc(word):
        return IN_ACC, word & m[ACC]
    return IN_SPAD, word & m[SPAD]


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
