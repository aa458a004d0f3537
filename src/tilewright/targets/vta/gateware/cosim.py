"""A launch on the compiled gateware beside the simulator: cycles of each instruction, each STORE, what is left."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tilewright.array import Array
from tilewright.program.launch_image import Dram, LaunchImage
from tilewright.sim.passes import RunOptions
from tilewright.sim.steps import Trace
from tilewright.targets.abilities import CosimCase
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.gateware import stores
from tilewright.targets.vta.gateware.run import RtlRun, Wave, contents, run
from tilewright.targets.vta.passes import prepare
from tilewright.targets.vta.steps.elaborate import Elaborated

OPTIONS = RunOptions(timing="tilewright", values=False)
#: Differences that are told; the first says most.
TOLD = 8


def compare(name: str, image: LaunchImage, config: Config, inputs: Mapping[str, Array], engine: str) -> CosimCase:
    """Run the first sample of `inputs` on both. Raises HazardError for a program that cannot run to its end."""
    first = {segment: data[:1] for segment, data in inputs.items()}
    modelled, ran = image.dram(first, 1), image.dram(first, 1)
    before = contents(modelled)
    known = prepare(image.insns, config, modelled, image.bases, OPTIONS)
    known.passes.refuse(OPTIONS)
    result = run(image.insns, config, ran, image.bases, engine)
    trace = known.trace
    assert trace is not None  # what has none was refused
    written = stores.written(known, modelled)
    stored = stores.differences(known, modelled, before, written, result)
    found = [*_times(known.elaborated, trace, result), *stored]
    bytes_, left = _left(modelled, ran)
    if bytes_ and not found:  # no store differs
        found.append((result.cycles, left))
    if result.faults:
        reason = f"{result.faults} DRAM accesses of the RTL are outside all segments, or not as announced"
        found.append((result.cycles, reason))
    found.sort(key=lambda item: item[0])
    return CosimCase(
        name,
        len(image.insns),
        trace.cycles,
        result.cycles,
        bytes_,
        tuple(message for _, message in found[:TOLD]),
        found[0][0] if found else None,
    )


def waveform(
    image: LaunchImage, config: Config, inputs: Mapping[str, Array], path: Path, cycles: tuple[int, int] | None
) -> None:
    """Write the waveform of some cycles, of all where it does not say, as the engine that has waveforms runs them."""
    first, last = cycles or (0, 1 << 40)
    dram = image.dram({segment: data[:1] for segment, data in inputs.items()}, 1)
    run(image.insns, config, dram, image.bases, "cxxrtl", wave=Wave(path, max(0, first), last))


def _times(program: Elaborated, trace: Trace, result: RtlRun) -> list[tuple[int, str]]:
    """Starts and ends that differ, each with the cycle of the earlier."""
    found = []
    for what, ours, theirs in (("starts", trace.start, result.start), ("ends", trace.end, result.end)):
        for step in np.flatnonzero(ours != theirs).tolist():
            unit = program.table.units[program.table.unit[step]]
            rtl = f"in cycle {theirs[step]}" if theirs[step] >= 0 else "never"
            message = (
                f"#{step} {program.table.describe(step)}: {unit}_{what} {rtl} on the RTL, {ours[step]} on the model"
            )
            found.append((int(min(ours[step], theirs[step] if theirs[step] >= 0 else ours[step])), message))
    return found


def _left(modelled: Dram, ran: Dram) -> tuple[int, str]:
    """How many bytes of DRAM differ in the end, and the first of them."""
    count, first = 0, ""
    for segment, other in zip(modelled.segments, ran.segments, strict=True):
        wrong = np.flatnonzero(segment.data[0] != other.data[0])
        count += wrong.size
        for place in wrong[: not first].tolist():
            ours, theirs = segment.data[0, place], other.data[0, place]
            first = f"{segment.name}[{place}] is {theirs:#04x} on the RTL in the end, {ours:#04x} on the machine"
    return count, first
