"""The program that the machine runs, and the configuration that counts for each of its commands."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.isa.fields import Configured, Funct
from tilewright.targets.gemmini.isa.work import EX, LD, NONE
from tilewright.targets.gemmini.loops import Expansion
from tilewright.targets.gemmini.timing.state import CHIP

#: The commands, as plain numbers for compiled loops.
CONFIG, MVIN2, PRELOAD, MVIN3 = (int(each) for each in (Funct.CONFIG, Funct.MVIN2, Funct.PRELOAD, Funct.MVIN3))
COMPUTE_FLIP = int(Funct.COMPUTE_PRELOADED)
COMPUTE_STAY = int(Funct.COMPUTE_ACCUMULATED)
CONFIG_NORM = int(Configured.NORM)
#: The float32 scale 1.0, which passes the scale unit at once.
ONE = 0x3F800000
#: Load states that a configuration may name; loads use three.
LOAD_STATES = 4


class Program(NamedTuple):
    """The primitive commands, and what is recorded of them."""

    prims: Array  # int64 [m, 3]
    unroller: Array  # int64 [m]
    queue: Array  # int64 [m]: of the reservation station
    config: Array  # int64 [m]: the configuration that counts for a command, or NONE
    whole: Array  # int64 [m]: of execute commands, the same without those that set strides only
    times: Array  # int64 [m, 3]: taken, issued, done
    order: Array  # int64 [m]


def record(expansion: Expansion) -> Program:
    """Return an expanded program, of which nothing is recorded."""
    m = len(expansion.prims)
    prims = np.ascontiguousarray(expansion.prims).view(np.int64)
    unroller = expansion.unroller.astype(np.int64)
    queue = expansion.kind.astype(np.int64)
    config, whole, order = np.full((3, m), -1, np.int64)
    return Program(prims, unroller, queue, config, whole, np.full((m, 3), -1, np.int64), order)


def find_configurations(m: Array, p: Program) -> None:
    """Set the configuration of each command: a queue has one, that of loads one for each load state."""
    for holder in range(LOAD_STATES + 3):
        m[CHIP.holders + holder] = NONE
    whole = NONE
    for x in range(p.queue.shape[0]):
        q = p.queue[x]
        funct = p.prims[x, 0] & 127
        rs1 = p.prims[x, 1]
        holder = CHIP.holders + LOAD_STATES + q
        if q == LD:
            holder = CHIP.holders + (rs1 >> 3 & 3 if funct == CONFIG else 1 if funct == MVIN2 else 2 * (funct == MVIN3))
        if funct == CONFIG and rs1 & 3 != CONFIG_NORM:
            m[holder] = x
            if q == EX and not rs1 >> 7 & 1:
                whole = x
            if q == LD and rs1 >> 32 & 0xFFFFFFFF != ONE:
                m[CHIP.scales] = 1
        p.config[x] = m[holder]
        p.whole[x] = whole


@part
def configured(p: Program, prim: int, word: int) -> int:
    """Return a word of the configuration that counts for a command, or 0."""
    return p.prims[p.config[prim], word] if p.config[prim] >= 0 else 0
