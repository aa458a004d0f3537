"""Run a launch (one instruction stream with its data) on the compiled gateware, and compare it with the simulator.

The comparison covers the cycles of each instruction, the bytes that each STORE writes, and the final contents of DRAM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.hdl.model import Compiled, Model, RtlStopped, Wave, Written
from tilewright.hdl.verilog import Rtl, UserRtl
from tilewright.program.launch_image import Dram, LaunchImage
from tilewright.sim.passes import RunOptions
from tilewright.sim.steps import Trace
from tilewright.targets.gateware import CosimCase
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.gateware import user_rtl
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
    """The outcome of a launch on the RTL. `start`, `end` int64 [n]: each instruction's cycle as in a Trace, or -1.

    If the ports do not show instructions, `shows` is not set and all of these are -1. `stopped` is the reason if the
    run did not reach its end.
    """

    start: Array
    end: Array
    cycles: int
    faults: int  # beats that are outside DRAM, or do not match their burst command
    written: Written  # the beats of all STOREs
    reads: Array  # the read bursts, int64 [n, 3]: cycle, address, beats
    stopped: str = ""
    shows: bool = True


def run(
    insns: Array,
    config: Config,
    dram: Dram,
    bases: Mapping[str, int],
    rtl: Rtl = "verilator",
    stalls: int = 0,
    wave: Wave | None = None,
) -> RtlRun:
    """Run an instruction stream (uint8 [n, 16]) on the compiled RTL. The run changes `dram`, the DRAM of one sample.

    `stalls`: a seed for random delays of the memory, or 0 for no delays.
    """
    memory, base = loaded(dram, insns)
    limit = PATIENCE + 100 * memory.size
    shell = None
    if isinstance(rtl, UserRtl):
        form = rtl.form(user_rtl.forms(config))
        shell = user_rtl.SHELLS.get(form.name)
        model = rtl.model(form, wave is not None)
        limit = rtl.limit or limit
        stalls = rtl.seed
    else:
        model = compiled(config, rtl).model()
    attached = model.attach("bus", memory, config.dram_latency, stalls)
    arguments = {"insn_base": base, "insn_count": len(insns), **{f"{name}_base": bases[name] for name in REGIONS}}
    cycles = 0
    stopped = ""
    if shell:
        zero, cycles, stopped = shell.launch(model, arguments, limit, wave)
    else:
        zero = _launch(model, config, arguments, wave)
        try:
            if not model.run_until_logged(2 * len(insns), limit):
                stopped = f"is not done after {limit} cycles"
        except RtlStopped as error:
            stopped = error.reason
    for segment in dram.segments:
        left = memory[segment.address : segment.end]
        if not np.array_equal(left, segment.data[0]):  # copy: other launches may share the array
            segment.data = left.reshape(1, -1).copy()
            segment.shared = False
    written = model.written(attached)
    written = written._replace(cycle=written.cycle - zero)
    bus = model.faults(attached), written, model.reads(attached) - [zero, 0, 0]
    if shell:
        unknown = np.full(len(insns), -1, np.int64)
        return RtlRun(unknown, unknown, cycles, *bus, stopped, shows=False)
    start, end, extra = _timed(insns, config, model.events, zero)
    stopped = stopped or extra
    return RtlRun(start, end, model.cycle - zero if stopped else int(end.max(initial=0)), *bus, stopped)


def _launch(model: Model, config: Config, arguments: Mapping[str, int], wave: Wave | None) -> int:
    """Launch a program by the ports of the module Vta. Return the cycle of the RTL model that is cycle 0 of a Trace."""
    if wave:
        model.wave(wave.path, wave.first + LAUNCH, wave.last + LAUNCH)
    for number, (unit, what) in enumerate((u, w) for u in config.pipeline.units for w in ("starts", "ends")):
        model.watch(f"{unit}_{what}", number)
    for name, value in arguments.items():
        model[name] = value
    model["launch"] = 1
    model.step()
    model["launch"] = 0
    return model.cycle


def component(config: Config) -> Any:
    from tilewright.targets.vta.gateware.top import Vta

    return Vta(config)


def compiled(config: Config, engine: str) -> Compiled:
    """Return the gateware of a configuration, compiled for the RTL simulator `engine`. The result is cached."""
    if config.own_alu:  # the user's own lanes are in files that may change
        return Compiled(component(config), engine=engine)
    return Compiled.of_machine(component, config, engine)


def _timed(insns: Array, config: Config, events: Array, zero: int) -> tuple[Array, Array, str]:
    """Return the start and end of each instruction as in a Trace, or -1, and a message about extra instructions.

    `zero` is the RTL model's cycle 0.
    """
    extra = ""
    units = config.pipeline.units_of(decode(insns, config))
    start, end = np.full(len(insns), -1, np.int64), np.full(len(insns), -1, np.int64)
    for number in range(2 * len(config.pipeline.units)):
        mine = np.flatnonzero(units == number // 2)
        cycles = events[events[:, 0] == number, 1]
        if len(cycles) > len(mine):
            extra = f"has an extra instruction in {config.pipeline.units[number // 2]}"
            cycles = cycles[: len(mine)]
        # The RTL marks the last cycle of a step; a Trace has the next cycle.
        (end if number % 2 else start)[mine[: len(cycles)]] = cycles - zero + number % 2
    return start, end, extra


# Comparison with the simulator

OPTIONS = RunOptions(timing="tilewright", values=False)
#: The number of differences to report. Later differences mostly follow from the first.
TOLD = 8


def compare(
    name: str, image: LaunchImage, config: Config, inputs: Mapping[str, Array], rtl: Rtl, wave: Wave | None = None
) -> CosimCase:
    """Run the first sample of `inputs` on the RTL and in the simulator; return the outcome of the comparison.

    Raises HazardError if the program cannot run to its end.
    """
    first = {segment: data[:1] for segment, data in inputs.items()}
    modelled = image.dram(first, 1)
    ran = image.dram(first, 1)
    before = contents(modelled)
    base = loaded(ran, image.insns)[1]
    config = replace(config, memory_model="delay")  # the memory of the harness
    options = _options(rtl, config)
    prepared = prepare(image.insns, config, modelled, image.bases, options)
    prepared.passes.refuse(options)
    result = run(image.insns, config, ran, image.bases, rtl, wave=wave)
    trace = prepared.trace
    assert trace is not None  # without a trace, `refuse` has raised an error
    stores = _written(prepared, modelled)
    differences = _differences(prepared, modelled, before, stores, result)
    if not (isinstance(rtl, UserRtl) and rtl.seed):
        differences += _times(prepared.elaborated, trace, result, str(options.timing), stores)
    if not result.shows and (strange := user_rtl.strange_read(prepared.elaborated, result.reads, base)):
        differences.append(strange)
    bytes_, left = _left(modelled, ran)
    if bytes_ and not differences:  # no STORE differs
        differences.append((result.cycles, left))
    if result.faults:
        reason = f"{result.faults} DRAM accesses of the RTL are outside DRAM or do not match their burst command"
        differences.append((result.cycles, reason))
    if result.stopped:
        differences = [(cycle, text) for cycle, text in differences if cycle < result.cycles]
        differences.append((result.cycles, f"the RTL {result.stopped}{_last(prepared.elaborated, result, stores)}"))
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


def _options(rtl: Rtl, config: Config) -> RunOptions:
    """Return the options of the simulator, with the timing model that belongs to the ports of the user's Verilog."""
    if not isinstance(rtl, UserRtl):
        return OPTIONS
    shell = user_rtl.SHELLS.get(rtl.form(user_rtl.forms(config)).name)
    return replace(OPTIONS, timing=rtl.timing or (shell.timing if shell else OPTIONS.timing))


