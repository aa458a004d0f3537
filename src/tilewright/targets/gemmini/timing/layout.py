"""The layout of the array of numbers that holds the machine's state: registers, then queues, then tables.

One array of one type, at places that are known when the loop is compiled, costs no more than local variables. Places do
not depend on the configuration, so that one compiled loop serves all machines; the sizes are the largest ones.
"""

from __future__ import annotations

from tilewright.sim.jit import part

#: The most registers of a unit, and the units.
UNIT = 64
UNITS = 15
#: The most columns of a table.
WIDTH = 16
#: The places of a ring, and of the ring of results. Powers of two: indices wrap around with a mask.
RING = 128
OUT_RING = 512
#: The rows of the tables: loops that the two unrollers work on, and their five streams; banks of the accumulator; the
#: station's entries (64 of each queue), and those not issued, in order; rows between reader and memories, and between
#: store controller and writer; commands for the execute controller; what it asks of the array; tags of its results;
#: rows in it; loads and stores in the trackers; read transactions; answers to come.
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
#: Where the queues begin, the numbers of one queue, and where the tables begin and end.
QUEUES = UNIT * UNITS
PER_QUEUE = 4 + RING
TABLES = QUEUES + 24 * PER_QUEUE
END = TABLES + WIDTH * sum(ROWS.values())


@part
def row_offset(row: int) -> int:
    """Return how far a row of a table is from the first one."""
    return WIDTH * row


@part
def at(column: int, row: int) -> int:
    """Return the place of a column in a row of a table."""
    return column + WIDTH * row
