"""Count the events of a launch: instructions, products of the array, and the bytes between the L2 cache and DRAM."""

from __future__ import annotations

from tilewright.sim.events import Events, Part, Work
from tilewright.sim.steps import Trace

#: Events that the machine's loop does not count.
MISSING = {
    "leakage, clock and control": "the instructions do not determine them",
    "buffers of the CFU, L2 cache": "the loop does not count their accesses",
    "row activations": "the loop does not record the addresses of lines",
}


def events(trace: Trace, instructions: int, macs: int) -> Events:
    """Return the events of the operators of a launch. An instruction's event includes its fetch from the L1 cache."""
    return Events(
        macs=(Work("8x8+32", macs, (Part("multiply", 8), Part("add", 32))),),
        operations=(Work("instruction 32", instructions, (Part("instruction", 32),)),),
        read_bytes=int(trace.bytes_read.sum()) + trace.fetch_bytes,
        write_bytes=int(trace.bytes_written.sum()),
        instructions=instructions,
        cycles=trace.cycles,
        missing=MISSING,
    )
