"""The passes that every launch of a step table goes through before its values: order, hazards, time. None needs data.

A machine gives its step table, what it found while it elaborated the instructions, and a function that times the
steps. Each pass runs when it is first asked for, and needs what the passes before it found to be sound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tilewright.array import Array
from tilewright.errors import HazardError
from tilewright.sim.findings import DEADLOCK, OUT_OF_RANGE, Finding
from tilewright.sim.hazards import hazards, out_of_range
from tilewright.sim.order import Order, random_sequence, sequence_by_time
from tilewright.sim.steps import Part, StepTable, Trace


@dataclass(frozen=True)
class RunOptions:
    """Which passes a run makes. `timing` None: no time; `order`: stream, time or random (with `seed`)."""

    timing: str | None = None
    check: bool = True
    values: bool = True
    order: str = "stream"
    seed: int = 0

    @property
    def timed(self) -> bool:
        return self.timing is not None or self.order == "time"


#: The trace of a launch and the one without any overlap, None where the launch has none. Raises HazardError.
Times = tuple[Trace, Trace | None]


@dataclass(frozen=True, eq=False)
class Passes:
    """What is known of one launch without its data.

    `given` are findings of the elaboration. `outside` are accesses outside of the memories: None lets the footprints
    tell. `further` finds hazards that only this machine has.
    """

    table: StepTable
    order: Order
    times: Callable[[], Times]
    given: Sequence[Finding] = ()
    outside: Sequence[Finding] | None = None
    further: Callable[[], Sequence[Finding]] = lambda: ()

    @cached_property
    def _unsound(self) -> tuple[Finding, ...]:
        """What leaves everything behind it without a meaning, and leftover tokens."""
        outside = out_of_range(self.table) if self.outside is None else self.outside
        return (*self.given, *self.order.findings, *outside)

    @cached_property
    def sound(self) -> bool:
        """Whether every step can run, inside the memories."""
        return self.order.complete and not any(found.kind == OUT_OF_RANGE for found in self._unsound)

    @cached_property
    def hazards(self) -> tuple[Finding, ...]:
        """Races, uninitialised reads, and what `further` finds."""
        return (*hazards(self.table, self.order), *self.further()) if self.sound else ()

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
        """When each step ran; None where the launch cannot run to its end."""
        return self._timed[0]

    @property
    def serial(self) -> Trace | None:
        """The trace without any overlap; None where the steps cannot run in stream order."""
        return self._timed[1]

    def findings(self, options: RunOptions) -> tuple[Finding, ...]:
        """What the passes that `options` ask for have found, in the order of the passes."""
        found = (*self._unsound, *(self.hazards if options.check else ()))
        return (*found, *self._timed[2]) if options.timed else found

    def refuse(self, options: RunOptions) -> None:
        """Raise HazardError for a launch whose values are undefined from some step on."""
        found = self.findings(options)
        for finding in found:
            if finding.kind in (DEADLOCK, OUT_OF_RANGE):
                raise HazardError("program", str(finding), findings=found)

    def sequence(self, options: RunOptions) -> Array:
        """The steps in the order asked for: one that tokens allow, by time of start, or a random legal one."""
        if options.order == "time" and self.trace is not None:
            return sequence_by_time(self.order, self.trace.start)
        if options.order == "random":
            return random_sequence(self.table, self.order, options.seed)
        return self.order.sequence


@dataclass(frozen=True, eq=False)
class LaunchResult:
    """What one launch did. `values` are graph tensors (S, *shape).

    `executed_macs` are the multiply-accumulates that the machine's instructions ask for: without the padding taps that
    it skips, with the idle channels that it fills. `macs_per_cycle` is the peak of the operand type that the launch
    works on (0: that of `Target.describe`). `unit` names the unit whose stalls explain the launch. `serial_cycles` is
    the time without any overlap: 0 where it is not known, None where it is not defined, as steps need a token or room
    for one from a later step of the stream. A launch of several layers says what each takes, in `parts`, and what each
    multiplied, in `macs_of`.
    """

    values: Mapping[str, Array]
    findings: tuple[Finding, ...] = ()
    trace: Trace | None = None
    unit: str = ""
    executed_macs: int = 0
    serial_cycles: int | None = 0
    parts: tuple[Part, ...] = ()
    macs_of: tuple[int, ...] = ()
    macs_per_cycle: int = 0

    @classmethod
    def of(
        cls,
        values: Mapping[str, Array],
        passes: Passes,
        options: RunOptions,
        unit: str,
        executed_macs: int,
        parts: tuple[Part, ...] = (),
        macs_of: tuple[int, ...] = (),
    ) -> LaunchResult:
        """The result of a launch that went through the shared passes."""
        trace = passes.trace if options.timed else None
        serial = 0 if trace is None else passes.serial.cycles if passes.serial else None
        return cls(values, passes.findings(options), trace, unit, executed_macs, serial, parts, macs_of)
