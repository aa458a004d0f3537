"""The passes over a launch's step table that need no data: order, hazards, time. They run before the value pass.

A machine supplies a step table, the findings of its decoder, and a function that times the steps. Each pass runs when
its result is first needed, unless an earlier pass has found a fatal defect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tilewright.array import Array
from tilewright.errors import HazardError
from tilewright.sim.events import Events
from tilewright.sim.figures import Figures
from tilewright.sim.findings import DEADLOCK, OUT_OF_RANGE, Finding
from tilewright.sim.hazards import hazards, out_of_range
from tilewright.sim.order import Order, random_sequence, sequence_by_time
from tilewright.sim.steps import StepTable, Trace


@dataclass(frozen=True)
class RunOptions:
    """The passes of a run. `timing` is the name of a timing model; None: there is no time pass.

    `order` is the order in which values are computed: "stream", "time" or "random" (with `seed`). If `serial` is False
    (as in a what-if), a target may skip the computation of the time without overlap.
    """

    timing: str | None = None
    check: bool = True
    values: bool = True
    order: str = "stream"
    seed: int = 0
    serial: bool = True

    @property
    def timed(self) -> bool:
        return self.timing is not None or self.order == "time"


#: The trace of a launch, and a second trace in which each step waits for the previous step (None: impossible).
Times = tuple[Trace, Trace | None]


@dataclass(frozen=True, eq=False)
class Passes:
    """The results of the passes over one launch, without its data.

    `times` runs the time pass, which raises HazardError if a queue is too short. `decoding` has the decoder's findings.
    `outside` has the machine's findings about accesses out of range (None: the footprints are checked for such
    accesses). `machine_hazards` finds the kinds of hazards that only this machine has.
    """

    table: StepTable
    order: Order
    times: Callable[[], Times]
    decoding: Sequence[Finding] = ()
    outside: Sequence[Finding] | None = None
    machine_hazards: Callable[[], Sequence[Finding]] = lambda: ()

    @cached_property
    def _unsound(self) -> tuple[Finding, ...]:
        outside = out_of_range(self.table) if self.outside is None else self.outside
        return (*self.decoding, *self.order.findings, *outside)

    @cached_property
    def sound(self) -> bool:
        """Whether every step can run, and accesses only elements inside the memories."""
        return self.order.complete and not any(finding.kind in (DEADLOCK, OUT_OF_RANGE) for finding in self._unsound)

    @cached_property
    def hazards(self) -> tuple[Finding, ...]:
        """Races, uninitialised reads, and the machine's own hazards; empty if the launch is not sound."""
        return (*hazards(self.table, self.order), *self.machine_hazards()) if self.sound else ()

    @cached_property
    def _timed(self) -> tuple[Trace | None, Trace | None, tuple[Finding, ...]]:
        if not self.sound:
            return None, None, ()
        try:
            return *self.times(), ()
        except HazardError as error:  # a queue is too short for the program
            return None, None, (Finding(DEADLOCK, error.reason),)

    @property
    def trace(self) -> Trace | None:
        """The times of each step; None if the launch cannot run to its end."""
        return self._timed[0]

    @property
    def serial(self) -> Trace | None:
        """The trace of a run in which each step waits for the previous step; None if stream order is impossible."""
        return self._timed[1]

    def findings(self, options: RunOptions) -> tuple[Finding, ...]:
        """Return the findings of the passes that `options` select, in the order of the passes."""
        findings = (*self._unsound, *(self.hazards if options.check else ()))
        return (*findings, *self._timed[2]) if options.timed else findings

    def refuse(self, options: RunOptions) -> None:
        """Check that the program defines all values. Raises HazardError for a deadlock or an access out of range."""
        findings = self.findings(options)
        for finding in findings:
            if finding.kind in (DEADLOCK, OUT_OF_RANGE):
                raise HazardError("program", str(finding), findings=findings)

    def sequence(self, options: RunOptions) -> Array:
        if options.order == "time" and self.trace is not None:
            return sequence_by_time(self.order, self.trace.start)
        if options.order == "random":
            return random_sequence(self.table, self.order, options.seed)
        return self.order.sequence


@dataclass(frozen=True, eq=False)
class LaunchResult:
    """The result of one launch. `values` are graph tensors (S, *shape).

    `figures` has an entry for each layer of the launch, or one entry for the whole launch. `bound` is the lower bound
    for the whole launch; it may exceed the sum of the bounds of the layers. `events` is a function that counts the
    events of the launch (None: they are not counted).
    """

    values: Mapping[str, Array]
    findings: tuple[Finding, ...] = ()
    trace: Trace | None = None
    figures: tuple[Figures, ...] = (Figures(),)
    bound: int = 0
    events: Callable[[], Events] | None = None

    @classmethod
    def of(
        cls,
        values: Mapping[str, Array],
        passes: Passes,
        options: RunOptions,
        unit: str,
        executed_macs: int,
        bound: int = 0,
        events: Callable[[], Events] | None = None,
    ) -> LaunchResult:
        """Return the result of a launch after the shared passes; `unit` is the unit that does the work."""
        trace = passes.trace if options.timed else None
        figures = Figures(executed_macs=executed_macs)
        if trace:
            serial = passes.serial.cycles if passes.serial else None
            figures = trace.figures(unit, executed_macs, bound, serial)
        return cls(values, passes.findings(options), trace, (figures,), bound, events)

    @property
    def total(self) -> Figures:
        return Figures.total(self.figures)
