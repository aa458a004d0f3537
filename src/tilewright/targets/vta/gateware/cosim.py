"""Run a launch (one instruction stream with its data) on the compiled gateware, and compare it with the simulator.

The comparison covers the cycles of each instruction, the bytes that each STORE writes, and the final contents of DRAM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.hdl.model import Compiled, Wave, Written
from tilewright.program.launch_image import Dram, LaunchImage
from tilewright.sim.passes import RunOptions
from tilewright.sim.steps import Trace
from tilewright.targets.gateware import CosimCase
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import REGIONS, Memory
from tilewright.targets.vta.isa.stream import decode
from tilewright.targets.vta.passes import Prepared, prepare
from tilewright.targets.vta.runtime.driver import contents, loaded
from tilewright.targets.vta.steps.elaborate import Elaborated
from tilewright.targets.vta.steps.moves import Move
from tilewright.targets.vta.values.actions import actions
from tilewright.targets.vta.values.machine import Machine

#: A run is stopped after this number of cycles plus 100 cycles per byte of memory.
PATIENCE = 1 << 20
#: The RTL model's cycles for the launch pulse. The next cycle is cycle 0 of a Trace.
LAUNCH = 1


@dataclass(frozen=True, eq=False)
class RtlRun:
    """The outcome of a launch on the RTL. `start`, `end` int64 [n]: each instruction's cycle as in a Trace, or -1."""

    start: Array
    end: Array
    cycles: int
    faults: int  # beats that are outside DRAM, or do not match their burst command
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
    """Run an instruction stream (uint8 [n, 16]) on the compiled RTL. The run changes `dram`, the DRAM of one sample.

    `stalls`: a seed for random delays of the memory, or 0 for no delays.
    """
    memory, base = loaded(dram, insns)
    model = compiled(config, engine).model()
    if wave:
        model.wave(wave.path, wave.first + LAUNCH, wave.last + LAUNCH)
    attached = model.attach("bus", memory, config.dram_latency, stalls)
    for number, (unit, what) in enumerate((u, w) for u in config.pipeline.units for w in ("starts", "ends")):
        model.watch(f"{unit}_{what}", number)
    model["insn_base"] = base
    model["insn_count"] = len(insns)
    model["launch"] = 1
    for name in REGIONS:
        model[f"{name}_base"] = bases[name]
    model.step()
    model["launch"] = 0
    model.run_until_logged(2 * len(insns), PATIENCE + 100 * memory.size)
    for segment in dram.segments:
        left = memory[segment.address : segment.end]
        if not np.array_equal(left, segment.data[0]):  # copy: other launches may share the array
            segment.data = left.reshape(1, -1).copy()
            segment.shared = False
    written = model.written(attached)
    written = written._replace(cycle=written.cycle - LAUNCH)
    return _timed(insns, config, model.events, model.faults(attached), written)


def component(config: Config) -> Any:
    from tilewright.targets.vta.gateware.top import Vta

    return Vta(config)


def compiled(config: Config, engine: str) -> Compiled:
    """Return the gateware of a configuration, compiled for the RTL simulator `engine`. The result is cached."""
    if config.own_alu:  # the user's own lanes are in files that may change
        return Compiled(component(config), engine=engine)
    return Compiled.of_machine(component, config, engine)


