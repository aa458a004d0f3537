"""The layout of the array that stores the machine's state: registers, then queues, then tables.

All state is in one array, and each number has a constant index, so compiled code accesses it as fast as a local
variable. The indices do not depend on the configuration: one compiled loop serves all machines. Sizes are maximum
sizes.
"""

from __future__ import annotations

from tilewright.sim.jit import part

#: The largest number of registers of a unit, and the number of units.
UNIT = 64
UNITS = 16
#: The largest number of columns of a table.
WIDTH = 16
#: The length of a ring, and of the ring of results. Both are powers of two, so that a mask wraps indices around.
RING = 128
OUT_RING = 512
#: The number of rows of each table. Loops and their streams belong to the two unrollers. The station has 64 entries for
#: each of three queues. `incoming` has the rows between the DMA reader and the memories, and `outgoing` has the rows
#: between the store controller and the DMA writer. `commands` and `operations` belong to the execute controller.
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
#: The index of the first queue, the size of one queue, the index of the first table, and the end of the tables.
QUEUES = UNIT * UNITS
PER_QUEUE = 4 + RING
TABLES = QUEUES + 26 * PER_QUEUE
END = TABLES + WIDTH * sum(ROWS.values())


@part
def row_offset(row: int) -> int:
    return WIDTH * row


@part
def at(column: int, row: int) -> int:
    """Return the index of a column in a row of a table, counted from the table's first number."""
    return column + WIDTH * row
