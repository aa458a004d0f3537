"""Programs with their hardware loops expanded to primitive commands."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from tilewright.array import Array
from tilewright.sim.findings import Finding
from tilewright.targets.gemmini.isa.fields import codes
from tilewright.targets.gemmini.isa.work import QUEUES
from tilewright.targets.gemmini.loops.words import EXECUTE, LOAD_A, LOAD_B, LOAD_D, STORE


@dataclass(frozen=True, eq=False)
class Expansion:
    """A program of n commands as m primitive commands, those that the reservation station receives.

    The host's primitive commands and the loops lie in program order. The commands of a loop form five streams, which
    lie one after the other; the hardware merges them (timing/unroll.py).
    """

    commands: Array  # uint64 [n, 3]: funct, rs1, rs2
    prims: Array  # uint64 [m, 3]
    source: Array  # int64 [m]: the command that a primitive command comes from
    unroller: Array  # int8 [m]: HOST, MATMUL or CONV (registers.py)
    at: Array  # int64 [m, 3]: see words.CommandStream
    idle: Array  # int64 [m]: see words.CommandStream
    entry: Array  # int64 [n]: the primitive command of a command, -1 if there is none
    run: Array  # int64 [n]: the loop that a command starts, -1 if it starts none
    starts: Array  # int64 [L, 6]: where the five streams of each loop begin in `prims`, and where the last one ends
    residual: Array  # bool [L]: the loop is a residual addition
    tail: Array  # int64 [L]: see words.CommandStream, of the execute stream
    findings: tuple[Finding, ...]  # races between loops in flight (flight.py)

    @cached_property
    def kind(self) -> Array:
        """int8 [m]: the queue of each primitive command, LD, EX or ST."""
        kind: Array = QUEUES[codes(self.prims)].astype(np.int8)
        return kind

    @cached_property
    def order(self) -> Array:
        """int64 [m]: a legal program order, as indices into `prims`.

        Loops run one after the other. Within a loop, loads come first: of a residual addition, B is added to A.
        """
        order = np.arange(len(self.prims))
        for starts in self.starts:
            parts = [np.arange(low, high) for low, high in pairwise(starts)]
            order[starts[0] : starts[-1]] = np.concatenate([parts[x] for x in (LOAD_D, LOAD_A, LOAD_B, EXECUTE, STORE)])
        return order

    def canonical(self) -> Array:
        """Return the primitive commands in the program order of `order`, uint64 [m, 3]."""
        ordered: Array = self.prims[self.order]
        return ordered
