"""Run a launch on S samples. Each sample is a separate run from reset, because time may depend on values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError, ProgramError
from tilewright.program.program import Launch, Program
from tilewright.sim.figures import Figures, by_size
from tilewright.sim.findings import Finding
from tilewright.sim.passes import RunOptions
from tilewright.sim.steps import StepTable, Trace
from tilewright.targets.base import LaunchResult
from tilewright.targets.cfu.compiler import layout
from tilewright.targets.cfu.config import RAM_BASE, Config
from tilewright.targets.cfu.events import events
from tilewright.targets.cfu.firmware_image import FirmwareImage
from tilewright.targets.cfu.timing.costs import MODELS
from tilewright.targets.users import Sections

from . import core, elf
from .core import Process
from .kernel_check import KernelCheck, program_of, source_of
from .seam import Cfu, CfuError, Difference

#: Where the cycles of a cause of waits (timing.state.Cause) count; those of the others are CPU arithmetic.
CAUSES = {
    **dict.fromkeys(("load_use", "load_miss", "store", "redo", "device"), "memory"),
    **dict.fromkeys(("cfu", "cfu_use", "drain"), "CFU wait"),
    "fetch": "instruction fetch",
}


#: Cycles of each operator by part, under the name of each way to divide them.
Shares = dict[str, list[dict[str, int]]]


def runs(
    name: str,
    image: FirmwareImage,
    setup: core.Setup,
    inputs: Mapping[str, Array],
    samples: int,
    unit: Callable[[], Cfu] | None = None,
    kernels: KernelCheck | None = None,
) -> Iterator[core.Run]:
    """Run the firmware once for each of the samples, and yield the runs. `inputs` are int8 (S, *shape) by name.

    `unit` makes a CFU for each run, in the place of the model. `kernels` checks the kernels, if they are the user's.
    Only the first sample is run by `setup.drive`.
    Raises ProgramError if main memory is too small, MachineError if the firmware traps or fails, or if the CFU breaks
    the rules of its ports.
    """
    needed = image.end + layout.STACK_BYTES
    end = RAM_BASE + setup.config.ram_bytes
    if needed > end:
        reason = f"needs main memory up to {needed:#x}"
        raise ProgramError(f"launch '{name}'", reason, f"memory ends at {end:#x}; raise ram_bytes")
    program = program_of(name, image)
    reads = {place.name: (image.arena + place.offset, place.nbytes) for place in image.outputs}
    for index in range(samples):
        writes = {
            image.arena + place.offset: np.ascontiguousarray(own[min(index, len(own) - 1)]).tobytes()
            for place in image.inputs
            if (own := inputs.get(place.name)) is not None  # a value of constants is there once
        }
        first = index == 0
        cfu = unit() if unit else None
        how = replace(setup, cfu=cfu) if first else replace(setup, cfu=cfu, drive=Process.go)
        try:
            watch = kernels.watch() if kernels else None
            run = core.run(program, how, writes=writes, reads=reads, profiled=first, watch=watch)
        except CfuError as error:
            raise error.located(image.words, RAM_BASE, image.function) from None
        if kernels:
            kernels.refuse(run)
        if run.trap is not None:
            raise MachineError(f"launch '{name}'", f"{run.trap.kind} at {image.function(run.trap.pc)}")
        if run.exit_code:
            text = f": {run.text.strip()}" if run.text.strip() else ""
            raise MachineError(f"launch '{name}'", f"the firmware ends with status {run.exit_code}{text}")
        yield run


def run(
    program: Program,
    launch: Launch,
    values: Mapping[str, Array],
    config: Config,
    options: RunOptions,
    unit: Callable[[], Cfu] | None = None,
    drive: core.Drive = Process.go,
) -> LaunchResult:
    """Run a launch on all samples. The cycles are those of the first sample. `unit` and `drive`: as in `runs`."""
    image = FirmwareImage.of(launch)
    samples = _samples(launch, image, values)
    kernels = KernelCheck(launch, image) if image.kernels else None
    first: core.Run | None = None
    left: dict[str, list[bytes]] = {place.name: [] for place in image.outputs}
    undefined: Difference | None = None
    setup = core.Setup(config, options.timing or next(iter(MODELS)), drive=drive)
    for one in runs(launch.name, image, setup, values, samples, unit, kernels):
        first = first or one
        undefined = undefined or one.undefined
        for name, data in one.reads.items():
            left[name].append(data)
    assert first is not None
    outputs = {name: np.frombuffer(b"".join(parts), np.int8).reshape(samples, -1) for name, parts in left.items()}
    found = tuple(
        Finding("cfu_misuse", f"{note.message} at {image.function(note.pc)} ({note.times:,} times)")
        for note in first.misuses * options.check
    )
    if kernels and program.graph is not None and options.check:
        found += tuple(kernels.findings(program.graph, program.rounding, values))
    source = source_of(launch, image)
    if undefined:
        found += (Finding("cfu_undefined", f"{undefined.message}, at {source.where(undefined.pc)}"),)
    return _result(program, image, first, outputs, found, source, config.macs_per_cycle)


def _result(
    program: Program,
    image: FirmwareImage,
    first: core.Run,
    outputs: dict[str, Array],
    found: tuple[Finding, ...],
    source: elf.Source,
    peak: int,
) -> LaunchResult:
    """Return the result of a launch from its first run; `peak`: multiply-accumulates of the array in a cycle."""
    macs = tuple(layout.macs(record) for record in image.records)
    # The firmware marks each operator by index + 1. Cycles outside of these regions (start-up, the markers themselves,
    # the end) belong to no layer and are not counted: a real device starts up only once.
    operators = [region for region in first.regions if region.region]
    spent = [own for region, own in zip(first.regions, first.spent, strict=True) if region.region]
    names = [image.kinds[one.region - 1] if one.region <= len(image.kinds) else "region" for one in operators]
    timed = trace(first.cycles, operators, names, lambda: shares(source, first.machine.base, spent))
    # The CPU needs a cycle for each instruction, the array 1 / peak cycles for each multiply-accumulate.
    instructions = sum(one.instructions for one in operators)
    bound = max(instructions, -(-sum(macs) // peak))
    counted = partial(events, timed, instructions, sum(macs))
    if program.graph is None:
        figures = timed.figures("cpu", sum(macs), bound)
        return LaunchResult(outputs, found, timed, (figures,), bound, counted)
    shapes = {name: program.graph.tensors[name].shape for name in outputs}
    outputs = {name: array.reshape(len(array), *shapes[name]) for name, array in outputs.items()}
    by_region = {one.region: _figures(one, macs[one.region - 1], peak) for one in operators}
    layers = tuple(by_region[index + 1] for index in range(len(image.records)))
    return LaunchResult(outputs, found, timed, layers, bound, counted)


def _figures(region: core.Region, macs: int = 0, peak: int = 1) -> Figures:
    """Return the figures of an operator that does `macs` multiply-accumulates on an array of `peak` a cycle."""
    return Figures(
        cycles=region.cycles,
        executed_macs=macs,
        dram_read_bytes=region.read,
        dram_write_bytes=region.written,
        stalls=region.lost,
        causes=_causes(region),
        bound=max(region.instructions, -(-macs // peak)),
    )


def _causes(region: core.Region) -> dict[str, int]:
    """Return the cycles of a region by cause, the largest first: what no cause of `CAUSES` takes is CPU arithmetic."""
    found = Counter({"CPU arithmetic": region.cycles - sum(region.lost.values())})
    for name, cycles in region.lost.items():
        found[CAUSES.get(name, "CPU arithmetic")] += cycles
    return by_size(found)


def shares(source: elf.Source, base: int, spent: Sequence[Array]) -> Shares:
    """Return the cycles of each operator by function and by source line, the largest first.

    `spent` has, for each operator, the cycles of each instruction from address `base` on.
    """
    found: Shares = {"functions": [], "source lines": []}
    for own in spent:
        functions = Counter[str]()
        lines = Counter[str]()
        for index in np.flatnonzero(own).tolist():
            address = base + 4 * index
            cycles = int(own[index])
            functions[source.function(address)] += cycles
            lines[f"{source.function(address)}, {source.place(address)}"] += cycles
        found["functions"].append(by_size(functions))
        found["source lines"].append(by_size(lines))
    return found


def _samples(launch: Launch, image: FirmwareImage, values: Mapping[str, Array]) -> int:
    """Return the number of samples in `values`. Raises ProgramError if their sizes do not match the launch."""
    there = [place for place in image.inputs if place.name in values]
    for place in there:
        if values[place.name][0].nbytes != place.nbytes:
            raise ProgramError(f"launch '{launch.name}'", f"needs samples of {place.nbytes} bytes for '{place.name}'")
    return max((len(values[place.name]) for place in there), default=1)


def trace(cycles: int, found: Sequence[core.Region], names: Sequence[str], divide: Callable[[], Shares]) -> Trace:
    """Return a trace of one unit, the CPU, with one step per region, of these names; `divide` as in `Trace`.

    If `found` is empty, the trace has only `cycles`.
    """
    counts = np.array([(one.cycles, one.read, one.written) for one in found], np.int64).reshape(-1, 3)
    taken, read, written = counts.T
    end = np.cumsum(taken)
    none = np.zeros(len(found), np.int64)
    table = StepTable.untracked(("cpu",), none, lambda step: names[step])
    whole = int(end[-1]) if found else cycles
    return Trace(table, end - taken, end, none, none, none, read, written, 0, whole, divide=divide)


def sections(run: core.Run, findings: tuple[Finding, ...], divided: Mapping[str, Mapping[str, int]]) -> Sections:
    """Return the run of an ELF file as the result that pages and timelines show: a section for each region's number.

    `divided` has all cycles of the run by function and by source line.
    """
    regions = run.regions or (core.Region(0, run.cycles, run.instret, {}, 0, 0),)
    shares = {what: [dict(parts)] for what, parts in divided.items()} if len(regions) == 1 else {}
    titles = [f"region {region.region}" if region.region else "outside of regions" for region in regions]
    timed = trace(run.cycles, regions, titles, lambda: shares)
    together: dict[str, list[Figures]] = {}
    for title, region in zip(titles, regions, strict=True):
        together.setdefault(title, []).append(_figures(region))
    names = [f"{title}, {len(parts)} times" if len(parts) > 1 else title for title, parts in together.items()]
    figures = tuple(replace(Figures.total(parts), stalls={}) for parts in together.values())
    return Sections(tuple(names), LaunchResult({}, findings, timed, figures, bound=run.instret))