def _last(program: Elaborated, result: RtlRun, stores: list[Stored]) -> str:
    """Return the end of a message about a stopped run: the last instruction that ended, or the last complete STORE."""
    ends = np.cumsum([_beats(store.move, result.written.data.shape[1]) for store in stores])
    steps = [store.step for store, end in zip(stores, ends, strict=True) if end <= len(result.written.cycle)]
    if result.shows:
        steps = [step for step in np.argsort(result.end, kind="stable").tolist() if result.end[step] >= 0]
    last = f"#{steps[-1]} {program.table.describe(steps[-1])}" if steps else "none"
    return f"; the last {'instruction that ended' if result.shows else 'STORE that was written'}: {last}"


def _times(
    program: Elaborated, trace: Trace, result: RtlRun, timing: str, stores: list[Stored]
) -> list[tuple[int, str]]:
    """Return, for each different start or end of an instruction, the earlier of the two cycles and a message."""
    if not result.shows:
        return _on_bus(program, trace, result, timing, stores)
    differences = []
    for what, ours, theirs in (("starts", trace.start, result.start), ("ends", trace.end, result.end)):
        for step in np.flatnonzero(ours != theirs).tolist():
            unit = program.table.units[program.table.unit[step]]
            cycle = f"in cycle {theirs[step]}" if theirs[step] >= 0 else "never"
            text = f"{unit}_{what} {cycle} on the RTL, {ours[step]} in the simulator"
            first = int(min(ours[step], theirs[step] if theirs[step] >= 0 else ours[step]))
            differences.append((first, f"#{step} {program.table.describe(step)}: {text}"))
    return differences


def _on_bus(
    program: Elaborated, trace: Trace, result: RtlRun, timing: str, stores: list[Stored]
) -> list[tuple[int, str]]:
    """Return the differences of the last beat of each STORE and of the number of cycles, in the form of `_times`."""
    count, width = result.written.data.shape
    seen = [(len(trace.end) - 1, "ends, by the register `cycles`,", result.cycles, int(trace.end[-1]))]
    written = 0
    for step, move, _ in stores * (timing in user_rtl.STORED):
        written += _beats(move, width)
        if written <= count:
            ours = int(trace.end[step]) - user_rtl.STORED[timing] - max(1, program.config.dram_latency)
            seen.append((step, f"the last beat on {DATA} is", int(result.written.cycle[written - 1]), ours))
    return [
        (
            min(rtl, ours),
            f"#{step} {program.table.describe(step)}: {what} in cycle {rtl} on the RTL, {ours} in the simulator",
        )
        for step, what, rtl, ours in seen
        if rtl != ours
    ]


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


def _beats(move: Move, width: int) -> int:
    """Return the number of beats of a STORE; `width` are the bytes of a beat.

    Each row takes whole beats, because no beat has bytes of two rows. The STOREs use the bus in stream order.
    """
    starts = move.address + np.arange(move.rows) * move.stride
    return int(((starts + move.row_bytes - 1) // width - starts // width + 1).sum())


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
        many = _beats(move, width)
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
