"""The rows and page services of a layer, in the order in which they start, with their times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets.zynq.config import STORES
from tilewright.targets.zynq.isa.layer import Kind, Layer
from tilewright.targets.zynq.placement import position_groups
from tilewright.targets.zynq.timing.service import CAUSES, RELAYOUT, RESULT, Schedule, schedule
from tilewright.targets.zynq.timing.walk import ConvWalk, FcWalk


class Work(NamedTuple):
    """Groups of results in order, int64 [groups] each. The ends of ranges are exclusive.

    The engine works on a group from engine cycle `start` to `end`. A group belongs to row `row`, and writes results
    `first` to `after`, counted in the order of writing. A group reads the input rows `top` to `bottom`, and the kernels
    of the channels `low` to `high`.
    """

    start: Array
    end: Array
    first: Array
    after: Array
    row: Array
    top: Array
    bottom: Array
    low: Array
    high: Array


def work(layer: Layer) -> Work:
    if layer.kind == Kind.POOL:
        return _pool(layer)
    return _fc(layer) if layer.kind == Kind.FC else _conv(layer)


def _conv(layer: Layer) -> Work:
    of = ConvWalk(layer)
    cols = layer["cols"]
    channels = layer["oc"]
    places = np.array([*position_groups(layer)], np.int64)
    low = np.repeat(np.arange(0, channels, of.together), len(places))
    position, stop = np.tile(places.T, -(-channels // of.together))
    width = np.minimum(of.together, channels - low)
    first = low * layer.positions + width * position
    start = of.span(first)[0]
    count = stop - position
    row = position // cols
    return Work(
        start,
        start + width * of.group(count),
        first,
        first + width * count,
        row,
        np.maximum(row - 1, 0),
        np.minimum((stop - 1) // cols + 2, layer["rows"]),
        low,
        low + width,
    )


def _fc(layer: Layer) -> Work:
    of = FcWalk(layer)
    low = np.arange(0, layer["l"], of.k)
    high = np.minimum(low + of.k, layer["l"])
    start, end = of.group_span(low)
    none = np.zeros_like(low)
    return Work(start, end, low, high, none, none, none + 1, low, high)


def _pool(layer: Layer) -> Work:
    """Return the work of a pool, which reads channel by channel: a group is two rows of elements."""
    rows = layer["rows"] // 2
    cols = layer["cols"] // 2
    channels = layer["ic"]
    number = np.arange(rows * channels)
    channel, row = np.divmod(number, rows)
    return Work(
        number * 2 * layer["cols"],
        (number + 1) * 2 * layer["cols"],
        number * cols,
        (number + 1) * cols,
        row,
        2 * row,
        2 * row + 2,
        channel,
        channel + 1,
    )


#: The spaces of the step table.
DDR, FRAMES, RESULTS = range(3)


@dataclass(frozen=True)
class Row:
    """The engine's work on one row, up to the next row or page fault, which completes results `first` to `after`."""

    name: str
    first: int
    after: int
    row: int
    top: int
    bottom: int
    low: int
    high: int

    def __str__(self) -> str:
        if self.name == Kind.FC.name.lower():
            return f"{self.name} columns {self.low}..{self.high - 1}"
        channels = f"channel {self.low}" if self.high == self.low + 1 else f"channels {self.low}..{self.high - 1}"
        return f"{self.name} row {self.row} of {channels}"


@dataclass(frozen=True, eq=False)
class PageService:
    """A service of the CPU, which loads the pages `blocks` of a store to `frames`, or writes results to DDR."""

    text: str
    store: int
    blocks: Array
    frames: Array
    first: int = 0
    after: int = 0

    def __str__(self) -> str:
        return self.text


class When(NamedTuple):
    """The times of steps: `wait` counts cycles before the start; `pops` and `pushes` are masks of tokens."""

    start: Array
    end: Array
    wait: Array
    cause: Array
    pops: Array
    pushes: Array
    cycles: int


