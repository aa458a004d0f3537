"""The hazards of a program: commands that the machine cannot execute, and races that its reservation station leaves.

`legal.py` finds commands that break a rule by themselves. `touch.py` says which rows each command uses, and which
ranges of rows the station compares; `order.py` derives what the station orders, and notes pairs of commands that use
the same row in no certain order. Races inside the array, which no rows show, are found here by rules that runs of RTL
confirmed. `Hazards` makes findings of all of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
#: The least number of cycles between two writes of an accumulator row: closer, the second write loses the first [R].
DISTANCE = 3
#: The least number of rows that a compute must stream if a config_ex follows at once [R].
CONFIG_ROWS = 5
#: The least number of rows that the compute before a producer must stream if its result is read at once [R].
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
        """Return these hazards with other numbers for the primitive commands. The analysis is not repeated."""
        renumbered = copy(self)
        renumbered.__dict__["place"] = place
        for name in ("findings", "fatal"):
            renumbered.__dict__.pop(name, None)
        return renumbered

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
        findings = [self._defect(defect) for defect in self.defects]
        source = self.source
        for loops in self.expansion.findings:  # their steps become the first primitive command of each loop
            first = (int(np.argmax(source == command)) for command in loops.steps)
            findings.append(replace(loops, steps=self._steps(*first)))
        findings += (self._conflict(*row) for row in self.conflicts)
        return (*findings, *self._results(), *self._distances(), *self._misrouted(), *self._cut())

    @cached_property
    def touches(self) -> touch.Touches:
        return touch.touched(self.work, self.config)

    @cached_property
    def prims(self) -> Array:
        return self.expansion.prims[self.sequence]

    @cached_property
    def source(self) -> Array:
        """The command that each primitive command comes from, int64 [m]."""
        return self.expansion.source[self.sequence]

    @cached_property
    def segment(self) -> Array:
        """The number of fences before each primitive command, int64 [m]."""
        fences = np.cumsum(self.expansion.commands[:, 0] == Funct.FENCE)
        return fences[self.source]

    @cached_property
    def _looped(self) -> Array:
        """Whether each primitive command comes from a hardware loop, bool [m]."""
        return self.prims[:, 0] != self.expansion.commands[self.source, 0]

    @cached_property
    def _order(self) -> order.Order:
        """The commands and their order by the reservation station."""
        work = self.work
        config = self.config
        queue = QUEUES[work.code]
        mark = np.where(work.code == CODES["config_ex"], order.DRAIN, 0)
        loads = work.loads
        acc = work.loads.local.acc == 1
        wide = np.where(loads.settings["stride"] == 0, order.REPEATED, order.WIDE)
        mark[loads.step] = np.where(loads.settings["shrunk"] == 1, order.NARROW, wide) * acc
        mark[loads.step[loads.dram == 0]] = order.ZERO
        execute = np.flatnonzero(queue == EX)
        writes = work.computes.preload[work.computes.c.garbage == 0]
        mark[np.intersect1d(execute[:-1][work.kind[execute[1:]] == COMPUTE], writes)] = order.WRITES
        ranges = touch.by_step(touch.tracked(work, config, self._looped), len(queue))
        waits, reach = (np.full((len(queue) + more, order.QUEUES), order.NEVER) for more in (0, 1))
        after = np.full((2, order.QUEUES, config.all_spad_rows + config.acc_rows), order.NEVER)
        commands = order.Order(queue, mark, self.segment, waits, reach)
        order.successors.of(ROW_US * int(ranges.size.sum()))(commands, ranges, after)
        return commands

    @cached_property
    def conflicts(self) -> list[list[int]]:
        """Conflicts: the kind (order.py), both primitive commands, and a row, or an interval of DRAM."""
        # Empty if a command leaves the memories: it has no rows then.
        if any(defect.kind == OUT_OF_RANGE for defect in self.defects):
            return []
        rows = touch.by_step(self.touches, len(self.work.code))
        ranges, intervals = _intervals(touch.dram(self.work), len(self.work.code))
        kept: list[list[int]] = []
        for search, touched, last in (
            (order.conflicts, rows, (order.ROW_STATE, self.config.all_spad_rows + self.config.acc_rows)),
            (order.dram_conflicts, ranges, (2, intervals)),
        ):
            pairs = np.zeros((LIMIT + 1, 4), np.int64)
            search.of(ROW_US * int(touched.size.sum()))(self._order, touched, np.full(last, NONE), pairs)
            kept += pairs[: pairs[-1, 0]].tolist()
        return kept

    def _name(self, step: int) -> str:
        """Return a primitive command as text."""
        command = int(self.source[step])
        text = line(self.prims, step)
        if self.place is not None:
            loop = f" (of loop #{command})" if self._looped[step] else ""
            return f"#{self.place[step]}{loop} `{text}`"
        return f"#{command}{' (of a loop)' if self._looped[step] else ''} `{text}`"

    def _steps(self, *steps: int) -> tuple[int, ...]:
        return steps if self.place is None else tuple(int(self.place[step]) for step in steps)

    def _defect(self, defect: legal.Defect) -> Finding:
        return Finding(defect.kind, f"{self._name(defect.step)}: {defect.reason}", self._steps(defect.step))

    def _memory(self, place: int) -> str:
        return "spad" if place < self.config.all_spad_rows else "acc"

    def _row(self, place: int) -> int:
        return place if place < self.config.all_spad_rows else place - self.config.all_spad_rows

    def _pair(self, kind: str, steps: Sequence[int], text: str, place: int = NONE) -> Finding:
        """Return a finding about two primitive commands, which the text names {0} and {1}, and a row (NONE: none)."""
        message = text.format(*map(self._name, steps))
        where = () if place == NONE else (self._memory(place), self._row(place), self._row(place) + 1)
        return Finding(kind, message, self._steps(*steps), *where)

    def _conflict(self, kind: int, early: int, late: int, place: int) -> Finding:
        if kind in (order.DRAM_READ, order.DRAM_WRITE):
            uses = "reads DRAM that {0} writes" if kind == order.DRAM_READ else "writes DRAM that {0} reads"
            text = f"{{1}} {uses}, and nothing orders them: put a fence between them"
            return self._pair(RACE, (early, late), text)
        row = f"row {self._row(place)} of {self._memory(place)}"
        text = {
            order.CROSS: f"{{1}} and {{0}} use {row}, and the reservation station does not see it",
            order.ZEROS: f"{{1}} loads zeros into {row}, and overtakes {{0}}",
            order.WIDTHS: f"{{1}} loads {row}, and may overtake {{0}}, of another width",
            order.RESULT: f"{{1}} reads {row}, a result of {{0}} that begins at another row",
        }[kind]
        return self._pair(RACE, (early, late), f"{text}: put a fence between them", place)

    @cached_property
    def _pairs(self) -> Array:
        """Whether each compute follows the one before it in the array, with no config_ex or fence between, bool [k]."""
        computes = self.work.computes
        segment = self.segment[self.work.computes.step]
        same = (segment[1:] == segment[:-1]) & (computes.config[1:] == computes.config[:-1])
        return np.append(False, same)[: len(segment)] & (computes.preload != NONE)

    def _results(self) -> Iterator[Finding]:
        """Yield computes that read the result of the compute before them from the scratchpad too early."""
        # The rule was found on RTL: with equal start rows, the read fails if the compute before the producer streamed
        # less than SAFE_ROWS rows and the producer kept its weights [R].
        computes = self.work.computes
        c = self.work.computes.c
        rows = self.work.computes.streamed
        weights = computes.settings["dataflow"] == 1
        kept = (c.garbage == 0) & (c.acc == 0) & weights & (computes.w.garbage == 1)
        hasty = kept[1:] & (rows[:-1] < SAFE_ROWS)  # of compute i + 1, whose result compute i + 2 reads
        for late in (np.flatnonzero(hasty[:-1] & self._pairs[2:]) + 2).tolist():
            for place, steps in (
                (computes.a, computes.step),
                (computes.d, computes.step),
                (computes.w, computes.preload),
            ):
                if place.garbage[late] == 0 and place.acc[late] == 0 and place.row[late] == c.row[late - 1]:
                    text = (
                        "{1} reads the result of {0} too early, because the compute before"
                        f" streams only {rows[late - 2]} rows: put a fence between them"
                    )
                    pair = int(computes.preload[late - 1]), int(steps[late])
                    yield self._pair(RACE, pair, text, int(place.row[late]))

    def _distances(self) -> Iterator[Finding]:
        """Yield accumulations into rows that the compute before wrote less than DISTANCE cycles earlier."""
        # Each compute streams one row a cycle. So row b of the second one is written as many cycles after row a of the
        # first one as the first one streams rows, plus b - a.
        computes = self.work.computes
        c = self.work.computes.c
        stride = computes.settings["c_stride"]
        real = (c.garbage == 0) & (c.acc == 1)
        end = c.row + stride * np.maximum(c.rows - 1, 0)
        met = self._pairs[1:] & real[1:] & real[:-1] & (c.accumulate[1:] == 1)
        met &= (c.row[1:] <= end[:-1]) & (c.row[:-1] <= end[1:]) & (c.row[1:] != c.row[:-1])
        for late in (np.flatnonzero(met) + 1).tolist():
            first, second = (c.row[i] + stride[i] * np.arange(c.rows[i]) for i in (late - 1, late))
            rows, a, b = np.intersect1d(first, second, return_indices=True)
            distance = computes.streamed[late - 1] + b - a
            for at in np.flatnonzero(distance < DISTANCE)[:1].tolist():
                text = (
                    f"{{1}} accumulates into row {rows[at]} of acc {distance[at]} cycles after {{0}} wrote it;"
                    f" {DISTANCE} are needed, and the RTL stops at an assertion: put another compute between them"
                )
                pair = computes.preload[late - 1 : late + 1].tolist()
                yield self._pair(WRITE_DISTANCE, pair, text, self.config.all_spad_rows + int(rows[at]))

    def _misrouted(self) -> Iterator[Finding]:
        """Yield products whose result the array may mistake for that of the product before, of the same identity."""
        # An output-stationary result leaves with the third product after its own, a weight-stationary one with the
        # second (MeshWithDelays.scala: matmul_id_of_output). When the dataflow changes, the array is flushed only if it
        # owes a result. So the tag of a last output-stationary product without a result stays, and meets the next
        # product's [R].
        computes = self.work.computes
        preload = self.work.computes.preload
        weights = computes.settings["dataflow"] == 1
        paired = preload != NONE
        mixed = ~weights[:-1] & (computes.c.garbage[:-1] == 1) & weights[1:] & paired[:-1] & paired[1:]
        text = (
            "the result of {1} may be lost or written elsewhere, because {0}, output-stationary, has no result: "
            "give that one a place"
        )
        for early in np.flatnonzero(mixed).tolist():
            yield self._pair(RACE, preload[early : early + 2].tolist(), text)

    def _cut(self) -> Iterator[Finding]:
        """Yield computes of few rows whose result may be spoilt by the flush before the next config_ex [R]."""
        computes = self.work.computes
        code = self.work.code
        rows = np.full(len(code), CONFIG_ROWS)
        rows[computes.step] = computes.streamed
        execute = np.flatnonzero(QUEUES[code] == EX)
        early = execute[:-1]
        late = execute[1:]
        follows = (code[late] == CODES["config_ex"]) & (self.segment[early] == self.segment[late])
        for at in np.flatnonzero(follows & (rows[early] < CONFIG_ROWS)).tolist():
            streams = f"which streams only {rows[early[at]]} rows, and may spoil its result: put a fence between them"
            yield self._pair(RACE, (int(early[at]), int(late[at])), f"{{1}} follows {{0}}, {streams}")


def _intervals(bytes_: touch.Touches, steps: int) -> tuple[touch.Rows, int]:
    """Return ranges of bytes as ranges of intervals, and the number of intervals."""
    # The edges of all ranges cut DRAM into intervals. There are at most twice as many as ranges, whatever their bytes.
    edges = np.unique(np.concatenate([bytes_.first, bytes_.first + bytes_.size]))
    low, high = np.searchsorted(edges, bytes_.first), np.searchsorted(edges, bytes_.first + bytes_.size)
    return touch.by_step(bytes_._replace(first=low, size=high - low), steps), max(len(edges) - 1, 1)
