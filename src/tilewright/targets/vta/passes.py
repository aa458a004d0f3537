"""A VTA launch on its machine, and its passes: elaboration, the passes of sim/passes.py, and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from weakref import WeakKeyDictionary

import numpy as np

from tilewright.array import Array
from tilewright.program.launch_image import Dram, LaunchImage
from tilewright.program.program import Launch
from tilewright.sim.figures import Figures
from tilewright.sim.findings import OUT_OF_RANGE, STREAM, Finding
from tilewright.sim.hazards import out_of_range
from tilewright.sim.jit import in_parallel
from tilewright.sim.order import Order, eager_sequence, order
from tilewright.sim.passes import LaunchResult, Passes, RunOptions, Times
from tilewright.sim.steps import Trace
from tilewright.targets import given
from tilewright.targets.launched import OnImage
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.events import events
from tilewright.targets.vta.isa.fields import Opcode
from tilewright.targets.vta.isa.stream import decode, image_of
from tilewright.targets.vta.launch.pack import pack, unpack
from tilewright.targets.vta.steps.elaborate import Elaborated, elaborate
from tilewright.targets.vta.steps.portability import portability, write_distance
from tilewright.targets.vta.timing import MODELS, first
from tilewright.targets.vta.timing.limits import Limits, arguments, of_layers, summed
from tilewright.targets.vta.timing.model import expect
from tilewright.targets.vta.values.actions import Action, StepBatch, plan, stored_resets
from tilewright.targets.vta.values.machine import Machine

#: The maximum number of findings of one kind that a report lists.
LISTED = 8
#: Number of samples simulated together: large enough for efficient matrix products, small enough for the CPU's caches.
BLOCK = 16


class VtaLaunch(OnImage[Config]):
    """One launch of VTA. For its methods, see tilewright/targets/launched.py."""

    @property
    def together(self) -> int:
        return BLOCK

    @cached_property
    def image(self) -> LaunchImage:
        return image_of(self.launch)

    def pack(self, values: Mapping[str, Array]) -> Mapping[str, Array]:
        with given.untrusted(self.launch):
            return pack(self.launch, self.program.graph, values) if self.program.graph else {}

    def unpack(self, left: Mapping[str, Array], values: Mapping[str, Array]) -> Mapping[str, Array]:
        if self.program.graph is None:
            return super().unpack(left, values)
        with given.untrusted(self.launch):
            return unpack(self.launch, self.program.graph, values, left, self.program.rounding)

    def execute(self, dram: Dram, samples: int, options: RunOptions) -> None:
        image = self.image
        key = (self.config, options)
        kept = _KEPT.setdefault(self.launch, {})
        if prepared := kept.get(key):
            prepared.run(dram, samples, options)
        else:
            kept[key] = run_passes(image.insns, self.config, dram, image.bases, samples, options, self._described)

    def report(self, options: RunOptions) -> LaunchResult:
        return self._described(_KEPT.get(self.launch, {}).get((self.config, options)) or self._prepared(options))

    def _prepared(self, options: RunOptions) -> Prepared:
        """Return the results that do not depend on data. Reuse the results of a machine that differs only in cycles."""
        for (machine, _), prepared in _KEPT.get(self.launch, {}).items():
            if given.only_time_differs(machine, self.config):
                return prepared.on(self.config, options)
        return prepare(self.image.insns, self.config, self.image.dram({}, 1), self.image.bases, options)

    def _described(self, prepared: Prepared) -> LaunchResult:
        if not prepared.results:
            layer = self.image.layer
            nodes = len(self.launch.nodes)
            limits = prepared.limits(layer, nodes)
            bound = summed(limits).bound if limits else 0
            counted = partial(events, prepared.elaborated, prepared.trace)
            figures = prepared.figures(layer, nodes)
            prepared.results.append(LaunchResult({}, prepared.findings, prepared.trace, figures, bound, counted))
        return prepared.results[0]

    def findings(self) -> tuple[Finding, ...]:
        image = self.image
        options = RunOptions(timing=self.timing, values=False)
        prepared = prepare(image.insns, self.config, image.dram({}, 1), image.bases, options)
        if any(finding.kind == OUT_OF_RANGE for finding in prepared.findings):
            return prepared.findings
        further = portability(prepared.elaborated, prepared.order.sequence), write_distance(prepared.elaborated)
        return *prepared.findings, *further[0], *further[1]


@dataclass(frozen=True, eq=False)
class Prepared:
    """The results of a launch under `options` that do not depend on data.

    Values are not included; `run_passes` writes computed values to DRAM. `results` keeps the launch's result, without
    values, for later runs.
    """

    elaborated: Elaborated
    passes: Passes
    stored_resets: Mapping[int, Array]
    options: RunOptions
    _plans: dict[tuple[RunOptions, int], tuple[Action | StepBatch, ...]] = field(default_factory=dict)
    results: list[LaunchResult] = field(default_factory=list)

    @property
    def order(self) -> Order:
        return self.passes.order

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.passes.findings(self.options)

    @property
    def trace(self) -> Trace | None:
        return self.passes.trace if self.options.timed else None

    @property
    def serial(self) -> Trace | None:
        return self.passes.serial if self.options.timed else None

    def plan(self, options: RunOptions, samples: int) -> tuple[Action | StepBatch, ...]:
        """Return the plan of the value pass for `samples` samples. The `options` select the order of steps."""
        key = options, samples
        if key not in self._plans:
            steps = self.sequence(options)
            # If the program has races, another order of steps may store the result of another instruction.
            stored = self.stored_resets if options.order == "stream" else stored_resets(self.elaborated, steps)
            self._plans[key] = plan(self.elaborated, steps, stored, samples)
        return self._plans[key]

    def run(self, dram: Dram, samples: int, options: RunOptions) -> None:
        Machine(self.elaborated.config, dram, samples).run(self.plan(options, samples))

    def sequence(self, options: RunOptions) -> Array:
        """Return the steps in the order selected by `options`."""
        # If the check finds nothing, every legal order gives the same values. In this case, loads run as late as
        # possible, so that more GEMMs are adjacent and can be merged.
        if options.order == "stream" and options.check and not self.findings:
            table = self.elaborated.table
            others = len(table.units) - 1
            return eager_sequence(table, self.order, (others, *range(others)))
        return self.passes.sequence(options)

    def figures(self, layer: Array | None, nodes: int) -> tuple[Figures, ...]:
        """Return the figures of each node of the launch, or of the whole launch if it was not timed or has one node.

        `layer` int64 [n]: the node of each instruction; None if there is one node.
        """
        if self.trace is None:
            return (Figures(executed_macs=int(self.macs.sum())),)
        line = self.elaborated.config.pipeline
        busiest = line.units[line.gemm]  # a report breaks down the stalls of the unit that runs GEMM
        if layer is None:
            serial = self.serial.cycles if self.serial else None
            rows: tuple[Figures, ...] = (self.trace.figures(busiest, int(self.macs.sum()), serial_cycles=serial),)
        else:
            rows = self.trace.parts(layer, self.serial, busiest, self.macs)
            rows += (Figures(),) * (nodes - len(rows))  # the last nodes may have no instructions
        if self.options.timing is None:
            return rows
        bounds = self.limits(layer, nodes)
        reasons = arguments(self.elaborated, self.trace, layer, len(rows), self.options.timing)
        return tuple(
            replace(row, bound=limits.bound, optimal=reason)
            for row, limits, reason in zip(rows, bounds, reasons, strict=True)
        )

    def limits(self, layer: Array | None, nodes: int) -> list[Limits]:
        """Return the limits of each node of the launch; [] if nothing was timed. `layer`: as in `figures`."""
        timing = self.options.timing
        return of_layers(self.elaborated, layer, nodes, timing) if timing is not None else []

    def on(self, config: Config, options: RunOptions) -> Prepared:
        """Return the results of the same launch on a machine that differs only in cycles, without a new elaboration."""
        line = config.pipeline
        table = replace(self.elaborated.table, queues=line.queues(config.token_depth))
        program = replace(self.elaborated, config=config, table=table)
        passes = replace(self.passes, table=table, times=_times(program, self.order, options))
        return Prepared(program, passes, self.stored_resets, options)

    @property
    def macs(self) -> Array:
        """The multiply-accumulates of each instruction, int64 [n]. Reset GEMMs have 0: their products are unused."""
        counts = np.append(self.elaborated.kernels.accumulates, False)[self.elaborated.kernel]
        macs: Array = self.elaborated.micro_ops * counts * self.elaborated.config.macs_per_cycle
        return macs


#: For each launch in use, the results for later samples, by machine and options.
_KEPT: WeakKeyDictionary[Launch, dict[tuple[Config, RunOptions], Prepared]] = WeakKeyDictionary()


def run_passes(
    insns: Array,
    config: Config,
    dram: Dram,
    bases: Mapping[str, int],
    samples: int,
    options: RunOptions,
    meanwhile: Callable[[Prepared], object] = lambda prepared: None,
) -> Prepared:
    """Run an instruction stream (uint8 [n, 16]) on `dram`. The run changes the contents of `dram`.

    `meanwhile`: called in parallel with the computation of values. Raises HazardError if `options` ask for values and
    the program deadlocks or accesses memory out of range.
    """
    prepared = prepare(insns, config, dram, bases, options)
    if options.values:
        prepared.passes.refuse(replace(options, timing=None))
        prepared.plan(options, samples)
        with in_parallel(lambda: prepared.run(dram, samples, options)):
            prepared.passes.refuse(options)  # the time pass finds queues that are too short
            meanwhile(prepared)
    return prepared


def prepare(insns: Array, config: Config, dram: Dram, bases: Mapping[str, int], options: RunOptions) -> Prepared:
    """Return all results that do not depend on data: order, findings, and the cycles if `options` select timing."""
    if options.timing is not None:
        expect(len(insns))
    program = elaborate(decode(insns, config), config, dram, bases)
    relation = order(program.table)
    outside = [*unmapped(program, dram), *_off_chip(program)]  # `unmapped` checks DRAM, `_off_chip` all other memories
    stored = {} if outside else stored_resets(program, relation.sequence)
    if stored:
        program = program.with_operands(stored)
        outside = _off_chip(program)
    passes = Passes(
        program.table,
        relation,
        _times(program, relation, options),
        program.findings,
        outside,
        partial(unfinished, program, relation),
    )
    return Prepared(program, passes, stored, options)


def timed(launch: Launch, config: Config, timing: str) -> Prepared:
    """Return the order and the time of a launch under a timing model; hazards are not checked."""
    image = image_of(launch)
    options = RunOptions(timing=timing, check=False, values=False)
    return prepare(image.insns, config, image.dram({}, 1), image.bases, options)


def _off_chip(program: Elaborated) -> list[Finding]:
    return [finding for finding in out_of_range(program.table) if finding.space != "DRAM"]


def _times(program: Elaborated, relation: Order, options: RunOptions) -> Callable[[], Times]:
    model = MODELS[options.timing or first(program.config)]
    if options.serial:
        return partial(model.traces, program, relation)
    return lambda: (model.trace(program, relation), None)


def unmapped(program: Elaborated, dram: Dram) -> list[Finding]:
    """Return findings for LOADs and STOREs that touch DRAM outside all segments: at most LISTED, the first ones."""
    moved = program.moves
    steps = np.flatnonzero(moved.transfers & ~moved.of_uops)
    low = moved.address[steps]
    # Rows may overlap or leave gaps, but lie between the first byte of the first row and the last byte of the last row.
    high = low + (moved.rows[steps] - 1) * moved.stride[steps] + moved.row_bytes[steps]
    start = np.array([-1, *(segment.address for segment in dram.segments)], np.int64)
    end = np.array([-1, *(segment.end for segment in dram.segments)], np.int64)
    # Find the last segment that starts at or before the transfer. Entry 0 stands for no segment.
    home = np.searchsorted(start, low, side="right") - 1
    findings = []
    for index in np.flatnonzero(high > end[home])[:LISTED].tolist():
        step = int(steps[index])
        a = int(low[index])
        b = int(high[index])
        segments = ", ".join(f"{s.name} {s.address:#x}..{s.end:#x}" for s in dram.segments)
        what = f"#{step} {program.table.describe(step)} touches DRAM bytes {a:#x}..{b:#x}"
        message = f"{what}, not inside one segment ({segments})"
        findings.append(Finding(OUT_OF_RANGE, message, (step,), "DRAM", a, b))
    return findings


def unfinished(program: Elaborated, relation: Order) -> list[Finding]:
    """Return a finding if FINISH does not wait for a STORE, whose output the host may therefore read too early."""
    opcode = program.stream.opcode
    line = program.config.pipeline
    finish = np.flatnonzero(opcode == Opcode.FINISH)[:1]
    stores = np.flatnonzero((opcode == Opcode.STORE) & program.moves.transfers)
    if not finish.size or not stores.size or not relation.complete:
        return []
    # `clock` counts the steps of the store unit that end before FINISH starts. Later steps of the unit have higher
    # ranks.
    late = stores[relation.clock[finish[0], line.store] <= relation.rank[stores]]
    if not late.size:
        return []
    step = int(late[0])
    end = int(finish[0])
    queue = f"{line.units[-1]}->{line.units[-2]}"
    message = (
        f"#{end} finish does not wait for #{step} {program.table.describe(step)} and {late.size - 1} more; "
        f"a {queue} token pushed by #{int(late[-1])} and popped by #{end} or earlier is missing"
    )
    return [Finding(STREAM, message, (step, end), queue=queue)]
