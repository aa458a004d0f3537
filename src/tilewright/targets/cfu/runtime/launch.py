"""Run a launch on S samples, and make the result of the launch from the runs.

Each sample is a separate run from reset, because time may depend on values. The result has the values of all runs, and
the cycles, findings and profile of the first run.
"""

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

#: Reports combine several causes of waits (timing.state.Cause) into one cause. All other cycles are CPU arithmetic.
CAUSES = {
    **dict.fromkeys(("load_use", "load_miss", "store", "redo", "device"), "memory"),
    **dict.fromkeys(("cfu", "cfu_use", "drain"), "CFU wait"),
    "fetch": "instruction fetch",
}


#: For each operator, its cycles by C function (key "functions") and by source line (key "source lines").
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
    """Run the firmware once for each sample, and yield the runs. `inputs` are int8 (S, *shape) by name.

    `unit` makes a CFU for each run, which replaces the model. `kernels` is the check of the user's kernels, if there
    are any. A debugger (`setup.drive`) controls only the first run. Raises ProgramError if main memory is too small;
    MachineError if the firmware traps or fails, or if the CFU breaks the rules of its ports.
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
            image.arena + place.offset: np.ascontiguousarray(tensor[min(index, len(tensor) - 1)]).tobytes()
            for place in image.inputs
            if (tensor := inputs.get(place.name)) is not None
        }
        first = index == 0
        of_sample = replace(setup, cfu=unit() if unit else None, drive=setup.drive if first else Process.go)
        try:
            watch = kernels.watch() if kernels else None
            run = core.run(program, of_sample, writes=writes, reads=reads, profiled=first, watch=watch)
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
    """Run a launch on all samples, and return its result.

    `unit` makes a CFU for each run (None: the model); `drive` runs the first sample (see core.Setup). Raises the errors
    of `runs`, and ProgramError if samples have a wrong size.
    """
    image = FirmwareImage.of(launch)
    samples = _samples(launch, image, values)
    kernels = KernelCheck(launch, image) if image.kernels else None
    first: core.Run | None = None
    left: dict[str, list[bytes]] = {place.name: [] for place in image.outputs}
    undefined: Difference | None = None
    setup = core.Setup(config, options.timing or next(iter(MODELS)), drive=drive)
    # Values come from all runs. Figures come from the first run only.
    for sample_run in runs(launch.name, image, setup, values, samples, unit, kernels):
        first = first or sample_run
        undefined = undefined or sample_run.undefined
        for name, data in sample_run.reads.items():
            left[name].append(data)
    assert first is not None
    outputs = {name: np.frombuffer(b"".join(parts), np.int8).reshape(samples, -1) for name, parts in left.items()}
    findings = tuple(
        Finding("cfu_misuse", f"{note.message} at {image.function(note.pc)} ({note.times:,} times)")
        for note in first.misuses * options.check
    )
    if kernels and program.graph is not None and options.check:
        findings += tuple(kernels.findings(program.graph, program.rounding, values))
    source = source_of(launch, image)
    if undefined:
        findings += (Finding("cfu_undefined", f"{undefined.message}, at {source.where(undefined.pc)}"),)
    return _result(program, image, first, outputs, findings, source, config.macs_per_cycle)


def _result(
    program: Program,
    image: FirmwareImage,
    first: core.Run,
    outputs: dict[str, Array],
    findings: tuple[Finding, ...],
    source: elf.Source,
    peak: int,
) -> LaunchResult:
    macs = tuple(layout.macs(record) for record in image.records)
    # The firmware marks each operator by its index + 1. Cycles outside of these regions (start-up, the markers
    # themselves, the end) belong to no layer and are not counted, because a real device starts up only once.
    operators = [part for part in first.regions if part.region]
    spent = [cycles for part, cycles in zip(first.regions, first.spent, strict=True) if part.region]
    names = [image.kinds[part.region - 1] if part.region <= len(image.kinds) else "region" for part in operators]
    timed = trace(first.cycles, operators, names, lambda: shares(source, first.machine.base, spent))
    # A lower bound: the CPU needs a cycle for each instruction, and the array needs a cycle for `peak`
    # multiply-accumulates. CPU and array can work at the same time, so the bound is the maximum of the two.
    instructions = sum(part.instructions for part in operators)
    bound = max(instructions, -(-sum(macs) // peak))
    counted = partial(events, timed, instructions, sum(macs))
    if program.graph is None:
        figures = timed.figures("cpu", sum(macs), bound)
        return LaunchResult(outputs, findings, timed, (figures,), bound, counted)
    shapes = {name: program.graph.tensors[name].shape for name in outputs}
    outputs = {name: array.reshape(len(array), *shapes[name]) for name, array in outputs.items()}
    by_region = {part.region: _figures(part, macs[part.region - 1], peak) for part in operators}
    layers = tuple(by_region[index + 1] for index in range(len(image.records)))
    return LaunchResult(outputs, findings, timed, layers, bound, counted)


def _figures(region: core.Region, macs: int = 0, peak: int = 1) -> Figures:
    """Return the figures of a region with `macs` multiply-accumulates, of which the array can do `peak` per cycle."""
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
    # Cycles without a wait are CPU arithmetic.
    causes = Counter({"CPU arithmetic": region.cycles - sum(region.lost.values())})
    for name, cycles in region.lost.items():
        causes[CAUSES.get(name, "CPU arithmetic")] += cycles
    return by_size(causes)


def shares(source: elf.Source, base: int, spent: Sequence[Array]) -> Shares:
    """Return the cycles of each operator by function and by source line, in descending order.

    For each operator, `spent` has the cycles of each instruction. The first instruction is at address `base`.
    """
    divided: Shares = {"functions": [], "source lines": []}
    for counts in spent:
        functions = Counter[str]()
        lines = Counter[str]()
        for index in np.flatnonzero(counts).tolist():
            address = base + 4 * index
            cycles = int(counts[index])
            functions[source.function(address)] += cycles
            lines[f"{source.function(address)}, {source.place(address)}"] += cycles
        divided["functions"].append(by_size(functions))
        divided["source lines"].append(by_size(lines))
    return divided


def _samples(launch: Launch, image: FirmwareImage, values: Mapping[str, Array]) -> int:
    """Return the number of samples in `values`. Raises ProgramError if a sample's size does not fit the launch."""
    areas = [place for place in image.inputs if place.name in values]
    for place in areas:
        if values[place.name][0].nbytes != place.nbytes:
            raise ProgramError(f"launch '{launch.name}'", f"needs samples of {place.nbytes} bytes for '{place.name}'")
    return max((len(values[place.name]) for place in areas), default=1)


