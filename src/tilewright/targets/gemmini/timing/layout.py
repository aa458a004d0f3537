"""The layout of the array that stores the machine's state: registers, then queues, then tables.

A number in one array, at a place that is known at compile time, is accessed as fast as a local variable. Places do not
depend on the configuration, so one compiled loop serves all machines. All sizes are the maximum sizes.
"""

from __future__ import annotations

from tilewright.sim.jit import part

#: The largest number of registers of a unit, and the number of units.
UNIT = 64
UNITS = 15
#: The largest number of columns of a table.
WIDTH = 16
#: The number of places of a ring, and of the ring of results: powers of two, so that a mask wraps indices around.
RING = 128
OUT_RING = 512
#: The number of rows of each table: loops in the two unrollers, and their five streams; banks of the accumulator; the
#: station's entries (64 for each queue), and the entries that are not issued, in order; rows between the reader and the
#: memories, and between the store controller and the writer; commands of the execute controller; operations that this
#: controller requests; tags of results; rows in the array; loads and stores in the trackers; read transactions; future
#: answers of the memory.
ROWS = {
    **{
        "loop_slots": 4,
        "loop_streams": 10,
        "acc_banks": 64,
        "entries": 192,
        "waiting": RING,
        "incoming": RING,
        "outgoing": RING,
    },
    **{"commands": RING, "operations": RING, "tags": RING, "results": OUT_RING, "loads": 516, "stores": 516},
    **{"transactions": 1024, "answers": 2048},
}
#: The begin of the queues, the size of one queue, and the begin and end of the tables.
QUEUES = UNIT * UNITS
PER_QUEUE = 4 + RING
TABLES = QUEUES + 24 * PER_QUEUE
END = TABLES + WIDTH * sum(ROWS.values())


@part
def row_offset(row: int) -> int:
    """Return the distance of a table row from the first row."""
    return WIDTH * row


@part
def at(column: int, row: int) -> int:
    """Return the place of a column in a row of a table."""
    return column + WIDTH * row
