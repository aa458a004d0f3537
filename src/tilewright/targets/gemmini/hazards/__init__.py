"""Hazards of a program: commands that the machine cannot execute, and races that its reservation station leaves."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tilewright.array import Array
from tilewright.sim.findings import DEADLOCK, OUT_OF_RANGE, RACE, WRITE_DISTANCE, Finding
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.hazards import legal, order, touch
from tilewright.targets.gemmini.isa.fields import CODES, Funct
from tilewright.targets.gemmini.isa.text import line
from tilewright.targets.gemmini.isa.work import COMPUTE, EX, NONE, QUEUES, Work
from tilewright.targets.gemmini.loops import Expansion

#: Most conflicts of each pass that are reported.
LIMIT = 200
#: Microseconds that the uncompiled loops take for one row.
ROW_US = 3
#: Cycles between two writes of an accumulator row below which the second one loses the first [R].
DISTANCE = 3
#: Rows that a compute must stream if a config_ex follows at once [R].
CONFIG_ROWS = 5
#: Rows that the compute before a producer must stream if its result is read at once [R].
SAFE_ROWS = 6


@dataclass(frozen=True, eq=False)
class Hazards:
    """The hazards of a program, whose primitive commands are in the order `sequence` (indices into the expansion's).

    Findings name commands by their index in the program; those of a hardware loop have the index of the loop. With
    `place`, int64 [m], they name primitive commands by that number instead. The `steps` of findings are indices in
    `sequence`, or that number.
    """

    expansion: Expansion
    sequence: Array
    work: Work
    config: Config
    place: Array | None = None

    def placed(self, place: Array) -> Hazards:
        """Return these hazards with other numbers for the primitive commands."""
        other = copy(self)
        other.__dict__["place"] = place
        for name in ("findings", "fatal"):
            other.__dict__.pop(name, None)
        return other

    @cached_property
    def defects(self) -> tuple[legal.Defect, ...]:
        """The commands that break a rule; they are primitive commands in `sequence`."""
        return tuple(legal.defects(self.work, self.touches, self.config))

    @cached_property
    def fatal(self) -> tuple[Finding, ...]:
        """The findings of commands that stop the machine, or that leave its memories."""
        return tuple(self._defect(defect) for defect in self.defects if defect.kind in (DEADLOCK, OUT_OF_RANGE))

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        found = [self._defect(defect) for defect in self.defects]
        races = (*map(self._flight, self.expansion.findings), *(self._conflict(*row) for row in self.conflicts))
        return (*found, *races, *self._results(), *self._distances(), *self._astray(), *self._cut())

    @cached_property
    def touches(self) -> touch.Touches:
        return touch.touched(self.work, self.config)

    @cached_property
    def prims(self) -> Array:
        prims: Array = self.expansion.prims[self.sequence]
        return prims

    @cached_property
    def source(self) -> Array:
        """The command that each primitive command comes from, int64 [m]."""
        source: Array = self.expansion.source[self.sequence]
        return source

    @cached_property
    def segment(self) -> Array:
        """The number of fences before each primitive command, int64 [m]."""
        fences = np.cumsum(self.expansion.commands[:, 0] == Funct.FENCE)
        segment: Array = fences[self.source]
        return segment

    @cached_property
    def _looped(self) -> Array:
        """Whether each primitive command comes from a hardware loop, bool [m]."""
        looped: Array = self.prims[:, 0] != self.expansion.commands[self.source, 0]
        return looped

    @cached_property
    def _order(self) -> tuple[Array, Array, Array, Array]:
        """The queue and mark of each command, what waits for it, and what cannot start before it (order.successors)."""
        work, config = self.work, self.config
        queue = QUEUES[work.code]
        mark = np.where(work.code == CODES["config_ex"], order.DRAIN, 0)
        loads, acc = work.loads, work.loads.local.acc == 1
        wide = np.where(loads.own["stride"] == 0, order.REPEATED, order.WIDE)
        mark[loads.step] = np.where(loads.own["shrunk"] == 1, order.NARROW, wide) * acc
        mark[loads.step[loads.dram == 0]] = order.ZERO
        execute, writes = np.flatnonzero(queue == EX), work.computes.preload[work.computes.c.garbage == 0]
        mark[np.intersect1d(execute[:-1][work.kind[execute[1:]] == COMPUTE], writes)] = order.WRITES
        ranges = touch.by_step(touch.tracked(work, config, self._looped), len(queue))
        rows = config.all_spad_rows + config.acc_rows
        waits, reach = (np.full((len(queue) + more, order.QUEUES), order.NEVER) for more in (0, 1))
        after = np.full((2, order.QUEUES, rows), order.NEVER)
        run = order.successors.of(ROW_US * int(ranges.size.sum()))
        run(queue, mark, ranges, after, waits, reach)
        return queue, mark, waits, reach

    @cached_property
    def conflicts(self) -> list[list[int]]:
        """Conflicts: the kind (order.py), both primitive commands, and a row, or a stretch of DRAM."""
        if any(defect.kind == OUT_OF_RANGE for defect in self.defects):
            return []
        queue, mark, waits, reach = self._order
        found = np.zeros((LIMIT, 4), np.int64)
        rows = touch.by_step(self.touches, len(queue))
        last = np.full((2 * order.QUEUES + 5, self.config.all_spad_rows + self.config.acc_rows), NONE)
        run = order.conflicts.of(ROW_US * int(rows.size.sum()))
        count = run(queue, mark, self.segment, rows, last, waits, reach, found)
        kept: list[list[int]] = found[:count].tolist()
        ranges, stretches = _stretches(touch.dram(self.work), len(queue))
        last = np.full((2, stretches), NONE)
        dram = order.dram_conflicts.of(ROW_US * int(ranges.size.sum()))
        count = dram(queue, self.segment, ranges, last, waits, reach, found)
        kept += found[:count].tolist()
        return kept

    def _name(self, step: int) -> str:
        """Return a primitive command as text."""
        own, text = int(self.source[step]), line(self.prims, step)
        if self.place is not None:
            loop = f" (of loop #{own})" if self._looped[step] else ""
            return f"#{self.place[step]}{loop} `{text}`"
        return f"#{own}{' (of a loop)' if self._looped[step] else ''} `{text}`"

    def _steps(self, *steps: int) -> tuple[int, ...]:
        return steps if self.place is None else tuple(int(self.place[step]) for step in steps)

    def _defect(self, defect: legal.Defect) -> Finding:
        return Finding(defect.kind, f"{self._name(defect.step)}: {defect.reason}", self._steps(defect.step))

    def _flight(self, finding: Finding) -> Finding:
        """Return a finding about loops, whose steps are commands, with the first primitive command of each."""
        first = (int(np.argmax(self.source == command)) for command in finding.steps)
        return replace(finding, steps=self._steps(*first))

    def _place(self, row: int) -> tuple[str, int]:
        spad = self.config.all_spad_rows
        return ("spad", row) if row < spad else ("acc", row - spad)

    def _conflict(self, kind: int, early: int, late: int, place: int) -> Finding:
        steps = self._steps(early, late)
        first, second = self._name(early), self._name(late)
        if kind in (order.DRAM_READ, order.DRAM_WRITE):
            text = "reads DRAM that {0} writes" if kind == order.DRAM_READ else "writes DRAM that {0} reads"
            message = f"{second} {text.format(first)}, and nothing orders them: put a fence between them"
            return Finding(RACE, message, steps)
        memory, row = self._place(place)
        reasons = {
            order.CROSS: f"{second} and {first} use row {row} of {memory}, and the reservation station does not see it",
            order.ZEROS: f"{second} loads zeros into row {row} of {memory}, and overtakes {first}",
            order.WIDTHS: f"{second} loads row {row} of {memory}, and may overtake {first}, of another width",
            order.RESULT: f"{second} reads row {row} of {memory}, a result of {first} that begins at another row",
        }
        return Finding(RACE, f"{reasons[kind]}: put a fence between them", steps, memory, row, row + 1)

    @cached_property
    def _pairs(self) -> Array:
        """The computes that the one before directly follows in the array, bool [k]."""
        computes, segment = self.work.computes, self.segment[self.work.computes.step]
        same = (segment[1:] == segment[:-1]) & (computes.config[1:] == computes.config[:-1])
        pairs: Array = np.append(False, same)[: len(segment)] & (computes.preload != NONE)
        return pairs

    def _results(self) -> Iterator[Finding]:
        """Yield reads of a result of the scratchpad, by the compute behind it, that come too early."""
        computes, c, rows = self.work.computes, self.work.computes.c, self.work.computes.streamed
        weights = computes.own["dataflow"] == 1
        kept = (c.garbage == 0) & (c.acc == 0) & weights & (computes.w.garbage == 1)
        hasty = kept[1:] & (rows[:-1] < SAFE_ROWS)  # of compute i + 1, whose result compute i + 2 reads
        for late in (np.flatnonzero(hasty[:-1] & self._pairs[2:]) + 2).tolist():
            for place, steps in (
                (computes.a, computes.step),
                (computes.d, computes.step),
                (computes.w, computes.preload),
            ):
                if place.garbage[late] == 0 and place.acc[late] == 0 and place.row[late] == c.row[late - 1]:
                    pair = int(computes.preload[late - 1]), int(steps[late])
                    yield self._early(*pair, int(place.row[late]), int(rows[late - 2]))

    def _early(self, producer: int, consumer: int, row: int, rows: int) -> Finding:
        message = (
            f"{self._name(consumer)} reads the result of {self._name(producer)} too early, because the compute before"
            f" streams only {rows} rows: put a fence between them"
        )
        return Finding(RACE, message, self._steps(producer, consumer), "spad", row, row + 1)

    def _distances(self) -> Iterator[Finding]:
        """Yield accumulations into rows that the compute before wrote less than DISTANCE cycles earlier."""
        computes, c = self.work.computes, self.work.computes.c
        stride = computes.own["c_stride"]
        real, end = (c.garbage == 0) & (c.acc == 1), c.row + stride * np.maximum(c.rows - 1, 0)
        met = self._pairs[1:] & real[1:] & real[:-1] & (c.accumulate[1:] == 1)
        met &= (c.row[1:] <= end[:-1]) & (c.row[:-1] <= end[1:]) & (c.row[1:] != c.row[:-1])
        for late in (np.flatnonzero(met) + 1).tolist():
            first, second = (c.row[i] + stride[i] * np.arange(c.rows[i]) for i in (late - 1, late))
            rows, a, b = np.intersect1d(first, second, return_indices=True)
            distance = computes.streamed[late - 1] + b - a
            for at in np.flatnonzero(distance < DISTANCE)[:1].tolist():
                yield self._close(late - 1, late, int(rows[at]), int(distance[at]))

    def _close(self, early: int, late: int, row: int, distance: int) -> Finding:
        steps = int(self.work.computes.preload[early]), int(self.work.computes.preload[late])
        message = (
            f"{self._name(steps[1])} accumulates into row {row} of acc {distance} cycles after {self._name(steps[0])}"
            f" wrote it; {DISTANCE} are needed, and the RTL stops at an assertion: put another compute between them"
        )
        return Finding(WRITE_DISTANCE, message, self._steps(*steps), "acc", row, row + 1)

    def _astray(self) -> Iterator[Finding]:
        """Yield products whose result the array takes for that of the product before: both have the same number.

        An output-stationary result leaves with the third product from its own, a weight-stationary one with the second
        (MeshWithDelays.scala: matmul_id_of_output). Before the dataflow changes, the array is flushed only if it owes a
        result. So the number of a last product without a result stays [R].
        """
        computes = self.work.computes
        weights, preload = computes.own["dataflow"] == 1, computes.preload
        mixed = (
            ~weights[:-1]
            & (computes.c.garbage[:-1] == 1)
            & weights[1:]
            & (preload[:-1] != NONE)
            & (preload[1:] != NONE)
        )
        for early in np.flatnonzero(mixed).tolist():
            steps = int(preload[early]), int(preload[early + 1])
            message = (
                f"the result of {self._name(steps[1])} may go astray or never come, because {self._name(steps[0])} "
                "before it, output-stationary, has no result: give that one a place"
            )
            yield Finding(RACE, message, self._steps(*steps))

    def _cut(self) -> Iterator[Finding]:
        """Yield computes of few rows whose result the flush before the next config_ex spoils."""
        computes, code = self.work.computes, self.work.code
        rows = np.full(len(code), CONFIG_ROWS)
        rows[computes.step] = computes.streamed
        execute = np.flatnonzero(QUEUES[code] == EX)
        early, late = execute[:-1], execute[1:]
        follows = (code[late] == CODES["config_ex"]) & (self.segment[early] == self.segment[late])
        for at in np.flatnonzero(follows & (rows[early] < CONFIG_ROWS)).tolist():
            steps = int(early[at]), int(late[at])
            message = (
                f"{self._name(steps[1])} follows {self._name(steps[0])}, which streams only {rows[steps[0]]} rows, and "
                "may spoil its result: put a fence between them"
            )
            yield Finding(RACE, message, self._steps(*steps))


def _stretches(bytes_: touch.Touches, steps: int) -> tuple[touch.Rows, int]:
    """Return ranges of bytes as ranges of stretches, and the number of stretches."""
    edges = np.unique(np.concatenate([bytes_.first, bytes_.first + bytes_.size]))
    low, high = np.searchsorted(edges, bytes_.first), np.searchsorted(edges, bytes_.first + bytes_.size)
    return touch.by_step(bytes_._replace(first=low, size=high - low), steps), max(len(edges) - 1, 1)
