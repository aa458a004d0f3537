"""What one launch of a kernel did: its commands, when they ran, what was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright.report.events import of_launch
from tilewright.report.perfetto import save
from tilewright.sim.findings import RACE, UNINITIALISED, Finding
from tilewright.sim.steps import Trace
from tilewright.targets.bm1684x.isa.elaborate import Elaborated
from tilewright.targets.bm1684x.isa.undefined import findings as hazards_of
from tilewright.targets.bm1684x.timing.estimate import trace
from tilewright.targets.bm1684x.values.memory import Memories


@dataclass(frozen=True, eq=False)
class Launched:
    """What one launch did."""

    program: Elaborated
    trace: Trace
    findings: tuple[Finding, ...]
    bank_conflicts: bool = False

    @property
    def cycles(self) -> int:
        return self.trace.cycles

    @property
    def overlapped(self) -> int:
        """Cycles in which more than one engine is busy."""
        times = np.concatenate((self.trace.start, self.trace.end))
        change = np.repeat((1, -1), len(self.trace.start))
        order = np.lexsort((change, times))  # ends before begins
        busy = np.cumsum(change[order])[:-1]
        return int(np.diff(times[order])[busy > 1].sum())

    def summary(self, peak: int = 0) -> str:
        """Cycles, how much of them each engine is busy and several are at once; `peak`: cycles that suffice at best."""
        whole = max(1, self.cycles)
        text = ", ".join(f"{engine} {cycles / whole:.1%}" for engine, cycles in self.trace.busy().items())
        used = f"{peak / whole:.1%} of peak, " if peak else ""
        model = " (bank conflicts: a model)" if self.bank_conflicts else ""
        return f"{self.cycles:,} cycles{model}: {used}busy {text}, overlapped {self.overlapped / whole:.1%}"

    def save_trace(self, path: str | Path) -> None:
        """For https://ui.perfetto.dev; Chrome's JSON for a path that ends in .json. Raises InputError."""
        model = "the vendor compiler's estimate" + ", with a model of bank conflicts" * self.bank_conflicts
        save(of_launch(self.trace, "BM1684X kernel", {"timing model": model, "cycles": str(self.cycles)}), path)


def finished(program: Elaborated, memories: Memories, findings: Sequence[Finding] = ()) -> Launched:
    """What has run: its times, and what the knobs look for beside what was found while it ran."""
    knobs = memories.knobs
    found = hazards_of(program) if knobs.detect_races or knobs.detect_uninitialised else []
    wanted = {RACE: knobs.detect_races, UNINITIALISED: knobs.detect_uninitialised}
    found = [finding for finding in found if wanted[finding.kind]]
    times = trace(program, memories.config, conflicts=knobs.bank_conflicts)
    return Launched(program, times, (*findings, *found), knobs.bank_conflicts)