def _timed(insns: Array, config: Config, events: Array, faults: int, written: Written) -> RtlRun:
    units = config.pipeline.units_of(decode(insns, config))
    start, end = np.full(len(insns), -1, np.int64), np.full(len(insns), -1, np.int64)
    for number in range(2 * len(config.pipeline.units)):
        mine = np.flatnonzero(units == number // 2)
        cycles = events[events[:, 0] == number, 1]
        if len(cycles) > len(mine):
            raise MachineError("RTL", f"{config.pipeline.units[number // 2]} ran more instructions than it was given")
        # The RTL marks the last cycle of a step; a Trace has the next cycle.
        (end if number % 2 else start)[mine[: len(cycles)]] = cycles - LAUNCH + number % 2
    return RtlRun(start, end, int(end.max(initial=0)), faults, written)


# Comparison with the simulator

OPTIONS = RunOptions(timing="tilewright", values=False)
#: The number of differences to report. Later differences mostly follow from the first.
TOLD = 8


def compare(name: str, image: LaunchImage, config: Config, inputs: Mapping[str, Array], engine: str) -> CosimCase:
    """Run the first sample of `inputs` on the RTL and in the simulator; return the outcome of the comparison.

    Raises HazardError if the program cannot run to its end.
    """
    first = {segment: data[:1] for segment, data in inputs.items()}
    modelled = image.dram(first, 1)
    ran = image.dram(first, 1)
    before = contents(modelled)
    prepared = prepare(image.insns, config, modelled, image.bases, OPTIONS)
    prepared.passes.refuse(OPTIONS)
    result = run(image.insns, config, ran, image.bases, engine)
    trace = prepared.trace
    assert trace is not None  # without a trace, `refuse` has raised an error
    stored = _differences(prepared, modelled, before, _written(prepared, modelled), result)
    differences = [*_times(prepared.elaborated, trace, result), *stored]
    bytes_, left = _left(modelled, ran)
    if bytes_ and not differences:  # no STORE differs
        differences.append((result.cycles, left))
    if result.faults:
        reason = f"{result.faults} DRAM accesses of the RTL are outside DRAM or do not match their burst command"
        differences.append((result.cycles, reason))
    differences.sort(key=lambda item: item[0])
    return CosimCase(
        name,
        len(image.insns),
        trace.cycles,
        result.cycles,
        bytes_,
        tuple(message for _, message in differences[:TOLD]),
        differences[0][0] if differences else None,
    )


def waveform(
    image: LaunchImage, config: Config, inputs: Mapping[str, Array], path: Path, cycles: tuple[int, int] | None
) -> None:
    """Write a waveform of `cycles` (first, last; None: all), with CXXRTL, as our Verilator build has no waveforms."""
    first, last = cycles or (0, 1 << 40)
    dram = image.dram({segment: data[:1] for segment, data in inputs.items()}, 1)
    run(image.insns, config, dram, image.bases, "cxxrtl", wave=Wave(path, max(0, first), last))


def _times(program: Elaborated, trace: Trace, result: RtlRun) -> list[tuple[int, str]]:
    """Return, for each different start or end of an instruction, the earlier of the two cycles and a message."""
    differences = []
    for what, ours, theirs in (("starts", trace.start, result.start), ("ends", trace.end, result.end)):
        for step in np.flatnonzero(ours != theirs).tolist():
            unit = program.table.units[program.table.unit[step]]
            rtl = f"in cycle {theirs[step]}" if theirs[step] >= 0 else "never"
            message = (
                f"#{step} {program.table.describe(step)}: {unit}_{what} {rtl} on the RTL, {ours[step]} in the simulator"
            )
            differences.append((int(min(ours[step], theirs[step] if theirs[step] >= 0 else ours[step])), message))
    return differences


def _left(modelled: Dram, ran: Dram) -> tuple[int, str]:
    """Return the number of final DRAM bytes that differ between simulator and RTL, and a message about the first."""
    count = 0
    first = ""
    for segment, on_rtl in zip(modelled.segments, ran.segments, strict=True):
        wrong = np.flatnonzero(segment.data[0] != on_rtl.data[0])
        count += wrong.size
        for place in wrong[: not first].tolist():
            ours = segment.data[0, place]
            theirs = on_rtl.data[0, place]
            first = f"{segment.name}[{place}] is {theirs:#04x} on the RTL at the end, {ours:#04x} in the simulator"
    return count, first


#: The bus signals that messages name: the data, and the command that determines the address of a beat.
DATA = "bus__w__payload"
COMMAND = "bus__aw__payload"


class Stored(NamedTuple):
    """A simulated STORE (`step`, `move`). `left` uint8 [rows, row_bytes]: the DRAM rows that the STORE wrote."""

    step: int
    move: Move
    left: Array


def _written(prepared: Prepared, dram: Dram) -> list[Stored]:
    """Simulate the program on `dram` (one sample); return the STOREs in stream order, with the rows they write."""
    program = prepared.elaborated
    sequence = prepared.order.sequence
    machine = Machine(program.config, dram, 1)
    stores_run = []
    stores = iter(sequence[program.moves.memory[sequence] == Memory.OUT].tolist())
    for action in actions(program, sequence, prepared.stored_resets):
        machine.run((action,))
        move = action.work
        if isinstance(move, Move) and move.memory == Memory.OUT:
            # Actions keep the order of the STOREs, so the next STORE of the sequence belongs to this action.
            step = next(stores)
            if move.rows and move.row_bytes:
                window = dram.window(move.address, move.rows, move.row_bytes, move.stride, action.where)
                stores_run.append(Stored(step, move, window[0].copy()))
    return stores_run


def _differences(
    prepared: Prepared, dram: Dram, memory: Array, stored: list[Stored], result: RtlRun
) -> list[tuple[int, str]]:
    """Return the cycle and a message for each STORE that differs: its first wrong byte, missing beat or extra beat.

    `memory` is the initial DRAM by address, uint8, and is changed; `dram` names its segments. The search ends at a
    missing beat: later beats cannot be assigned to STOREs.
    """
    beats = result.written
    differences = list[tuple[int, str]]()
    done = 0
    count, width = beats.data.shape
    for step, move, left in stored:
        name = f"#{step} {prepared.elaborated.table.describe(step)}"
        starts = move.address + np.arange(move.rows) * move.stride
        # Each row is a number of whole beats. On the bus, the beats of STOREs are in stream order.
        many = int(((starts + move.row_bytes - 1) // width - starts // width + 1).sum())
        mine = slice(done, min(done + many, count))
        places = beats.address[mine, None] + np.arange(width)
        strobes = beats.strobes[mine] & (places < memory.size)
        memory[places[strobes]] = beats.data[mine][strobes]
        done += many
        if done > count:
            differences.append((result.cycles, f"{name}: {done - count} of its {many} beats are missing on {DATA}"))
            break
        rows = starts[:, None] + np.arange(move.row_bytes)
        stray = np.flatnonzero((strobes & ~np.isin(places, rows)).any(axis=1))
        wrong = np.argwhere(memory[rows] != left)
        if stray.size:
            beat = int(beats.cycle[mine][stray[0]])
            place = int(beats.address[mine][stray[0]])
            differences.append((beat, f"{name}: {COMMAND} sends a beat to {_where(dram, place)} in cycle {beat}"))
        elif wrong.size:
            place = int(rows[tuple(wrong[0])])
            by = np.flatnonzero((strobes & (places == place)).any(axis=1))
            beat = int(beats.cycle[mine][by[-1] if by.size else -1])
            ours = left[tuple(wrong[0])]
            theirs = memory[place]
            reason = f"has {theirs:#04x} in cycle {beat} on the RTL, {ours:#04x} in the simulator"
            differences.append((beat, f"{name}: {DATA} for {_where(dram, place)} {reason}"))
        memory[rows] = left  # a difference does not affect the comparison of later STOREs
    else:
        if done < count:
            beat = int(beats.cycle[done])
            where = _where(dram, int(beats.address[done]))
            differences.append((beat, f"after the last STORE: {DATA} has an extra beat for {where} in cycle {beat}"))
    return differences


def _where(dram: Dram, place: int) -> str:
    """Return the name of the DRAM byte at address `place` for messages: "segment[offset]", or the address."""
    for segment in dram.segments:
        if segment.address <= place < segment.end:
            return f"{segment.name}[{place - segment.address}]"
    return f"byte {place:#x}"
