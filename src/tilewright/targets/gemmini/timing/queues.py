"""The queues of the machine: rings of numbers.

The units run from the last consumer to the first producer. So an element that enters a queue is not seen before the
next cycle, as in the hardware, where it passes a register. An ordinary queue that is full takes no element in the cycle
in which it loses one: its `ready` is a register. A piped queue does, because its `ready` also looks at the consumer
(Queue(pipe=true) of Chisel).
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.timing.layout import RING
from tilewright.targets.gemmini.timing.records import columns, queues
from tilewright.targets.gemmini.timing.state import SHARED


class QueueWords:
    """The numbers of a queue, from its place on; then the elements in a ring."""

    count: int
    head: int  # the place of the first element
    length: int
    left: int  # the cycle in which elements left last, times four, plus how many did
    items: int


class Queues:
    """The queues, with their lengths (Scratchpad.scala, MeshWithDelays.scala, TLBuffer of rocket-chip).

    D: beats and acknowledgements from the memory, A: requests to it. `reads`, `control`, `issue` are piped.
    """

    loads = 0
    transposes = 2
    executes = 0
    stores = 0
    dispatch = 2
    norm = 6
    passed = 2
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
    raw = 2  # commands of the host, on their way to the station
    to_conv = 2
    to_matmul = 2
    out = 2


QUEUE = columns(QueueWords)
Q = queues(Queues)


@part
def count(m: Array, queue: int) -> int:
    """Return the elements of a queue."""
    return m[queue + QUEUE.count]


@part
def ready(m: Array, queue: int, t: int) -> bool:
    """Return whether a queue takes an element in cycle `t`."""
    # The consumer ran first, so elements that left in this cycle still count. Of a piped queue, `left` is never set.
    left = m[queue + QUEUE.left]
    return m[queue] + (left & 3 if left >> 2 == t else 0) < m[queue + QUEUE.length]


@part
def push(m: Array, queue: int, value: int) -> None:
    """Put an element into a queue that is ready."""
    m[item(m, queue, count(m, queue))] = value
    m[queue + QUEUE.count] += 1
    m[SHARED.active] = 1


@part
def peek(m: Array, queue: int, place: int) -> int:
    """Return the element `place` places after the first one."""
    return m[item(m, queue, place)]


@part
def item(m: Array, queue: int, place: int) -> int:
    """Return the place in the machine of the element `place` places after the first one."""
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
    m[SHARED.active] = 1
    return m[queue + QUEUE.items + head]
