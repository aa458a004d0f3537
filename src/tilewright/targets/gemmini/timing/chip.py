"""The state of the machine: the registers of its units, and the queues between them.

The units run from the last consumer to the first producer. So an element that enters a queue is not seen before the
next cycle. An ordinary queue that is full takes no element in the cycle in which it loses one; a piped queue does.

Each unit names the entries of its own registers in its file. What several units use is named here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.loops import Expansion

#: Queues, rows of `Chip.queue`, and their lengths (Scratchpad.scala, MeshWithDelays.scala, TLBuffer of rocket-chip);
#: 0: of the configuration. D: beats and acknowledgements from the memory, A: requests to it.
LOADS, TRANSPOSES, EXECUTES, STORES, DISPATCH, NORM, PASSED, SCALE, SCALING, TAGS, TOTALS = range(11)
A_READ, A_WRITE, A_OUT, D_IN, D_READ, D_WRITE, READS, CONTROL, ISSUE = range(11, 20)
LENGTHS = (0, 2, 0, 0, 2, 6, 2, 6, 3, 6, 6, 2, 2, 2, 2, 2, 2, 5, 5, 5)
#: Entries of a queue's row: elements, position of the first, length, the cycle in which an element left last, and how
#: many did; then the elements.
COUNT, HEAD, LENGTH, LEFT_AT, LEFT, ITEMS = range(6)
#: Places of a ring, more than the longest queue has.
RING = 512
#: The cycle for those who take an element from a piped queue.
PIPED = -2

#: Entries of `Chip.wire`: a register changed in this cycle; the command that a controller completes (-1: none), an
#: entry of the station or a slot of a tracker; the banks, as bits, that are written, offered a write, offered an
#: addition, read by the array.
ACTIVE, EX_DONE, LD_DONE, ST_DONE, SPAD_WRITES, ACC_WRITES, ACC_ADDS, EX_READS, WIRES = range(9)
#: The queues of the reservation station.
LD, EX, ST = range(3)
#: What a word of an operand names.
ABSENT, IN_SPAD, IN_ACC = range(3)


class Size(NamedTuple):
    """The parameters of a machine. Sizes are powers of 2; `lg` is the logarithm."""

    dim: int
    lg_dim: int
    spad: int  # rows, less one, as a mask
    lg_spad_bank: int
    acc: int
    lg_acc_bank: int
    rows: int  # the row index in a local address, as a mask
    garbage: int  # the bits that the hardware tests for "no operand"
    dma_bytes: int
    lg_bus: int
    reads: int
    writes: int
    slots: int  # commands that a tracker of the DMA holds
    latency: int
    only_ws: bool


class Chip(NamedTuple):
    """One machine with its program, and the times that it records."""

    size: Size
    accept: Array  # int64 [n]
    prims: Array  # int64 [m, 3]
    unroller: Array  # int64 [m]
    times: Array  # int64 [m, 3]: taken, issued, done
    order: Array  # int64 [m]
    wire: Array  # int64 [WIRES]
    queue: Array  # int64 [20, ITEMS + RING]
    station: Array
    entries: Array  # int64 [3, 64, 13]: the reservation station
    waiting: Array  # int64 [3, RING]: its entries that are not issued, in order
    load: Array
    loads: Array  # int64 [slots, 15]: the loads in the tracker
    states: Array  # int64 [3, 5]: the load states
    reader: Array
    xacts: Array  # int64 [reads, 7]: its transactions
    move: Array
    rows: Array  # int64 [RING, 9]: rows between the reader and the memories
    store: Array
    stores: Array  # int64 [RING, 7]: rows between the store controller and the writer
    store_slots: Array  # int64 [slots, 3]: valid, entry, rows left
    writer: Array
    bus: Array
    memory: Array  # int64 [reads + writes, 3]: cycle of the first beat, beats, transaction
    execute: Array
    commands: Array  # int64 [RING, 4]: funct, rs1, rs2, entry
    ops: Array  # int64 [RING, 5]: what the array is asked for
    array: Array
    tags: Array  # int64 [RING, 4], by position in TAGS
    out: Array  # int64 [RING, 3]: cycle, identity and last of rows in the array
    bank: Array  # int64 [spad banks, 4]: see execute.py
    acc_bank: Array  # int64 [acc banks, 5]: a row read, a row that waits, rows of the last two writes, of a new one


def zeros(*shape: int) -> Array:
    """Return registers, int64, as they are after reset."""
    return np.zeros(shape, np.int64)


def build(n: int, expansion: Expansion, config: Config, latency: int) -> Chip:
    """Return a machine after reset, with an expanded program of `n` commands."""
    lengths = np.array(LENGTHS)
    lengths[[LOADS, EXECUTES, STORES]] = config.queue_load, config.queue_execute, config.queue_store
    queue = zeros(len(LENGTHS), ITEMS + RING)
    queue[:, LENGTH], queue[:, LEFT_AT] = lengths, -1
    slots, reads, m = config.reads_in_flight // config.dim + 1, config.reads_in_flight, len(expansion.prims)
    registers = (zeros(16 * each) for each in (2, 1, 2, 2, 2, 2, 1, 3, 1))
    station, load, reader, move, store, writer, bus, execute, array = registers
    reader[:2] = writer[:2] = execute[:2] = -1  # see the units
    execute[2] = config.dataflow != "ws"
    acc_bank = zeros(config.acc_banks, 5)
    acc_bank[:, 2:] = -1
    return Chip(
        size=_size(config, slots, latency),
        accept=np.full(n, -1, np.int64),
        prims=np.ascontiguousarray(expansion.prims).view(np.int64),
        unroller=expansion.unroller.astype(np.int64),
        times=np.full((m, 3), -1, np.int64),
        order=np.full(m, -1, np.int64),
        wire=zeros(WIRES),
        queue=queue,
        station=station,
        entries=zeros(3, 64, 13),
        waiting=zeros(3, RING),
        load=load,
        loads=zeros(slots, 15),
        states=zeros(3, 5),
        reader=reader,
        xacts=zeros(reads, 7),
        move=move,
        rows=zeros(RING, 9),
        store=store,
        stores=zeros(RING, 7),
        store_slots=zeros(slots, 3),
        writer=writer,
        bus=bus,
        memory=zeros(reads + config.writes_in_flight, 3),
        execute=execute,
        commands=zeros(RING, 4),
        ops=zeros(RING, 5),
        array=array,
        tags=zeros(RING, 4),
        out=zeros(RING, 3),
        bank=zeros(config.spad_banks, 4),
        acc_bank=acc_bank,
    )


def _size(config: Config, slots: int, latency: int) -> Size:
    """Return the parameters of a machine for compiled loops."""
    rows, bits = (1 << config.row_bits) - 1, config.row_bits
    return Size(
        dim=config.dim,
        lg_dim=config.dim.bit_length() - 1,
        spad=config.all_spad_rows - 1,
        lg_spad_bank=config.spad_rows.bit_length() - 1,
        acc=config.acc_rows - 1,
        lg_acc_bank=(config.acc_rows // config.acc_banks).bit_length() - 1,
        rows=rows,
        garbage=0b111 << 29 | 1 << bits | rows,
        dma_bytes=config.dma_bytes,
        lg_bus=config.bus_bytes.bit_length() - 1,
        reads=config.reads_in_flight,
        writes=config.writes_in_flight,
        slots=slots,
        latency=latency,
        only_ws=config.dataflow == "ws",
    )


@part
def ready(m: Chip, queue: int, t: int) -> bool:
    """Return whether a queue takes an element in cycle `t`."""
    q = m.queue[queue]
    return bool(q[COUNT] + (q[LEFT] if q[LEFT_AT] == t else 0) < q[LENGTH])


@part
def push(m: Chip, queue: int, value: int) -> None:
    """Put an element into a queue that is ready."""
    q = m.queue[queue]
    q[ITEMS + ((q[HEAD] + q[COUNT]) & (RING - 1))] = value
    q[COUNT] += 1
    m.wire[ACTIVE] = 1


@part
def peek(m: Chip, queue: int, place: int) -> int:
    """Return the element at a place behind the first."""
    q = m.queue[queue]
    return q[ITEMS + ((q[HEAD] + place) & (RING - 1))]


@part
def pop(m: Chip, queue: int, t: int) -> int:
    """Take the first element of a queue; `t` is PIPED for a piped queue."""
    q = m.queue[queue]
    head = q[HEAD]
    q[HEAD] = (head + 1) & (RING - 1)
    q[COUNT] -= 1
    q[LEFT] = q[LEFT] + 1 if q[LEFT_AT] == t and t >= 0 else 1
    q[LEFT_AT] = t
    m.wire[ACTIVE] = 1
    return q[ITEMS + head]


@part
def count(m: Chip, queue: int) -> int:
    """Return the elements of a queue."""
    return m.queue[queue, COUNT]


@part
def is_acc(word: int) -> int:
    """Return 1 if a word has an address of the accumulator, else 0."""
    return word >> 31 & 1


@part
def is_garbage(m: Chip, word: int) -> bool:
    """Return whether an operand's word has the address that stands for none (LocalAddr.scala)."""
    return (word & m.size.garbage) == m.size.garbage


@part
def local(m: Chip, word: int) -> tuple[int, int]:
    """Return the kind and the row of an operand's word: ABSENT, IN_SPAD or IN_ACC."""
    if is_garbage(m, word):
        return ABSENT, 0
    if is_acc(word):
        return IN_ACC, word & m.size.acc
    return IN_SPAD, word & m.size.spad


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
