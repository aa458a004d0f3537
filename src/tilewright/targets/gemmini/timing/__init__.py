"""The time of programs: the machine cycle by cycle, as the generated RTL behaves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.errors import HazardError
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.loops import Expansion
from tilewright.targets.gemmini.timing.chip import build
from tilewright.targets.gemmini.timing.machine import run_machine
from tilewright.targets.gemmini.timing.unroll import front, plan


@dataclass(frozen=True, eq=False)
class Times:
    """When the commands of a program happened, in cycles from the acceptance of the first one; -1: never.

    A command that the hardware completes at once is done when it is issued.
    """

    accept: Array  # int64 [n]: accepted by the machine; of a fence: when it found the machine idle
    taken: Array  # int64 [m]: taken by the reservation station, for each primitive command of the expansion
    issued: Array  # int64 [m]: handed to its controller
    done: Array  # int64 [m]: complete
    order: Array  # int64 [m]: the primitive commands in the order in which the reservation station took them
    cycles: int  # the cycle in which the machine is idle for good


#: Cycles after which a run ends in an error.
LIMIT = 1 << 40


def run(commands: Array, expansion: Expansion, config: Config, latency: int) -> Times:
    """Return the times of a program, uint64 [n, 3], which `expansion` holds expanded.

    `latency`: cycles from a request of the memory to its first beat. Data never influences time. Raises HazardError if
    the machine stalls for ever.
    """
    chip = build(len(commands), expansion, config, latency)
    cycles = run_machine(chip, front(), plan(expansion, config), LIMIT)
    if cycles < 0:
        waiting = np.flatnonzero((chip.times[:, 0] >= 0) & (chip.times[:, 2] < 0))
        raise HazardError("program", f"the machine stalls for ever; primitive command {waiting[:1]} never ends")
    taken, issued, done = (np.ascontiguousarray(column) for column in chip.times.T)
    return Times(chip.accept, taken, issued, done, chip.order, cycles)
