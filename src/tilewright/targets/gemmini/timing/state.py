"""The state that units share: parameters of the machine, wires, and registers.

Wires carry a value from one unit to others within a cycle. The units run in a fixed order (clock.step_units), in which
each wire is set before it is read.
"""

from __future__ import annotations

from tilewright.sim.jit import part
from tilewright.targets.gemmini.isa.work import EX
from tilewright.targets.gemmini.timing.records import (
    FIXED,
    PLAIN,
    POINTER,
    RULE,
    WIRE,
    columns,
    registers,
    saved,
    table,
)


class Shared:
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
    acc_writes = WIRE  # banks that are offered a write
    acc_adds = WIRE
    ex_reads = WIRE  # banks that the array reads
    progress = WIRE  # counts steps that bring the program on; a run in which it stands still is stalled (clock.py)
    number = saved(size=3)  # of the station: entries in use in each queue
    lone = PLAIN  # whether the newest execute command is a preload, whose compute has not arrived
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


class MoveState:
    """The states of the controllers of loads and stores."""

    waiting: int
    waiting_dma: int
    sending: int


class Bank:
    """The rows of a bank of the accumulator that are being written: see moves.write_mark."""

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


SHARED = registers(Shared, 0)
MOVE_STATE = columns(MoveState)
TO_ARRAY = registers(Pipe, 1)
TO_WRITER = registers(Pipe, 2)
ACC_BANKS = table(Bank, "acc_banks")


LG_PAGE = 12


@part
def advance(stages: int, last: int) -> int:
    """Return the occupied stages of a pipeline a cycle later, a bit per stage (Pipeline.scala)."""
    # The last stage does not drain here. A stage stalls only if all stages after it are occupied: so a gap closes,
    # although the end of the pipeline stands still.
    stalled = 0
    if stages & last:
        stalled = stop = last
        while stages & stop >> 1:
            stop >>= 1
            stalled |= stop
    return (stages & ~stalled) << 1 | stalled
