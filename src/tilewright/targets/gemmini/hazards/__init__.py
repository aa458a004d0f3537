"""The hazards of a program: commands that the machine cannot execute, and races that its reservation station allows.

`legal.py` finds commands that break a rule. `touch.py` computes the rows that each command uses, and the ranges of rows
that the station compares. `order.py` derives the order that the station enforces, and finds pairs of commands that use
the same row without an enforced order. This file finds races inside the array, which do not depend on shared rows, by
rules that RTL runs confirmed. `Hazards` combines all findings.
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
from tilewright.targets.gemmini.isa.work import COMPUTE, EX, LEAST_ROWS, NONE, QUEUES, SCALE_ONE, Work
from tilewright.targets.gemmini.loops import Expansion

#: Each search reports at most this number of conflicts.
LIMIT = 200
#: The uncompiled loops take this time for one row, in microseconds.
ROW_US = 3
#: Two writes to an accumulator row must be this number of cycles apart. Otherwise, the first write is lost [R].
DISTANCE = 3
#: A compute before a flush must stream at least this number of rows in the RTL of 2023 [R].
CONFIG_ROWS = 5
#: The host's commands from a compute to the next pair's compute, at most, if the pair comes without a pause.
PAIR_COMMANDS = 4
#: Copies of an int32 row that are written before an int8 row behind them, at most, plus 1.
HELD_ROWS = 4
#: If a compute reads the previous compute's result, the preload of this result must run with at least this number of
#: rows [R].
SAFE_ROWS = 6


@dataclass(frozen=True, eq=False)
class Hazards:
    """The hazards of a program. `sequence` is the execution order, as indices into the expansion's primitive commands.

    Findings name a command by its index in the program, and a primitive command of a hardware loop by the index of the
    loop. With `place`, int64 [m], findings instead name primitive command i by the number `place[i]`. The `steps` of a
    finding are indices into `sequence`, or the numbers in `place` if there is a `place`.
    """

    expansion: Expansion
    sequence: Array
    work: Work
    config: Config
    place: Array | None = None

    def placed(self, place: Array) -> Hazards:
        """Return the same hazards with other numbers for the primitive commands, without a new analysis."""
        renumbered = copy(self)
        renumbered.__dict__["place"] = place
        for name in ("findings", "fatal"):
            renumbered.__dict__.pop(name, None)
        return renumbered

    @cached_property
    def defects(self) -> tuple[legal.Defect, ...]:
        return tuple(legal.defects(self.work, self.touches, self.config))

    @cached_property
    def fatal(self) -> tuple[Finding, ...]:
        """The findings about commands that stop the machine or access rows outside of its memories."""
        return tuple(self._defect(defect) for defect in self.defects if defect.kind in (DEADLOCK, OUT_OF_RANGE))

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        findings = [self._defect(defect) for defect in self.defects]
        source = self.source
        for loops in self.expansion.findings:  # name each loop by its first primitive command
            first = (int(np.argmax(source == command)) for command in loops.steps)
            findings.append(replace(loops, steps=self._steps(*first)))
        findings += (self._conflict(*row) for row in self.conflicts)
        return (*findings, *self._results(), *self._distances(), *self._misrouted(), *self._cut(), *self._reordered())

    @cached_property
    def touches(self) -> touch.Touches:
        return touch.touched(self.work, self.config)

    @cached_property
    def prims(self) -> Array:
        return self.expansion.prims[self.sequence]

    @cached_property
    def source(self) -> Array:
        """For each primitive command, the index of the program's command that issues it, int64 [m]."""
        return self.expansion.source[self.sequence]

    @cached_property
    def segment(self) -> Array:
        """The number of fences before each primitive command, int64 [m]."""
        fences = np.cumsum(self.expansion.commands[:, 0] == Funct.FENCE)
        return fences[self.source]

    @cached_property
    def _looped(self) -> Array:
        return self.prims[:, 0] != self.expansion.commands[self.source, 0]

    @cached_property
    def _order(self) -> order.Order:
        work = self.work
        config = self.config
        queue = QUEUES[work.code]
        mark = np.where(work.code == CODES["config_ex"], order.DRAIN, 0)
        loads = work.loads
        acc = work.loads.local.acc == 1
        held = (loads.settings["stride"] == 0) & (loads.local.rows >= HELD_ROWS)
        scaled = np.where(loads.settings["scale"] == SCALE_ONE, order.NARROW, order.SCALED)
        wide = np.where(held, order.REPEATED, order.WIDE)
        mark[loads.step] = np.where(loads.settings["shrunk"] == 1, scaled, wide) * acc
        mark[loads.step[loads.dram == 0]] = order.ZERO
        execute = np.flatnonzero(queue == EX)
        writes = work.computes.preload[work.computes.c.garbage == 0]
        mark[np.intersect1d(execute[:-1][work.kind[execute[1:]] == COMPUTE], writes)] = order.WRITES
        tracked = touch.tracked(work, config, self._looped)
        # The tracker counts four bytes for each zero of the accumulator, so with `shrunk`, the load seems to be done
        # early, and later commands do not wait for it (Scratchpad.scala: zero_writer_bytes_read).
        early = loads.step[(loads.dram == 0) & acc & (loads.settings["shrunk"] == 1)]
        tracked = tracked._replace(size=np.where(np.isin(tracked.step, early), 0, tracked.size))
        ranges = touch.by_step(tracked, len(queue))
        waits, reach = (np.full((len(queue) + more, order.QUEUES), order.NEVER) for more in (0, 1))
        after = np.full((2, order.QUEUES, config.all_spad_rows + config.acc_rows), order.NEVER)
        commands = order.Order(queue, mark, self.segment, waits, reach)
        order.successors.of(ROW_US * int(ranges.size.sum()))(commands, ranges, after)
        return commands

    @cached_property
    def conflicts(self) -> list[list[int]]:
        """The conflicts: [kind (order.py), earlier command, later command, row or DRAM interval]."""
        # A command that accesses rows outside of the memories has no valid row numbers, so conflicts cannot be
        # searched.
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
        """Return a finding about two primitive commands, {0} and {1} in the text. `place` is a row number or NONE."""
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
        """Whether no config_ex and no fence separates a compute from the previous compute, bool [k]."""
        computes = self.work.computes
        segment = self.segment[self.work.computes.step]
        same = (segment[1:] == segment[:-1]) & (computes.config[1:] == computes.config[:-1])
        return np.append(False, same)[: len(segment)] & (computes.preload != NONE)

    @cached_property
    def hasty(self) -> list[list[int]]:
        """Computes that read the previous compute's result too early, in the form of `conflicts`."""
        # The controller knows a result once the array has begun its operation, which is five cycles after the
        # controller has read the first row. A read that begins at the first row of the result fails if the operation
        # has fewer rows [R]. The operation is the preload of the result with the compute before, or the preload alone.
        computes = self.work.computes
        c = self.work.computes.c
        alone = ~self._pairs & (self.config.rtl == 2023)
        rows = np.where(alone, LEAST_ROWS, np.append(SAFE_ROWS, computes.streamed)[:-1])
        brings = (computes.w.garbage == 0) | (computes.settings["dataflow"] == 0)
        rows = np.where(brings, self.config.dim if self.config.rtl == 2023 else SAFE_ROWS, rows)
        short = (c.garbage == 0) & (c.acc == 0) & (rows < SAFE_ROWS) & (computes.preload != NONE)
        reads = []
        for late in (np.flatnonzero(short[:-1] & self._pairs[1:]) + 1).tolist():
            for place, steps in (
                (computes.a, computes.step),
                (computes.d, computes.step),
                (computes.w, computes.preload),
            ):
                if place.garbage[late] == 0 and place.acc[late] == 0 and place.row[late] == c.row[late - 1]:
                    reads.append(
                        [order.RESULT, int(computes.preload[late - 1]), int(steps[late]), int(place.row[late])]
                    )
        return reads

    def _results(self) -> Iterator[Finding]:
        for _, early, late, row in self.hasty:
            text = (
                "{1} reads the result of {0} too early, because the preload of {0} runs with fewer than"
                f" {SAFE_ROWS} rows: put a fence between them"
            )
            yield self._pair(RACE, (early, late), text, row)

    def _distances(self) -> Iterator[Finding]:
        """Yield accumulations into rows that the previous compute wrote fewer than DISTANCE cycles earlier."""
        # A compute streams one row per cycle. If the first compute streams n rows, then row b of the second compute is
        # written n + b - a cycles after row a of the first.
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
        """Yield products whose result may be assigned to the tag of an earlier product."""
        # The rows of product n + 3 push out the output-stationary result of product n, and the rows of product n + 2
        # push out a weight-stationary result (MeshWithDelays.scala: matmul_id_of_output). A change of the dataflow
        # flushes the array only if a result is inside. So if the last output-stationary product has no result, its tag
        # remains and may match the next product [R].
        computes = self.work.computes
        preload = self.work.computes.preload
        weights = computes.settings["dataflow"] == 1
        paired = preload != NONE
        mixed = ~weights[:-1] & (computes.c.garbage[:-1] == 1) & weights[1:] & paired[:-1] & paired[1:]
        text = (
            "the result of {1} may be lost or written elsewhere, because {0}, output-stationary, has no result: "
            "give {0} a result"
        )
        for early in np.flatnonzero(mixed).tolist():
            yield self._pair(RACE, preload[early : early + 2].tolist(), text)

    def _cut(self) -> Iterator[Finding]:
        """Yield short computes whose operands the array takes with the control bit of the flush behind them."""
        # In the RTL of 2023, the first row of a compute reaches the array five cycles after the controller reads it. If
        # the controller flushes by then, the array takes the flush's propagate bit for the compute, too
        # (ExecuteController.scala: in_prop_flush). A flush comes before a config_ex and, output-stationary, whenever no
        # pair is ready, if a result is still in the array. A wrong bit swaps the two sums or weights of each element.
        if self.config.rtl != 2023:
            return
        computes = self.work.computes
        weights = computes.settings["dataflow"] == 1
        result = (computes.c.garbage == 0) & (computes.preload != NONE)
        within = result | np.append(False, result)[:-1] | (~weights & np.append([False] * 2, result)[:-2])
        swapped = (computes.fresh == 1) != (result & ~weights)
        code = self.work.code
        execute = np.flatnonzero(QUEUES[code] == EX)
        for at in np.flatnonzero((computes.streamed < CONFIG_ROWS) & within & swapped).tolist():
            early = int(computes.step[at])
            behind = execute[np.searchsorted(execute, early) + 1 :][:2]
            behind = behind[self.segment[behind] == self.segment[early]]
            streams = f"which streams only {computes.streamed[at]} rows"
            if len(behind) and code[behind[0]] == CODES["config_ex"]:
                text = f"{{1}} follows {{0}}, {streams}, and may corrupt the result: put a fence between them"
                yield self._pair(RACE, (early, int(behind[0])), text)
            elif not weights[at] and self._late(early, behind):
                text = (
                    f"the flush behind {{0}}, {streams}, may swap its sums, so that products of earlier steps are lost"
                )
                yield self._pair(RACE, (early,), f"{text}: put a product of one step with a result behind it")

    def _late(self, early: int, behind: Array) -> bool:
        """Return whether the pair of commands `behind` a compute may come too late to follow it without a flush."""
        if len(behind) < 2 or behind[1] - early > PAIR_COMMANDS:
            return True
        between = np.arange(early + 1, behind[1])
        return bool((np.isin(self._order.waits[between, EX], behind)).any())

    def _reordered(self) -> Iterator[Finding]:
        """Yield products with transposed weights that the execute queue is too short for [R: gemmini_sizes]."""
        # The unroller replaces a transposed preload by three commands (timing/controller.py: step_transposes). The
        # inserted compute must run together with the second preload, but runs alone if the compute behind that preload
        # is not in the queue yet. Then, the transposer passes the weights on too early.
        if self.config.queue_execute > 4:
            return
        computes = self.work.computes
        turned = (computes.settings["dataflow"] == 1) & (computes.settings["transpose_b"] == 1)
        turned &= (computes.fresh == 1) & (computes.w.garbage == 0)
        if self.config.queue_execute == 4:
            single = (computes.fresh == 0) & np.append(False, computes.fresh == 1)[:-1]
            turned &= np.append(False, single)[:-1]
        text = "{0} uses transposed weights, which an execute queue of %d commands loses: set queue_execute=5 or more"
        for at in np.flatnonzero(turned).tolist():
            yield self._pair(RACE, (int(computes.step[at]),), text % self.config.queue_execute)


def _intervals(bytes_: touch.Touches, steps: int) -> tuple[touch.Rows, int]:
    """Convert byte ranges to ranges of interval numbers. Return these ranges and the number of intervals."""
    # The edges of all ranges cut DRAM into at most 2 * n intervals for n ranges, however many bytes the ranges have.
    edges = np.unique(np.concatenate([bytes_.first, bytes_.first + bytes_.size]))
    low, high = np.searchsorted(edges, bytes_.first), np.searchsorted(edges, bytes_.first + bytes_.size)
    return touch.by_step(bytes_._replace(first=low, size=high - low), steps), max(len(edges) - 1, 1)