def steps(layer: Layer, paged: bool) -> tuple[tuple[Row | PageService, ...], When]:
    plan = schedule(layer, paged)
    done = work(layer)
    rows, times = _rows(layer, plan, done)
    services = [*_services(layer, plan)]
    none = np.zeros(len(services), np.int64)
    served = np.stack([plan.service.start, plan.service.end, none, none, none, _pushes(plan)])
    table = np.concatenate([times, served], axis=1)
    order = np.lexsort((np.repeat([0, 1], [len(rows), len(services)]), table[0]))
    every: list[Row | PageService] = [*rows, *services]
    start, end, wait, cause, pops, pushes = table[:, order]
    return tuple(every[at] for at in order), When(start, end, wait, cause, pops, pushes, plan.cycles)


def _pushes(plan: Schedule) -> Array:
    """Return the token (a bit) that each service sends to the engine, or 0 if the engine did not wait for it."""
    # The k-th wait for a cause ends with the k-th service of this cause.
    waits = plan.waits
    pushes = np.zeros(len(plan.service.cause), np.int64)
    for cause in range(len(CAUSES)):
        at = np.flatnonzero((waits.cause == cause) & (waits.at < plan.engine))
        late = waits.wait[at] > 0
        following = np.append(waits.at[at][late][1:], -1)
        last = at[late][waits.at[at][late] != following]
        pushes[np.flatnonzero(plan.service.cause == cause)[np.searchsorted(at, last)]] = 1 << cause
    return pushes


def _rows(layer: Layer, plan: Schedule, done: Work) -> tuple[list[Row], Array]:
    """Divide the engine's work where a row begins or the engine waits. Return the parts and their times (see When)."""
    # `edges` are engine cycles, which do not include waits. The cycle of an edge is the edge plus the sum of the
    # earlier waits (`late`).
    waits = plan.waits
    begins = np.flatnonzero((np.diff(done.row, prepend=-1) != 0) | (np.diff(done.low, prepend=-1) != 0))
    edges = np.unique(np.concatenate([[0], done.start[begins], waits.at[waits.wait > 0]]))
    edges = edges[edges < plan.engine]
    after = np.append(edges[1:], plan.engine)
    late = np.append(0, np.cumsum(waits.wait))
    begin, until = (np.searchsorted(waits.at, edges, side) for side in ("left", "right"))
    start, end = edges + late[until], after + late[np.searchsorted(waits.at, after, "left")]
    cause, pops = np.zeros((2, len(edges)), np.int64)
    for at in np.flatnonzero(late[until] > late[begin]).tolist():
        mine = slice(begin[at], until[at])
        cause[at] = waits.cause[mine][waits.wait[mine].argmax()]
        pops[at] = np.bitwise_or.reduce(1 << waits.cause[mine][waits.wait[mine] > 0])
    active = np.maximum(np.searchsorted(done.start, edges, "right") - 1, 0)
    complete = np.searchsorted(done.end, after, "right")
    complete[-1:] = len(done.end)
    ends = np.append(0, done.after)[complete]
    name = layer.kind.name.lower()
    columns = (done.row, done.top, done.bottom, done.low, done.high)
    rows = [
        Row(name, first, last, *(int(column[at]) for column in columns))
        for first, last, at in zip([0, *ends[:-1].tolist()], ends.tolist(), active.tolist(), strict=True)
    ]
    return rows, np.stack([start, end, late[until] - late[begin], cause, pops, np.zeros_like(pops)])


def _services(layer: Layer, plan: Schedule) -> Iterator[PageService]:
    config = layer.config
    service = plan.service
    words = config.block_words("result")
    columns = (column.tolist() for column in (service.cause, service.times, service.use, service.block))
    for cause, times, use, block in zip(*columns, strict=True):
        if cause == RELAYOUT:
            yield PageService(f"relayout of {times} results", cause, np.zeros(0, np.int64), np.zeros(0, np.int64))
            continue
        number = np.arange(times)
        frames = cause * config.frames + (use + number) % config.frames
        many = f"block {block}" if times == 1 else f"blocks {block}..{block + times - 1}"
        if cause != RESULT:
            yield PageService(f"load {STORES[cause]} {many}", cause, block + number, frames)
            continue
        last = min((block + times) * words, layer.outputs * layer.samples)
        results = block * words // layer.samples, -(-last // layer.samples)
        yield PageService(f"write {STORES[cause]} {many}", cause, block + number, frames, *results)
