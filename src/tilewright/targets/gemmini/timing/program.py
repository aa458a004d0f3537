"""The program that the machine runs, and the configuration that applies to each command.

The hardware stores configurations in registers. Each queue issues its commands in order, so program order determines
the configuration of each command. The model finds all configurations before the run, so it needs no configuration
registers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.isa.fields import ConfigUnit, Funct
from tilewright.targets.gemmini.isa.work import EX, LD, NONE, SCALE_ONE
from tilewright.targets.gemmini.loops import Expansion
from tilewright.targets.gemmini.timing.state import SHARED

#: The functs as plain numbers: compiled loops do not support IntEnum.
CONFIG, MVIN2, PRELOAD, MVIN3 = (int(funct) for funct in (Funct.CONFIG, Funct.MVIN2, Funct.PRELOAD, Funct.MVIN3))
COMPUTE_FLIP = int(Funct.COMPUTE_PRELOADED)
COMPUTE_STAY = int(Funct.COMPUTE_ACCUMULATED)
CONFIG_NORM = int(ConfigUnit.NORM)
#: A config_ld can select four load states, of which the three mvins use one each.
LOAD_STATES = 4


class Program(NamedTuple):
    """The primitive commands of a program, and the recorded times of a run."""

    prims: Array  # int64 [m, 3]
    unroller: Array  # int64 [m]
    queue: Array  # int64 [m]: the queue of the reservation station
    config: Array  # int64 [m]: the configuration that applies to a command, or NONE
    whole: Array  # int64 [m]: the last config_ex that set more than strides, or NONE
    times: Array  # int64 [m, 3]: the cycles in which a command is accepted, issued and done
    order: Array  # int64 [m]


def record(expansion: Expansion) -> Program:
    """Return an expanded program with all times set to -1."""
    m = len(expansion.prims)
    prims = np.ascontiguousarray(expansion.prims).view(np.int64)
    unroller = expansion.unroller.astype(np.int64)
    queue = expansion.kind.astype(np.int64)
    config, whole, order = np.full((3, m), -1, np.int64)
    return Program(prims, unroller, queue, config, whole, np.full((m, 3), -1, np.int64), order)


def find_configurations(m: Array, p: Program) -> None:
    """Set the configuration of each command. There is one configuration per load state, and one per other queue."""
    for holder in range(LOAD_STATES + 3):
        m[SHARED.holders + holder] = NONE
    whole = NONE
    for x in range(p.queue.shape[0]):
        q = p.queue[x]
        funct = p.prims[x, 0] & 127
        rs1 = p.prims[x, 1]
        holder = SHARED.holders + LOAD_STATES + q
        if q == LD:
            holder = SHARED.holders + (
                rs1 >> 3 & 3 if funct == CONFIG else 1 if funct == MVIN2 else 2 * (funct == MVIN3)
            )
        if funct == CONFIG and rs1 & 3 != CONFIG_NORM:
            m[holder] = x
            if q == EX and not rs1 >> 7 & 1:
                whole = x
            if q == LD and rs1 >> 32 & 0xFFFFFFFF != SCALE_ONE:
                m[SHARED.scales] = 1
        p.config[x] = m[holder]
        p.whole[x] = whole


@part
def configured(p: Program, prim: int, word: int) -> int:
    """Return a word of the configuration that applies to a command; 0 without a configuration."""
    return p.prims[p.config[prim], word] if p.config[prim] >= 0 else 0
