"""Bank conflicts, as a **model**: the machine's own rule and its cost are not published, and nothing here was measured.

A bank serves one access a cycle. A compute command whose operands and results share a bank takes as many passes as
the busiest of its banks has of them. A transfer that runs while a compute command uses one of its banks waits for as
long as both run. The vendor's estimate knows neither.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from tilewright.array import Array
from tilewright.sim.steps import Trace
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.operations import DMA, TIU
from tilewright.targets.bm1684x.layouts.operand import Operand
from tilewright.targets.bm1684x.layouts.tensor import storage_of


def banks(operand: Operand, config: Config) -> range:
    """Banks of local memory from an operand's first byte to its last; none outside."""
    tensor = storage_of(operand)
    if tensor is None or not tensor.is_local:
        return range(0)
    return range(tensor.lane_offset // config.bank_bytes, (tensor.lane_end - 1) // config.bank_bytes + 1)


def _places(command: Command) -> set[Operand]:
    """Operands and results in memory, one that is both once: the estimate knows that it is."""
    places = (*command.operands.values(), *command.results.values())
    return {place for place in places if not isinstance(place, Constant)}


def passes(command: Command, config: Config) -> int:
    """How often a compute command goes through its busiest bank: 1 without a conflict."""
    if command.operation.engine != TIU:
        return 1
    used = Counter(bank for place in _places(command) for bank in banks(place, config))
    return max(used.values(), default=1)


def waits(commands: tuple[Command, ...], trace: Trace, config: Config) -> Array:
    """int64 [n]: cycles that each transfer waits for compute commands that use its banks while it runs."""
    engines = [command.operation.engine for command in commands]
    used = np.zeros((len(commands), config.banks), np.bool_)
    for row, command in enumerate(commands):
        for place in _places(command):
            used[row, list(banks(place, config))] = True
    compute = np.array([row for row, engine in enumerate(engines) if engine == TIU], np.int64)
    found = np.zeros(len(commands), np.int64)
    if not len(compute):
        return found
    begins, ends = trace.start[compute], trace.end[compute]  # in order of time
    for row, engine in enumerate(engines):
        if engine != DMA or not used[row].any():
            continue
        start, end = int(trace.start[row]), int(trace.end[row])
        near = slice(int(np.searchsorted(ends, start, "right")), int(np.searchsorted(begins, end, "left")))
        both = np.minimum(ends[near], end) - np.maximum(begins[near], start)
        shares = (used[compute[near]] & used[row]).any(1)
        found[row] = int(both[shares].clip(0).sum())
    return found
