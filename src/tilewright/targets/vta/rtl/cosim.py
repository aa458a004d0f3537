"""A launch on the compiled gateware beside the simulator: bytes, and the cycles of each instruction."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.array import Array
from tilewright.sim.dram import Dram
from tilewright.sim.trace import Trace
from tilewright.targets.abilities import CosimCase
from tilewright.targets.base import RunOptions
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.elaborate import Elaborated
from tilewright.targets.vta.image import Image
from tilewright.targets.vta.passes import Passes, refuse, run_passes
from tilewright.targets.vta.rtl.run import RtlRun, run

MODEL = "tilewright"
#: Differences that are told; the first says most.
TOLD = 8


def compare(name: str, image: Image, config: Config, inputs: Mapping[str, Array], engine: str) -> CosimCase:
    """Run the first sample of `inputs` on both. Raises HazardError for a program that cannot run to its end."""
    first = {segment: data[:1] for segment, data in inputs.items()}
    modelled, ran = image.dram(first, 1), image.dram(first, 1)
    passes = run_passes(image.insns, config, modelled, image.bases, 1, RunOptions(timing=MODEL))
    refuse(passes)
    result = run(image.insns, config, ran, image.bases, engine)
    trace = passes.trace
    assert trace is not None  # what has none was refused
    bytes_, said = _bytes(passes, modelled, ran)
    differences = [*_times(passes.elaborated, trace, result), *said]
    if result.faults:
        differences.append(f"{result.faults} DRAM accesses of the RTL are outside all segments, or not as announced")
    return CosimCase(name, len(image.insns), trace.cycles, result.cycles, bytes_, tuple(differences))


def _times(program: Elaborated, trace: Trace, result: RtlRun) -> list[str]:
    """Starts and ends that differ, the earliest first."""
    found = []
    for what, ours, theirs in (("starts", trace.start, result.start), ("ends", trace.end, result.end)):
        for step in np.flatnonzero(ours != theirs).tolist():
            unit = program.table.units[program.table.unit[step]]
            rtl = f"in cycle {theirs[step]}" if theirs[step] >= 0 else "never"
            message = (
                f"#{step} {program.table.describe(step)}: {unit}_{what} {rtl} on the RTL, {ours[step]} on the model"
            )
            found.append((min(ours[step], theirs[step] if theirs[step] >= 0 else ours[step]), message))
    return [message for _, message in sorted(found)[:TOLD]]


def _bytes(passes: Passes, modelled: Dram, ran: Dram) -> tuple[int, list[str]]:
    """How many bytes differ, and which STOREs were the last to write them."""
    count = 0
    found: list[str] = []
    for segment, other in zip(modelled.segments, ran.segments, strict=True):
        wrong = np.flatnonzero(segment.data[0] != other.data[0])
        count += wrong.size
        for place in wrong[: TOLD - len(found)].tolist():
            step = _writer(passes, segment.address + place)
            what = f"#{step} {passes.elaborated.table.describe(step)}" if step >= 0 else "no STORE"
            found.append(
                f"{what} left {other.data[0, place]:#04x} at {segment.name}[{place}] on the RTL, "
                f"{segment.data[0, place]:#04x} on the machine"
            )
    return count, found


def _writer(passes: Passes, address: int) -> int:
    """The STORE that ends last of those that write a byte; -1: none."""
    moved, trace = passes.elaborated.moves, passes.trace
    assert trace is not None
    behind = address - moved.address
    stride = np.maximum(moved.stride, 1)
    row = np.minimum(np.maximum(behind // stride, 0), moved.rows - 1)
    inside = (behind - row * moved.stride >= 0) & (behind - row * moved.stride < moved.row_bytes)
    steps = np.flatnonzero(inside & (trace.bytes_written > 0))
    return int(steps[np.argmax(trace.end[steps])]) if steps.size else -1
