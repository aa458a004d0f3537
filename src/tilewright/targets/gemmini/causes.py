"""The causes of cycles on Gemmini: the meaning of each cause, and its remedy.

Each cycle has one cause: a wait of the execute controller, or `execute` while that controller works.
"""

from __future__ import annotations

from tilewright.sim.causes import DRAIN
from tilewright.sim.figures import Definition

CAUSES = {
    "execute": Definition(
        "The execute controller has a command: the array multiplies, or its rows wait for a bank.",
        "This is the useful work: use a larger array, tiles of whole blocks, and A and B in different banks.",
    ),
    "command token": Definition(
        "A controller is idle because its next command has not arrived or has no place in the reservation station.",
        "Use hardware loops instead of single commands, or a reservation station with more entries (`rs_execute`).",
    ),
    "load token": Definition(
        "A controller waits until a load (mvin) that it depends on has finished.",
        "Load earlier, into the other half of the scratchpad, or allow more requests in flight (`reads_in_flight`).",
    ),
    "execute token": Definition(
        "A controller waits until a preload or compute that it depends on has finished.",
        "Divide the scratchpad or the accumulator between two tiles, so that the commands do not overlap in rows.",
    ),
    "store token": Definition(
        "A controller waits until a store (mvout) that it depends on has read its rows.",
        "Divide the accumulator between two tiles, or allow more requests in flight (`writes_in_flight`).",
    ),
    **DRAIN,
}