def trace(cycles: int, regions: Sequence[core.Region], names: Sequence[str], divide: Callable[[], Shares]) -> Trace:
    """Return a trace of one unit, the CPU, with a step for each region. `names` are the names of the steps.

    Without regions, the trace has no steps and lasts `cycles`. `divide` is described in `Trace`.
    """
    counts = np.array([(region.cycles, region.read, region.written) for region in regions], np.int64).reshape(-1, 3)
    durations, read, written = counts.T
    end = np.cumsum(durations)
    zeros = np.zeros(len(regions), np.int64)
    table = StepTable.untracked(("cpu",), zeros, lambda step: names[step])
    total = int(end[-1]) if regions else cycles
    return Trace(table, end - durations, end, zeros, zeros, zeros, read, written, 0, total, divide=divide)


def sections(run: core.Run, findings: tuple[Finding, ...], divided: Mapping[str, Mapping[str, int]]) -> Sections:
    """Return the run of an ELF file as sections for pages and timelines. Regions with the same number form a section.

    `divided` has all cycles of the run by function and by source line. As these are not counted for each region, they
    are shown only if there is a single region.
    """
    regions = run.regions or (core.Region(0, run.cycles, run.instret, {}, 0, 0),)
    shares = {division: [dict(parts)] for division, parts in divided.items()} if len(regions) == 1 else {}
    titles = [f"region {region.region}" if region.region else "outside of regions" for region in regions]
    timed = trace(run.cycles, regions, titles, lambda: shares)
    together: dict[str, list[Figures]] = {}
    for title, region in zip(titles, regions, strict=True):
        together.setdefault(title, []).append(_figures(region))
    names = [f"{title}, {len(parts)} times" if len(parts) > 1 else title for title, parts in together.items()]
    figures = tuple(replace(Figures.total(parts), stalls={}) for parts in together.values())
    return Sections(tuple(names), LaunchResult({}, findings, timed, figures, bound=run.instret))
