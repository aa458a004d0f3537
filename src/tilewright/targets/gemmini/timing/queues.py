"""The queues of the machine: rings of numbers.

In each cycle, the model runs every consumer before its producer. A new element of a queue is therefore visible in the
next cycle, as in the hardware, where the element passes a register. A full ordinary queue accepts no element in the
cycle in which an element leaves, because its `ready` is a register. A full piped queue accepts an element in that
cycle, because its `ready` also depends on the consumer (Queue(pipe=true) of Chisel).
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.timing.layout import RING
from tilewright.targets.gemmini.timing.records import columns, queues
from tilewright.targets.gemmini.timing.state import SHARED


class QueueWords:
    """The numbers of a queue in the machine's array. The ring of elements begins at `items`."""

    count: int
    head: int  # the index of the first element in the ring
    length: int
    left: int  # 4 * the last cycle in which elements left, plus the number of elements that left in this cycle
    items: int


class Queues:
    """The queues and their lengths (Scratchpad.scala, MeshWithDelays.scala, TLBuffer of rocket-chip).

    The channels have the names of TileLink: channel A carries requests to the memory, and channel D carries beats and
    acknowledgements from the memory. `reads`, `control` and `issue` are piped. `narrow` and `wide` lead to the scale
    units of int8 rows and of int32 rows, only in the RTL of 2025 (VectorScalarMultiplier.scala: vsm_in_q).
    """

    loads = 0
    transposes = 2
    executes = 0
    stores = 0
    dispatch = 2
    norm = 6
    passed = 2
    narrow = 2
    wide = 2
    scale = 6
    scaling = 3
    tags = 6
    totals = 6
    a_read = 2
    a_write = 2
    a_out = 2
    d_in = 2
    d_read = 2
    d_write = 2
    reads = 5
    control = 5
    issue = 5
    raw = 2  # commands of the host, before the station
    to_conv = 2
    to_matmul = 2
    out = 2


QUEUE = columns(QueueWords)
Q = queues(Queues)


@part
def count(m: Array, queue: int) -> int:
    return m[queue + QUEUE.count]


@part
def ready(m: Array, queue: int, t: int) -> bool:
    # The consumer already ran in this cycle, but a register would still count the elements that left: add them. `left`
    # is never set for a piped queue.
    left = m[queue + QUEUE.left]
    return m[queue] + (left & 3 if left >> 2 == t else 0) < m[queue + QUEUE.length]


@part
def push(m: Array, queue: int, value: int) -> None:
    m[item(m, queue, count(m, queue))] = value
    m[queue + QUEUE.count] += 1
    m[SHARED.active] = 1


@part
def peek(m: Array, queue: int, place: int) -> int:
    """Return element number `place` of a queue; the first element has number 0."""
    return m[item(m, queue, place)]


@part
def item(m: Array, queue: int, place: int) -> int:
    """Return the index of element number `place` in the machine's array."""
    return queue + QUEUE.items + ((m[queue + QUEUE.head] + place) & (RING - 1))


@part
def pop(m: Array, queue: int, t: int) -> int:
    """Remove the first element of an ordinary queue, at most 3 per cycle, because `left` counts them in 2 bits."""
    left = queue + QUEUE.left
    m[left] = m[left] + 1 if m[left] >> 2 == t else t << 2 | 1
    return take(m, queue)


@part
def take(m: Array, queue: int) -> int:
    head = m[queue + QUEUE.head]
    m[queue + QUEUE.head] = (head + 1) & (RING - 1)
    m[queue + QUEUE.count] -= 1
    m[SHARED.active] = 1
    return m[queue + QUEUE.items + head]
