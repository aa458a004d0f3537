"""Quantities of a launch over its time: DRAM bandwidth, tokens in each queue, live elements of each scratchpad."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.array import Array, ascending
from tilewright.report.occupancy import levels
from tilewright.sim.steps import Trace

#: Default number of windows in which bandwidth is averaged.
WINDOWS = 256


@dataclass(frozen=True, eq=False)
class Series:
    """A quantity as a step function: `value[i]` holds from cycle `time[i]` until `time[i + 1]`.

    `time`, int64 [k], begins with 0, strictly ascends and ends with the launch's cycles, at which the last value only
    says what is left. `value` [k] is int64 or float64. `most` is the largest possible value (0: not known).
    """

    name: str
    unit: str
    time: Array
    value: Array
    most: int = 0

    def at_most(self, points: int) -> Series:
        """Return a coarser series of at most `points` + 1 values: the peak in each of `points` windows, and the last.

        The series itself is returned if it is short enough.
        """
        if len(self.time) <= points + 1:
            return self
        cycles = int(self.time[-1])
        edges = np.arange(0, cycles, -(-cycles // points))
        time = ascending(np.concatenate([self.time[:-1], edges]))
        value = self.value[np.searchsorted(self.time, time, "right") - 1]
        peaks = np.maximum.reduceat(value, np.searchsorted(time, edges))
        return _series(self.name, self.unit, np.append(edges, cycles), np.append(peaks, self.value[-1]), self.most)

    def integral(self) -> float:
        """Return the sum of value * time over the launch."""
        return float((self.value[:-1] * np.diff(self.time)).sum())


def series(trace: Trace, windows: int = WINDOWS) -> tuple[Series, ...]:
    """Return all series of a launch that are not 0 throughout: `bandwidth`, `queue_depths` and `occupancy`."""
    curves = (*bandwidth(trace, windows), *queue_depths(trace), *occupancy(trace))
    return tuple(curve for curve in curves if curve.value.any())


def bandwidth(trace: Trace, windows: int = WINDOWS) -> tuple[Series, Series]:
    """Return the DRAM bandwidth of reads and of writes, each the average of at most `windows` windows of equal length.

    When a step moves its bytes is not recorded. They are spread evenly from its start to its end. Instruction fetches
    (`Trace.fetch_bytes`) are not included, because their times are not recorded.
    """
    moved = (("DRAM read", trace.bytes_read), ("DRAM write", trace.bytes_written))
    first, second = (_series(name, "bytes/cycle", *_rates(trace, bytes_of, windows)) for name, bytes_of in moved)
    return first, second


def _rates(trace: Trace, moved: Array, windows: int) -> tuple[Array, Array]:
    """Return the edges of windows, and the average bytes per cycle from each edge on (0 from the last one on).

    A step moves its bytes at a constant rate. The loop below adds the rate at the step's start and takes it away at its
    end: a partial sum for the window of each edge, and a running rate for the windows after it. So the time does not
    depend on how many windows a step covers.
    """
    width = max(1, -(-trace.cycles // windows))
    edges = np.append(np.arange(0, trace.cycles, width), trace.cycles)
    count = len(edges) - 1
    if not count:
        return edges, np.zeros(1)
    mine = np.flatnonzero(moved)
    start = trace.start[mine]
    end = trace.end[mine]
    moved = moved[mine]
    long = end > start
    into = np.minimum(start // width, count - 1)
    in_window = np.bincount(into[~long], moved[~long], count).astype(np.float64)  # bytes of each window
    rate = moved[long] / (end - start)[long]
    active = np.zeros(count)
    running = np.zeros(count, np.int64)  # of steps that run as a window begins: rate, number
    touched = np.bincount(into, minlength=count)
    for time, inside, sign in ((start[long], start[long], 1), (end[long], end[long] - 1, -1)):
        window = inside // width
        in_window += sign * np.bincount(window, rate * (edges[window + 1] - time), count)
        active[1:] += sign * np.cumsum(np.bincount(window, rate, count))[:-1]
        running[1:] += sign * np.cumsum(np.bincount(window, minlength=count))[:-1]
    in_window += active * np.diff(edges)
    in_window[(running == 0) & (touched == 0)] = 0  # exactly: the sums above leave rounding errors
    return edges, np.append(in_window.clip(0) / np.diff(edges), 0.0)


def queue_depths(trace: Trace) -> list[Series]:
    """Return the number of tokens in each token queue that has any. A step pops at its start and pushes at its end."""
    table = trace.table
    depths = []
    for index, queue in enumerate(table.queues):
        pushed = trace.end[table.pushes >> index & 1 > 0]
        popped = trace.start[table.pops >> index & 1 > 0]
        if len(pushed):
            time = np.concatenate([pushed, popped])
            change = np.repeat([1, -1], [len(pushed), len(popped)])
            depths.append(_sums(trace, f"{queue.name} tokens", "tokens", time, change, queue.depth))
    return depths


def occupancy(trace: Trace) -> list[Series]:
    """Return the number of live elements of each scratchpad (`Space.scratchpad`), as the steps' footprints tell.

    An element is live from the start of the step that writes it to the end of the last step that reads this value.
    A value that is never read is not live. Contents from before the launch are live from cycle 0 on. Large scratchpads
    and those of long programs are counted in blocks of several elements (see report/occupancy.py).
    """
    spaces = trace.table.spaces
    pads = tuple(dict.fromkeys(space.scratchpad for space in spaces if space.scratchpad))
    if not pads:
        return []
    sizes = [sum(space.size for space in spaces if space.scratchpad == name) for name in pads]
    time, live = levels(trace, pads)
    return [
        _series(f"{name} live", "elements", time, live_of, most)
        for name, live_of, most in zip(pads, live, sizes, strict=True)
    ]


def _sums(trace: Trace, name: str, unit: str, time: Array, change: Array, most: int) -> Series:
    """Return the series of running sums of some changes, each at its time, from 0 on."""
    times, index = np.unique(np.concatenate([[0], time, [trace.cycles]]), return_inverse=True)
    value = np.cumsum(np.bincount(index[1:-1], change, len(times)).astype(np.int64))
    return _series(name, unit, times, value, most)


def _series(name: str, unit: str, time: Array, value: Array, most: int = 0) -> Series:
    """Return a series without the points that repeat the value before them; the last point stays."""
    kept = np.concatenate([[True], value[1:] != value[:-1]])
    kept[-1] = True
    return Series(name, unit, time[kept], value[kept], most)
