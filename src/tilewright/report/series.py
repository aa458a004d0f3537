"""Quantities that change during a launch: DRAM bandwidth, tokens in queues, and live elements of scratchpads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.array import Array, ascending
from tilewright.report.occupancy import levels
from tilewright.sim.steps import Trace

#: The bandwidth is averaged over this many time windows.
WINDOWS = 256


@dataclass(frozen=True, eq=False)
class Series:
    """A quantity during a launch: `value[i]` from cycle `time[i]` to cycle `time[i + 1]`.

    `time` is int64 [k] and ascends strictly from 0 to the launch's cycles. `value` is int64 or float64 [k]. The last
    value is the quantity at the end of the launch. `most` is the largest possible value (0: unknown).
    """

    name: str
    unit: str
    time: Array
    value: Array
    most: int = 0

    def at_most(self, points: int) -> Series:
        """Return a series of at most `points` + 1 values: the peak in each of `points` windows, and the last value.

        A series that has no more values is returned unchanged.
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
        """Return the sum of each value multiplied by the cycles for which it lasts."""
        return float((self.value[:-1] * np.diff(self.time)).sum())


def series(trace: Trace, windows: int = WINDOWS) -> tuple[Series, ...]:
    """Return the series of `bandwidth`, `queue_depths` and `occupancy` of a launch, except series that are always 0."""
    curves = (*bandwidth(trace, windows), *queue_depths(trace), *occupancy(trace))
    return tuple(curve for curve in curves if curve.value.any())


def bandwidth(trace: Trace, windows: int = WINDOWS) -> tuple[Series, Series]:
    """Return the average DRAM bandwidth of reads and of writes in each of at most `windows` windows."""
    # A trace does not have the time of each transferred byte. Therefore the bytes of a step are spread evenly from its
    # start to its end. Instruction fetches have no times at all, and are excluded.
    moved = (("DRAM read", trace.bytes_read), ("DRAM write", trace.bytes_written))
    first, second = (_series(name, "bytes/cycle", *_rates(trace, bytes_of, windows)) for name, bytes_of in moved)
    return first, second


def _rates(trace: Trace, moved: Array, windows: int) -> tuple[Array, Array]:
    """Return the edges of the windows, and the average bytes per cycle after each edge (0 after the last edge)."""
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
    in_window = np.bincount(into[~long], moved[~long], count).astype(np.float64)  # the bytes in each window
    rate = moved[long] / (end - start)[long]
    # The steps that run when a window begins: their total rate, and their number.
    active = np.zeros(count)
    running = np.zeros(count, np.int64)
    touched = np.bincount(into, minlength=count)
    # A step moves its bytes at a constant rate, which the loop adds at the step's start and subtracts at its end. Each
    # time, the loop changes the sum of the window that contains this moment, and the rate of all later windows. Thus
    # the time of the loop does not depend on the number of windows that a step covers.
    for time, inside, sign in ((start[long], start[long], 1), (end[long], end[long] - 1, -1)):
        window = inside // width
        in_window += sign * np.bincount(window, rate * (edges[window + 1] - time), count)
        active[1:] += sign * np.cumsum(np.bincount(window, rate, count))[:-1]
        running[1:] += sign * np.cumsum(np.bincount(window, minlength=count))[:-1]
    in_window += active * np.diff(edges)
    in_window[(running == 0) & (touched == 0)] = 0  # the rates above leave rounding errors
    return edges, np.append(in_window.clip(0) / np.diff(edges), 0.0)


def queue_depths(trace: Trace) -> list[Series]:
    """Return the number of tokens in each queue that is used. A step pops at its start, and pushes at its end."""
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
    """Return the number of live elements of each scratchpad (`Space.scratchpad`), by the footprints of the steps.

    An element is live from the start of the step that writes a value to the end of the last step that reads the value.
    A value that no step reads is not live. If a step reads a value from before the launch, the value is live from cycle
    0 on. In large scratchpads and long programs, whole blocks of elements are counted (see report/occupancy.py).
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
    """Return the sum of all changes up to each time. `change[i]` happens at `time[i]`."""
    times, index = np.unique(np.concatenate([[0], time, [trace.cycles]]), return_inverse=True)
    value = np.cumsum(np.bincount(index[1:-1], change, len(times)).astype(np.int64))
    return _series(name, unit, times, value, most)


def _series(name: str, unit: str, time: Array, value: Array, most: int = 0) -> Series:
    kept = np.concatenate([[True], value[1:] != value[:-1]])
    kept[-1] = True
    return Series(name, unit, time[kept], value[kept], most)
