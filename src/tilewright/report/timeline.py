"""A run as a timeline: tracks with slices, arrows for tokens, and counters. `report/perfetto.py` writes it to a file.

The layers have one track, and the critical path has another track. Each unit has a track of instructions and a track of
waits. All times are in cycles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.array import ascending
from tilewright.errors import InputError, option
from tilewright.report.metrics import HOST as ON_HOST
from tilewright.report.metrics import Layer, Result
from tilewright.report.series import Series, series
from tilewright.report.summary import cycles_of_launches, machine_macs, title
from tilewright.sim.causes import CAUSE_TOKEN
from tilewright.sim.steps import Fetched, Trace

#: The track of the reads of commands. Waits for room in a command queue are in the track of its waits.
FETCH = "fetch"
#: The tracks of the layers and of the host's steps.
LAYERS = 0
HOST = 1
PATH = "critical path"
#: The track of the causes of each layer's cycles. Its slices are in the order of their size, not of time.
CAUSES = "causes by size"
#: A unit's waits have the track "UNIT waits".
WAITS = " waits"
#: The end of the names of tracks whose slices are in the order of their size, not of time.
BY_SIZE = " by size"
#: A counter with more points in one launch is reduced to the peaks in this many windows.
POINTS = 4096

Args = Mapping[str, int | float | str]


@dataclass(frozen=True, slots=True)
class Event:
    """A slice of `duration` cycles, or an instant (None). The arrows `gives` start, and the arrows `takes` end here."""

    track: int
    name: str
    start: int
    duration: int | None
    args: Args
    gives: tuple[int, ...] = ()
    takes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Timeline:
    """The events of a run or launch, in the order of their starts. Events of one track do not overlap.

    Arrow i has the name `arrows[i]`, which is the name of its token queue. `clock_mhz` is the machine's clock (0:
    unknown).
    """

    title: str
    tracks: tuple[str, ...]
    events: tuple[Event, ...]
    about: Mapping[str, str]
    arrows: tuple[str, ...] = ()
    counters: tuple[Series, ...] = ()
    clock_mhz: float = 0.0

    def nanoseconds(self, cycle: int) -> int:
        """Return the start of a cycle in nanoseconds, rounded. Without a clock, a cycle lasts one nanosecond."""
        return round(cycle * 1000 / self.clock_mhz) if self.clock_mhz else cycle


def timeline(result: Result) -> Timeline:
    """Return the timeline of all launches of a run, one after another. Raises InputError if the run has no cycles."""
    traces = [layer.trace for layer in result.layers if layer.trace]
    if not traces:
        raise InputError(option("--trace"), "this run has no cycles to show", "choose a timing model")
    drawing = _Drawing(("layers", "host", *_tracks(traces)))
    now = busy = 0
    timed = False  # whether the critical path of the present launch is known
    for layer in result.layers:
        if layer.trace or layer.where == ON_HOST:
            # The layers have the cycles of one sample. A launch of several samples has more cycles.
            now = max(now, busy)
        if layer.where == ON_HOST:
            args: Args = {"op": layer.op, "reason": layer.reason, "host seconds": round(layer.seconds, 6)}
            drawing.events.append(Event(HOST, layer.name, now, None, args))
            continue
        if layer.trace:
            busy = now + layer.trace.cycles
            timed = layer.trace.path is not None
            drawing.launch(layer.trace, now)
        drawing.layer(layer, now, by_size=not timed)
        now += layer.cycles
    about = {
        "made by": "tilewright",
        "timing model": f"{result.timing}: {result.evidence}",
        "cycles": f"{result.cycles}, for one sample" if result.complete else cycles_of_launches(result),
        "MACs": machine_macs(result),
    }
    return drawing.shown(title(result), about, result.clock_mhz)


def of_launch(trace: Trace, name: str, about: Mapping[str, str], clock_mhz: float = 0.0) -> Timeline:
    drawing = _Drawing(tuple(track for track in _tracks([trace]) if track != CAUSES))
    drawing.launch(trace, 0)
    return drawing.shown(name, about, clock_mhz)


def _tracks(traces: Sequence[Trace]) -> list[str]:
    waits = {trace.table.units[unit] for trace in traces for unit in ascending(trace.table.unit[trace.wait > 0])}
    units = dict.fromkeys(unit for trace in traces for unit in trace.table.units)
    paths = [PATH] * any(trace.path for trace in traces) + [CAUSES] * any(not trace.path for trace in traces)
    shares = dict.fromkeys(f"{name}{BY_SIZE}" for trace in traces for name in trace.shares)
    fetches = [trace.fetched for trace in traces if trace.fetched]
    waits |= {FETCH} if any(fetch.blocked() for fetch in fetches) else set()
    units = {FETCH: None, **units} if fetches else units
    tracks = [track for unit in units for track in (unit, f"{unit}{WAITS}") if track == unit or unit in waits]
    return [*paths, *tracks, *shares]


class _Drawing:
    def __init__(self, tracks: tuple[str, ...]) -> None:
        self.events: list[Event] = []
        self._tracks = tracks
        self._arrows: list[str] = []
        self._counters: dict[str, list[tuple[int, Series]]] = {}

    def _track(self, name: str) -> int:
        return len(self._tracks) - 1 - self._tracks[::-1].index(name)  # a unit may be called "host"

    def layer(self, layer: Layer, start: int, by_size: bool) -> None:
        """Add the slice of a layer. If `by_size`, also add a slice for each cause of its cycles, the largest first."""
        stalls = {f"stall: {cause}": cycles for cause, cycles in layer.stalls.items()}
        about: Args = {"op": layer.op, "cycles": layer.cycles, "MACs": layer.macs, **stalls}
        self.events.append(Event(LAYERS, layer.name, start, layer.cycles, about))
        if by_size:
            self._sizes(CAUSES, layer.causes, start, {"layer": layer.name})

    def _sizes(self, track: str, parts: Mapping[str, int], start: int, args: Args) -> None:
        for name, cycles in parts.items():
            self.events.append(Event(self._track(track), name, start, cycles, args))
            start += cycles

    def launch(self, trace: Trace, offset: int) -> None:
        """Add the steps, waits, critical path and counters of a launch that starts in cycle `offset`."""
        names = [trace.table.describe(step) for step in range(len(trace.table))]
        if trace.fetched:
            self.events += self._fetch(trace.fetched, trace, offset, names)
        self.events += self._steps(trace, offset, names)
        if trace.path:
            self.events += self._path(trace, offset, names)
        for name, shares in trace.shares.items():
            for index, (start, parts) in enumerate(zip(trace.start.tolist(), shares, strict=True)):
                self._sizes(f"{name}{BY_SIZE}", parts, offset + start, {"of": f"#{index} {names[index]}"})
        for curve in series(trace):
            self._counters.setdefault(curve.name, []).append((offset, curve.at_most(POINTS)))

    def _fetch(self, fetched: Fetched, trace: Trace, offset: int, names: Sequence[str]) -> Iterator[Event]:
        """Yield a slice for each read of commands, and a slice for each wait for room in a command queue."""
        for first, last, start, end in fetched.reads():
            about: Args = {"instructions": last - first + 1}
            yield Event(self._track(FETCH), f"read #{first} to #{last}", offset + start, end - start, about)
        for step, start, end in fetched.blocked():
            unit = trace.table.units[int(trace.table.unit[step])]
            about = {"index": step, "for": names[step], "queue": unit}
            yield Event(self._track(f"{FETCH}{WAITS}"), "command queue full", offset + start, end - start, about)

    def _steps(self, trace: Trace, offset: int, names: Sequence[str]) -> Iterator[Event]:
        """Yield a slice for each step, and a slice for its wait."""
        from tilewright.sim.order import match_tokens

        table = trace.table
        causes = trace.cause_names()
        giver, _ = match_tokens(table)
        gives: dict[int, list[int]] = {}
        takes: dict[int, list[int]] = {}
        for arrow, (taker, queue) in enumerate(np.argwhere(giver >= 0).tolist(), len(self._arrows)):
            gives.setdefault(int(giver[taker, queue]), []).append(arrow)
            takes.setdefault(taker, []).append(arrow)
            self._arrows.append(table.queues[queue].name)
        tracks = [(self._track(unit), f"{unit}{WAITS}") for unit in table.units]
        columns = (table.unit, trace.start, trace.until, trace.end, trace.wait, trace.cause, trace.contention)
        moved = zip(trace.bytes_read.tolist(), trace.bytes_written.tolist(), strict=True)
        for index, (row, (read, written)) in enumerate(zip(np.stack(columns, 1).tolist(), moved, strict=True)):
            unit, start, until, end, wait, cause, contention = row
            track, waits = tracks[unit]
            args: dict[str, int | float | str] = {"index": index}
            if wait:
                reason = causes[cause] or "unknown"
                about: dict[str, int | float | str] = {"index": index, "for": names[index]}
                if cause >= CAUSE_TOKEN and (source := int(giver[index, cause - CAUSE_TOKEN])) >= 0:
                    about["token from"] = f"#{source} {names[source]}"
                yield Event(self._track(waits), reason, offset + start - wait, wait, about)
                args |= {"wait cycles": wait, "waited for": reason}
            if contention:
                args["DRAM contention cycles"] = contention
            # Slices of a track must not overlap. Therefore a step's slice stops where the next step of the unit starts.
            if until < end:
                args["cycles until its end"] = end - start
            if read:
                args["bytes read"] = read
            if written:
                args["bytes written"] = written
            given = tuple(gives.get(index, ()))
            taken = tuple(takes.get(index, ()))
            for key, arrows in (("pushes", given), ("pops", taken)):
                if arrows:
                    args[key] = ", ".join(self._arrows[arrow] for arrow in arrows)
            yield Event(track, names[index], offset + start, until - start, args, given, taken)

    def _path(self, trace: Trace, offset: int, names: Sequence[str]) -> Iterator[Event]:
        assert trace.path
        track = self._track(PATH)
        table = trace.table
        causes, code = trace.causes_on(trace.path)
        step = trace.path.step
        end = trace.path.end
        start = np.append(0, end[:-1])
        # Neighbouring sections of the same step and cause become one slice.
        last = np.append((code[1:] != code[:-1]) | (step[1:] != step[:-1]), True)
        first = np.append(True, last[:-1])
        rows = np.stack([start[first], end[last], code[last], step[last], table.unit[step[last]]], 1)
        for begin, until, cause, index, unit in rows[rows[:, 0] < rows[:, 1]].tolist():
            about: Args = {"index": index, "instruction": names[index], "unit": table.units[unit]}
            yield Event(track, causes[cause], offset + begin, until - begin, about)

    def shown(self, name: str, about: Mapping[str, str], clock_mhz: float) -> Timeline:
        rate = f"1 cycle is {1000 / clock_mhz:.6g} ns, at {clock_mhz:g} MHz" if clock_mhz else "1 ns is 1 cycle"
        notes = {"time unit": f"{rate}; host steps take no time"}
        if any(track.endswith(BY_SIZE) for track in self._tracks):
            notes["tracks by size"] = (
                "the cycles of a layer or instruction by part, the largest first, not in order of time"
            )
        if {"DRAM read", "DRAM write"} & self._counters.keys():
            notes["DRAM counters"] = "bytes are spread evenly over their instruction; instruction fetches not included"
        return Timeline(
            name,
            self._tracks,
            tuple(sorted(self.events, key=lambda e: (e.start, e.track, e.start + (e.duration or 0)))),
            {**about, **notes},
            tuple(self._arrows),
            tuple(_joined(parts) for parts in self._counters.values()),
            clock_mhz,
        )


def _joined(parts: Sequence[tuple[int, Series]]) -> Series:
    """Join the series of launches, each given with the launch's start. Between launches, the last value stays."""
    time = np.concatenate([start + curve.time for start, curve in parts])
    value = np.concatenate([curve.value for _, curve in parts])
    kept = np.append(time[1:] > time[:-1], True)
    curve = parts[0][1]
    return Series(curve.name, curve.unit, time[kept], value[kept], curve.most)
