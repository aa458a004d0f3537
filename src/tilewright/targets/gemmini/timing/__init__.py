"""The simulation of a program's time: a cycle-by-cycle model of the machine that behaves like the generated RTL.

`clock.py` steps the units. Each unit has one file with its registers: `unroll.py` and `unroll_streams.py` (front end),
`station.py` (reservation station), `load.py`, `store.py` and `controller.py` (the three controllers), `array.py`,
`moves.py` (rows that enter the memories), `writer.py` and `bus.py` (DMA and memory).

`layout.py` and `records.py` declare state, and `state.py` has the state that units share. All units use `queues.py`,
`operands.py` and `program.py`. `repeat.py` skips sections of a program that repeat earlier sections: `snapshot.py` and
`archive.py` save the state, `equivalent.py` compares commands, and `memo.py` stores snapshots and comparisons.

Units, names and rules follow the Chisel source (ucb-bar/gemmini at 8c3f992). Each file names its sources. [R] marks
numbers that were measured on the RTL (docs/gemmini.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.errors import HazardError
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.work import ST
from tilewright.targets.gemmini.loops import Expansion
from tilewright.targets.gemmini.timing.bus import WRITER
from tilewright.targets.gemmini.timing.clock import UNFINISHED, run_machine
from tilewright.targets.gemmini.timing.layout import END, PER_QUEUE, QUEUES, TABLES
from tilewright.targets.gemmini.timing.program import record
from tilewright.targets.gemmini.timing.queues import QUEUE, Q
from tilewright.targets.gemmini.timing.records import LENGTHS, reset
from tilewright.targets.gemmini.timing.repeat import memo
from tilewright.targets.gemmini.timing.state import SHARED
from tilewright.targets.gemmini.timing.unroll import plan
from tilewright.targets.gemmini.timing.writer import IN_REQUEST

#: A run ends after this number of cycles.
LIMIT = 1 << 32
#: Uncompiled Python simulates at most this number of cycles. A longer run restarts at cycle 0 in compiled code.
FEW = 1 << 15
#: The approximate time that the uncompiled model takes for one primitive command, in microseconds.
UNCOMPILED = 12_000


@dataclass(frozen=True, eq=False)
class Times:
    """The times of a program's commands, in cycles from the acceptance of the first command; -1 stands for never.

    If the hardware completes a command immediately, `done` equals `issued`.
    """

    accept: Array  # int64 [n]: the cycle in which the machine accepts a command (a fence: in which the machine is idle)
    taken: Array  # int64 [m]: the cycle in which the reservation station accepts a primitive command
    issued: Array  # int64 [m]: the cycle of issue to a controller
    done: Array  # int64 [m]: the cycle of completion
    order: Array  # int64 [m]: the primitive commands in the order in which the reservation station accepted them
    cycles: int  # the cycle from which the machine stays idle


def run(commands: Array, expansion: Expansion, config: Config, latency: int) -> Times:
    """Return the times of a program, uint64 [n, 3], whose expansion is `expansion`.

    `latency` is the number of cycles from a memory request to its first beat. Data never influences time. Raises
    HazardError if the machine stalls forever.
    """
    cycles = UNFINISHED
    for loop, limit in ((run_machine.python, FEW), (run_machine.interruptible, LIMIT)):
        if cycles != UNFINISHED or (limit == FEW and run_machine.due(UNCOMPILED * len(expansion.prims))):
            continue
        program = record(expansion)
        accept = np.full(len(commands), -1, np.int64)
        machine = build(config, latency)
        kept = memo(expansion, config)
        with np.errstate(over="ignore"):  # addresses wrap around, as in the compiled loop
            cycles = loop(machine, program, plan(expansion, config), accept, kept, limit)
    taken, issued, done = (np.ascontiguousarray(column) for column in program.times.T)
    if cycles < 0:
        stuck = expansion.source[(issued >= 0) & (done < 0)]
        stores = expansion.source[program.queue == ST]  # a store is done before all of its beats are written
        first = int(next(iter([*stuck, *np.flatnonzero(accept < 0), *stores[::-1]])))
        raise HazardError(
            f"command {first}", f"(funct {commands[first, 0]}) never ends, so the machine stalls; {_why(machine)}"
        )
    return Times(accept, taken, issued, done, program.order, int(cycles))


def _why(machine: Array) -> str:
    if machine[WRITER.state] == IN_REQUEST and machine[SHARED.max_writes] == 1:
        return (
            "the DMA sends no beat while all its writes are in flight, so the second beat of a single write never "
            "leaves: set writes_in_flight to 2 or more"
        )
    return (
        "the array reads no operands from the accumulator, each operand needs rows and columns, and an "
        "output-stationary product right before a weight-stationary one needs a result"
    )


def build(config: Config, latency: int) -> Array:
    """Return a machine after reset, int64 [END]."""
    m = np.zeros(END, np.int64)
    reset(m)
    lg = int.bit_length
    fixed = {
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
        "normalises": config.normaliser,
        "of_2025": config.rtl == 2025,
    }
    for name, value in fixed.items():
        m[getattr(SHARED, name)] = value
    # The configuration sets the lengths of the controllers' queues. queues.py declares the lengths of all other queues.
    rings = m[QUEUES:TABLES].reshape(-1, PER_QUEUE)
    rings[:, QUEUE.length] = LENGTHS
    rings[:, QUEUE.left] = -1
    for name in ("load", "execute", "store"):
        m[getattr(Q, f"{name}s") + QUEUE.length] = getattr(config, f"queue_{name}")
    m[SHARED.os] = config.dataflow != "ws"
    return m
