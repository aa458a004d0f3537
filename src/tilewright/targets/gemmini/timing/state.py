"""The shared state of the units: parameters of the machine, wires, and registers.

A wire carries a value from one unit to other units within a cycle. The units run in a fixed order (clock.step_units),
so that each wire is set before it is read.
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
    lg_dim = FIXED  # lg: the binary logarithm
    spad = FIXED  # the mask that wraps rows of the scratchpad
    lg_spad_bank = FIXED
    acc = FIXED  # the mask that wraps rows of the accumulator
    lg_acc_bank = FIXED
    rows = FIXED  # the mask of the row in a local address
    garbage = FIXED  # the bits that the hardware tests for "no operand"
    dma_bytes = FIXED
    lg_bus = FIXED
    max_reads = FIXED
    max_writes = FIXED
    slots = FIXED  # the number of commands that each tracker of the DMA can store
    latency = FIXED
    only_ws = FIXED
    normalises = FIXED  # whether the machine has a normaliser
    of_2025 = FIXED  # whether the revision of the RTL is that of 2025 (config.py: rtl)
    scales = FIXED  # whether the program scales any load; otherwise the round-robin position of the lanes is irrelevant
    holders = saved(RULE.wire, size=7)  # see find_configurations
    active = WIRE  # whether a register changed in this cycle
    ex_done = WIRE  # the station's entry of the command that a controller completes, or -1
    ld_done = WIRE  # the tracker slot of the load that completes, or -1
    st_done = WIRE
    spad_writes = WIRE  # a bit mask of the banks that are written
    acc_writes = WIRE  # a bit mask of the banks for which a write is offered
    acc_adds = WIRE
    ex_reads = WIRE  # a bit mask of the banks that the array reads
    progress = WIRE  # a count of rows and beats that moved; if the count stays constant, the run is stalled (clock.py)
    number = saved(size=3)  # for each queue, the number of station entries in use
    lone = PLAIN  # whether the newest execute command is a preload without its compute
    loads_used = PLAIN  # the number of tracker slots in use
    stores_used = PLAIN
    zeros_valid = PLAIN  # whether there is a row of zeros to write
    zeros_slot = PLAIN
    zeros_address = saved(RULE.local, when="zeros_valid")
    zeros_column = PLAIN
    pending = saved(RULE.entry, among=EX, size=2, reset=-1)  # the complete entries that are not reported yet
    os = PLAIN  # whether the dataflow is output-stationary
    c_stride = PLAIN
    ex_state = PLAIN  # the state of the execute controller
    next_command = POINTER  # the next index into the table of commands
    first_out = POINTER
    rows_out = PLAIN  # the number of rows in the array
    may_ask = PLAIN  # whether an operation of the array can begin in this cycle
    asked = PLAIN  # whether an operation has begun
    pipe = PLAIN  # a bit mask of the occupied stages of the scale pipeline
    full = PLAIN  # whether the first stage is stalled
    first_answer = POINTER
    answers = PLAIN  # the number of responses that the memory will send
    acc_fetched = PLAIN  # a bit mask of the accumulator banks from which the writer's row is being read
    acc_held = PLAIN  # a bit mask of the banks whose row waits for the writer


class MoveState:
    """The states of the load controller and of the store controller."""

    waiting: int
    waiting_dma: int
    sending: int


class Bank:
    """The rows that are being written in one bank of the accumulator (see moves.write_mark)."""

    rows = saved(RULE.wire, size=4, reset=-1)


class Pipe:
    """The rows on their way out of the scratchpad. Each field is a bit mask of banks.

    A bank's pipe has the stages `first` to `last`. In the RTL of 2025, these are the four places of a queue, whose head
    is `last`.
    """

    fetched = PLAIN
    held = PLAIN  # the row is in the bank
    first = PLAIN
    second = PLAIN
    third = PLAIN
    last = PLAIN
    under_way = PLAIN  # whether any row is in a pipe


SHARED = registers(Shared, 0)
MOVE_STATE = columns(MoveState)
TO_ARRAY = registers(Pipe, 1)
TO_WRITER = registers(Pipe, 2)
ACC_BANKS = table(Bank, "acc_banks")


LG_PAGE = 12


@part
def advance(stages: int, last: int) -> int:
    """Return the occupied stages of a pipeline one cycle later, with one bit per stage (Pipeline.scala)."""
    # The caller drains the last stage. A stage stalls only if all later stages are occupied, so an empty stage is
    # filled even while the end of the pipeline stalls.
    stalled = 0
    if stages & last:
        stalled = stop = last
        while stages & stop >> 1:
            stop >>= 1
            stalled |= stop
    return (stages & ~stalled) << 1 | stalled
