"""A launch on the compiled gateware: the bytes it leaves in DRAM, and the cycles of each instruction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.hdl.model import Compiled, Written
from tilewright.program.launch_image import Dram
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.gateware.top import Vta
from tilewright.targets.vta.isa.fields import REGIONS
from tilewright.targets.vta.isa.stream import decode

PAGE = 1 << 12
#: Cycles without an event after which a run is given up.
PATIENCE = 1 << 20
#: The cycle of the model that a launch takes: the one behind it is a Trace's first.
LAUNCH = 1


class Wave(NamedTuple):
    """A file for a waveform, and the cycles that it shows, as a Trace counts."""

    path: Path
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class RtlRun:
    """Cycles from the one after the launch, int64 [n] each in stream order, as in a Trace; -1: it never was."""

    start: Array
    end: Array
    cycles: int
    faults: int  # DRAM accesses outside all segments' range
    written: Written  # the beats of all STOREs


def run(
    insns: Array,
    config: Config,
    dram: Dram,
    bases: Mapping[str, int],
    engine: str = "verilator",
    stalls: int = 0,
    wave: Wave | None = None,
) -> RtlRun:
    """Run an instruction stream (uint8 [n, 16]) on DRAM contents of one sample, which it changes.

    `stalls`: a seed for a memory that holds up the machine at random; 0: never.
    """
    memory = contents(dram, insns.size)
    base = memory.size - PAGE - -(-insns.size // PAGE) * PAGE
    memory[base : base + insns.size] = insns.reshape(-1)
    model = compiled(config, engine).model()
    if wave:
        model.wave(wave.path, wave.first + LAUNCH, wave.last + LAUNCH)
    attached = model.attach("bus", memory, config.dram_latency, stalls)
    for number, (unit, what) in enumerate((u, w) for u in config.pipeline.units for w in ("starts", "ends")):
        model.watch(f"{unit}_{what}", number)
    model["insn_base"], model["insn_count"], model["launch"] = base, len(insns), 1
    for name in REGIONS:
        model[f"{name}_base"] = bases[name]
    model.step()
    model["launch"] = 0
    model.run_until_logged(2 * len(insns), PATIENCE + 100 * memory.size)
    for segment in dram.segments:
        left = memory[segment.address : segment.end]
        if not np.array_equal(left, segment.data[0]):  # a shared one stays as it was for others
            segment.data, segment.shared = left.reshape(1, -1).copy(), False
    written = model.written(attached)
    written = written._replace(cycle=written.cycle - LAUNCH)
    return _timed(insns, config, model.events, model.faults(attached), written)


def contents(dram: Dram, more: int = 0) -> Array:
    """The bytes of DRAM by address, for one sample, uint8; behind them whole pages for `more`, and one."""
    top = max((segment.end for segment in dram.segments), default=0)
    memory = np.zeros((-(-top // PAGE) + -(-more // PAGE) + 1) * PAGE, np.uint8)
    for segment in dram.segments:
        memory[segment.address : segment.end] = segment.data[0]
    return memory


@lru_cache
def compiled(config: Config, engine: str) -> Compiled:
    """The machine of a config, elaborated and compiled once in a process."""
    return Compiled(Vta(config), engine=engine)


def _timed(insns: Array, config: Config, events: Array, faults: int, written: Written) -> RtlRun:
    units = config.pipeline.units_of(decode(insns, config))
    start, end = np.full(len(insns), -1, np.int64), np.full(len(insns), -1, np.int64)
    for number in range(2 * len(config.pipeline.units)):
        mine = np.flatnonzero(units == number // 2)
        cycles = events[events[:, 0] == number, 1]
        if len(cycles) > len(mine):
            raise MachineError("RTL", f"{config.pipeline.units[number // 2]} ran more instructions than it was given")
        # An end is seen in the last cycle of its step.
        (end if number % 2 else start)[mine[: len(cycles)]] = cycles - LAUNCH + number % 2
    return RtlRun(start, end, int(end.max(initial=0)), faults, written)
