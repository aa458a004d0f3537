"""Outcomes and recordings of launches.

A recording stores the commands of a launch as encoded queues, which can be saved and replayed. Like the machine's
queues, a recording contains addresses, so it needs a device with tensors at the same addresses. A replay repeats the
recorded commands, even if the kernel would issue other commands for the current values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright import files
from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.report.perfetto import save
from tilewright.report.timeline import of_launch
from tilewright.sim.findings import RACE, UNINITIALISED, Finding
from tilewright.sim.steps import Trace
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.elaborate import UNITS, ElaboratedProgram, elaborate
from tilewright.targets.bm1684x.isa.meaning import checked
from tilewright.targets.bm1684x.isa.operations import DMA, HAU, TIU
from tilewright.targets.bm1684x.isa.stream import EncodedCommand, queue
from tilewright.targets.bm1684x.isa.undefined import findings as hazards_of
from tilewright.targets.bm1684x.timing.estimate import trace
from tilewright.targets.bm1684x.values.memory import Memories

DIGEST = "config"


@dataclass(frozen=True, eq=False)
class Launched:
    """The outcome of one launch: its commands, times and findings."""

    program: ElaboratedProgram
    trace: Trace
    findings: tuple[Finding, ...]
    clock_mhz: int
    bank_conflicts: bool = False

    @property
    def cycles(self) -> int:
        return self.trace.cycles

    @property
    def overlapped(self) -> int:
        """The number of cycles during which at least two engines are busy."""
        # Walk through all starts and ends of commands in order, and count the busy engines.
        times = np.concatenate((self.trace.start, self.trace.end))
        change = np.repeat((1, -1), len(self.trace.start))
        order = np.lexsort((change, times))  # ends before starts at equal times
        busy = np.cumsum(change[order])[:-1]
        return int(np.diff(times[order])[busy > 1].sum())

    def summary(self, peak: int = 0) -> str:
        """Return a line with the cycles, the busy share of each engine, and the overlap.

        `peak` is the number of cycles for the same work at the machine's peak rate. If `peak` is not 0, the line also
        has its ratio to the actual cycles.
        """
        whole = max(1, self.cycles)
        text = ", ".join(f"{engine} {cycles / whole:.1%}" for engine, cycles in self.trace.busy().items())
        used = f"{peak / whole:.1%} of peak, " if peak else ""
        model = " (bank conflicts: a model)" if self.bank_conflicts else ""
        return f"{self.cycles:,} cycles{model}: {used}busy {text}, overlapped {self.overlapped / whole:.1%}"

    def save_trace(self, path: str | Path) -> None:
        """Save a timeline of the commands for https://ui.perfetto.dev (Chrome's JSON format if `path` ends in .json).

        Raises InputError if a package that the format needs is missing.
        """
        model = "the vendor compiler's estimate" + ", with a model of bank conflicts" * self.bank_conflicts
        about = {"timing model": model, "cycles": str(self.cycles)}
        save(of_launch(self.trace, "BM1684X kernel", about, self.clock_mhz), path)


def outcome_of(program: ElaboratedProgram, memories: Memories, findings: Sequence[Finding] = ()) -> Launched:
    """Return the times and the findings of a program after its run.

    The list of findings begins with `findings`. Raises HazardError on deadlock.
    """
    knobs = memories.knobs
    reported = hazards_of(program) if knobs.detect_races or knobs.detect_uninitialised else []
    enabled = {RACE: knobs.detect_races, UNINITIALISED: knobs.detect_uninitialised}
    reported = [finding for finding in reported if enabled[finding.kind]]
    times = trace(program, memories.config, conflicts=knobs.bank_conflicts)
    return Launched(program, times, (*findings, *reported), memories.config.clock_mhz, knobs.bank_conflicts)


@dataclass(frozen=True, eq=False)
class Recording:
    """The queues of a launch (uint8 by engine), and the digest of the configuration for which they were recorded."""

    queues: dict[str, Array]
    digest: str

    @classmethod
    def of(cls, program: ElaboratedProgram, config: Config) -> Recording:
        """Record the commands of a program. Raises ProgramError for a command without a known encoding."""
        queues: dict[str, list[EncodedCommand]] = {unit: [] for unit in UNITS}
        partner_of = {TIU: DMA, DMA: TIU}
        for step in sorted(program.steps, key=lambda step: step.id):
            if step.engine == HAU:
                raise ProgramError(
                    step.name, "the format of the sorting engine's commands is not known", "leave out this engine"
                )
            needs = step.needs.get(partner_of[step.engine], 0)
            queues[step.engine].append(checked(step.command, step.id - 1, needs, config))
        return cls({unit: queue(unit, commands) for unit, commands in queues.items()}, config.digest())

    def launch(self, memories: Memories) -> Launched:
        """Run the recording and return its outcome. Raises ProgramError for a damaged or unsuitable recording."""
        if memories.config.digest() != self.digest:
            remedy = "run it on a device with that configuration"
            raise ProgramError("recording", "it was made for another configuration", remedy)
        memories.forget()
        program = elaborate(self.queues, memories.config, memories.regions, memories.knobs)
        return outcome_of(program.run(memories), memories)

    def save(self, path: str | Path) -> None:
        with Path(path).open("wb") as file:
            tiu, dma = (self.queues[unit] for unit in UNITS)
            np.savez_compressed(file, tiu=tiu, dma=dma, config=np.frombuffer(self.digest.encode(), np.uint8))

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """Return the recording in a file. Raises ProgramError if the file is not a recording."""
        where = str(path)
        kept = files.arrays(path, ProgramError, "record the kernel again")
        if missing := {*UNITS, DIGEST} - kept.keys():
            raise ProgramError(where, f"is not a recording: it has no array '{min(missing)}'")
        arrays = {name: kept[name] for name in (*UNITS, DIGEST)}
        if any(array.dtype != np.uint8 or array.ndim != 1 for array in arrays.values()):
            raise ProgramError(where, "is not a recording: its queues are not bytes")
        return cls({unit: arrays[unit] for unit in UNITS}, arrays[DIGEST].tobytes().decode(errors="replace"))
