"""The page services of the CPU (PS) and the waits of the engine, block by block instead of cycle by cycle.

A page service moves one block. A frame is a store's room for one block. With one frame per store, each service stops
the whole engine, so waits add up. As a simplification, an iteration that reads two blocks of a store is timed as if it
began with the second block.

With two frames, the PS fills one frame while the engine uses the other frame. The PS serves one request at a time, in
the order in which frames become free. If several frames become free in the same cycle, loads come before writes, and
earlier deadlines come first. The engine starts a group of work when the group's blocks are loaded, and starts a result
block when a frame is free.

A trace has a track for the engine, a track for the PS, and a chart of the pages in each frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.causes import CAUSE_TOKEN
from tilewright.sim.chart import ALARM, HATCHED, SOLID, START, Chart, Kind, Row
from tilewright.sim.figures import Figures, with_rest
from tilewright.sim.steps import StepTable, Trace
from tilewright.targets.base import TimingModel
from tilewright.targets.zynq.config import STORES, Config
from tilewright.targets.zynq.isa.layer import LAYOUT, Layer
from tilewright.targets.zynq.timing import walk
from tilewright.targets.zynq.timing.walk import Service, Uses

#: The kinds of boxes in a chart: a block is in the frame, the PS moves a block, the engine waits (a page fault).
HOLDS, MOVES, FAULT = range(3)
RESULT = STORES.index("result")
#: A fault is drawn in the top part of its row: this percentage of the height.
MARK = 25


def chart(frames: int, service: Service, filled: Array, trace: Trace) -> Chart:
    """Return the chart of a layer, with a row for each frame of each store.

    `service` has the steps of the PS in the trace's order. `filled` has the cycles in which the engine begins to fill
    the result blocks. A frame holds a loaded block until the next load to the frame begins, and a result block from
    `filled` until its transfer begins.
    """
    named = [store if frames == 1 else f"{store} {frame}" for store in STORES for frame in range(frames)]
    kinds = []
    for store in STORES:
        colour = f"{store} block"
        kinds += [
            Kind(f"{store} block #", colour, SOLID, MARK),
            Kind(f"{store} block # moves", colour, HATCHED, MARK),
            Kind(f"the engine waits for {store} block # (page fault)", "", ALARM, 0, MARK),
        ]
    boxes = np.concatenate(list(_boxes(frames, service, filled, trace)), 1)
    boxes = boxes[:, boxes[START] < boxes[START + 1]]
    boxes = boxes[:, np.argsort(boxes[START], kind="stable")]
    return Chart("Pages in block RAM", tuple(map(Row, named)), tuple(kinds), boxes)


def _boxes(frames: int, service: Service, filled: Array, trace: Trace) -> Iterator[Array]:
    """Yield the boxes of each store and kind, int64 [6, k] (see sim.chart.Chart)."""
    engine, services = (np.flatnonzero(trace.table.unit == unit) for unit in range(2))
    for cause in range(len(STORES)):
        served = service.cause == cause
        step = services[served]
        row = cause * frames + service.use[served] % frames
        block = service.block[served]
        begin, end = trace.start[step], trace.until[step]
        whole = np.append(begin[frames:], np.full(min(frames, len(begin)), trace.cycles))  # until the next load
        held = (filled, begin) if cause == RESULT else (end, whole)
        late = np.flatnonzero(trace.table.pushes[step])
        wait = engine[trace.cause[engine] == cause + CAUSE_TOKEN]
        waited = (trace.start[wait] - trace.wait[wait], trace.start[wait])
        for kind, mine, span in ((MOVES, slice(None), (begin, end)), (HOLDS, slice(None), held), (FAULT, late, waited)):
            kinds = np.full(len(span[0]), 3 * cause + kind)
            yield np.stack((row[mine], kinds, block[mine], *span, step[mine]))


#: The engine waits for a block of a store, or until the PS has rearranged the results (`relayout`).
CAUSES = (*STORES, "relayout")
RELAYOUT = len(STORES)
#: The token queue between the PS and the engine for each cause.
AWAITED = (*(f"{store} block" for store in STORES), "relayout")
Request = tuple[int, int, int]  # engine cycles done so far, cause, number of services
ENGINE, PS = range(2)
UNITS = ("engine", "ps")
PAGED = "paged"
COMPUTE = "compute"
MODELS = {
    PAGED: TimingModel(
        PAGED,
        "states counted from the document; page services (handshake, words per cycle) assumed; nothing measured",
    ),
    COMPUTE: TimingModel(COMPUTE, "states counted from the document, every block loaded from the start: a lower bound"),
}


class Waits(NamedTuple):
    """The points at which the engine may wait, int64 [m] each. `at` counts the engine cycles before a point."""

    at: Array
    cause: Array
    wait: Array


class Schedule(NamedTuple):
    """The cycles of a layer with waits (`cycles`) and without waits (`engine`), for all samples of a batch.

    `uses` has the uses of each store's blocks. The mapping is empty if page services are only counted or do not exist.
    """

    cycles: int
    engine: int
    service: Service
    waits: Waits
    uses: Mapping[str, Uses]

    def stalls(self) -> dict[str, int]:
        return _by_cause(self.waits.cause, self.waits.wait)

    def loads(self) -> dict[str, int]:
        return {name: n for name, n in _by_cause(self.service.cause, self.service.times).items() if name in STORES}


def schedule(layer: Layer, paged: bool = True) -> Schedule:
    """Return the page services and waits of a layer. Without `paged`, all blocks are in their stores from the start."""
    engine = walk.engine_cycles(layer)
    if not paged:
        return _frozen(layer.config, engine, [], {})
    end = [(engine, RELAYOUT, layer.outputs * layer.samples)] if layer.config.relayout else []
    if layer.conv and layer.config.layout != "rows":  # no closed form exists for the order of blocks
        return _frozen(layer.config, engine, _thrashing(layer, engine) + end, {})
    uses = walk.uses(layer)
    if layer.config.frames == 1:
        return _frozen(layer.config, engine, _requests(uses, engine) + end, uses)
    return _double(layer.config, engine, uses, end)


def _served(uses: Mapping[str, Uses], cause: Array, times: Array, start: Array, end: Array) -> Service:
    """Return services with their uses and blocks. For a store without `uses`, blocks are moved in ascending order."""
    # The k-th service of a store is for the k-th use of a block of this store.
    use, block = np.zeros((2, len(cause)), np.int64)
    for index, store in enumerate(STORES):
        mine = cause == index
        use[mine] = np.cumsum(times[mine]) - times[mine]
        block[mine] = uses[store].block[use[mine]] if store in uses else use[mine]
    return Service(cause, times, start, end, use, block)


def _requests(uses: Mapping[str, Uses], engine: int) -> list[Request]:
    """Return the sorted page requests with one frame: load blocks when needed, write result blocks when complete."""
    requests = []
    for name, of in uses.items():
        when = of.need if name != "result" else np.append(of.free[:-1], engine)
        requests += [(at, STORES.index(name), 1) for at in when.tolist()]
    return sorted(requests, key=lambda request: (request[0], request[1] != RESULT, request[1]))


def _thrashing(layer: Layer, engine: int) -> list[Request]:
    """Return one request per store, for all page services of this store: every word may need a service."""
    results = -(-layer.outputs // layer.config.block_words("result"))
    biases = -(-layer["oc"] // layer.config.block_words("bias"))
    counts = (walk.data_loads(layer), walk.weight_loads(layer), biases)
    return [*((0, cause, count) for cause, count in enumerate(counts)), (engine, RESULT, results)]


def _cost(config: Config, cause: int) -> int:
    return config.relayout if cause == RELAYOUT else config.transfer(STORES[cause])


def _frozen(config: Config, engine: int, requests: Sequence[Request], uses: Mapping[str, Uses]) -> Schedule:
    """Return the schedule with one frame per store: every page service stops the engine."""
    at, cause, count = (np.array(requests, np.int64).reshape(-1, 3)[:, column] for column in range(3))
    costs = np.array([_cost(config, index) for index in range(len(CAUSES))], np.int64)
    wait = count * costs[cause]
    end = at + np.cumsum(wait)
    service = _served(uses, cause, count, end - wait, end)
    return Schedule(engine + int(wait.sum()), engine, service, Waits(at, cause, wait), uses)


def _double(config: Config, engine: int, uses: Mapping[str, Uses], end: Sequence[Request]) -> Schedule:
    """Return the schedule with two frames per store: page services overlap with the engine's work."""
    jobs: list[tuple[int, bool, int, int]] = []  # earliest engine cycle, is a write, deadline, cause
    for name, of in uses.items():
        cause = STORES.index(name)
        ahead = config.frames
        if name == "result":
            due = [*of.need[ahead:].tolist(), *[engine] * min(ahead, len(of.need))]
            left = [*of.free[:-1].tolist(), engine]
            jobs += [(at, True, by, cause) for at, by in zip(left, due, strict=True)]
        else:
            from_ = [*[0] * min(ahead, len(of.need)), *of.free[:-ahead].tolist()]
            jobs += [(at, False, by, cause) for at, by in zip(from_, of.need.tolist(), strict=True)]
    # The PS serves jobs in the order in which they become possible, and the engine waits for jobs in the order of their
    # deadlines. Both orders count engine cycles. An engine cycle plus the delay so far (`late`) is a cycle of the
    # clock. At each deadline, start all jobs that are possible by then, and wait for the job with this deadline.
    jobs.sort()
    costs = [_cost(config, index) for index in range(len(CAUSES))]
    needs = sorted((by, index) for index, (_, _, by, _) in enumerate(jobs))
    started = [0] * len(jobs)
    done = [0] * len(jobs)
    waits: list[Request] = []
    free = late = following = 0  # the cycle in which the PS is free, the engine's delay so far, the next job
    for at, index in needs:
        while following < len(jobs) and jobs[following][0] <= at:
            possible, _, _, cause = jobs[following]
            started[following] = max(free, possible + late)
            free = done[following] = started[following] + costs[cause]
            following += 1
        wait = max(0, done[index] - at - late)
        waits.append((at, jobs[index][3], wait))
        late += wait
    times = [1] * len(jobs)
    for at, cause, count in end:
        wait = count * costs[cause]
        jobs.append((at, True, at, cause))
        times.append(count)
        started.append(at + late)
        late += wait
        done.append(at + late)
        waits.append((at, cause, wait))
    columns = ([job[3] for job in jobs], times, started, done)
    service = _served(uses, *(np.array(column, np.int64) for column in columns))
    return Schedule(engine + late, engine, service, Waits(*np.array(waits, np.int64).reshape(-1, 3).T), uses)


def _by_cause(cause: Array, amount: Array) -> dict[str, int]:
    totals = np.bincount(cause, amount, minlength=len(CAUSES)).astype(np.int64)
    return {name: int(total) for name, total in zip(CAUSES, totals, strict=True) if total}


def timed(layer: Layer, model: str) -> tuple[Trace, Figures]:
    """Return the trace and the figures of a layer under a timing model, per sample of a batch."""
    planned = schedule(layer, paged=model == PAGED)
    trace = _trace(layer, planned)
    stalls = {
        f"{name} {'blocks' if name in STORES else 'by the PS'}": n // layer.samples
        for name, n in planned.stalls().items()
    }
    served = int((planned.service.end - planned.service.start).sum())
    serial = planned.engine + served
    figures = Figures(
        cycles=trace.cycles,
        serial_cycles=max(trace.cycles, -(-serial // layer.samples)),
        executed_macs=layer.macs,
        dram_read_bytes=int(trace.bytes_read.sum()) + trace.fetch_bytes,
        dram_write_bytes=int(trace.bytes_written.sum()),
        stalls=stalls,
        causes=with_rest("engine", trace.cycles, stalls),
        bound=-(-max(planned.engine, served) // layer.samples),
    )
    return trace, figures


def _trace(layer: Layer, planned: Schedule) -> Trace:
    """Return the trace of a layer for one sample.

    A step of the engine is the work between two points at which the engine may wait. A step of the PS is a page
    service.
    """
    # The k-th wait for a cause ends with the k-th service of this cause. The service sends a token to the engine if the
    # engine has waited.
    service = planned.service
    waits = planned.waits
    share = layer.samples
    late = np.cumsum(waits.wait)
    begin = np.concatenate([[0], waits.at + late])
    end = np.concatenate([waits.at + late - waits.wait, [planned.cycles]])
    wait = np.concatenate([[0], waits.wait])
    cause = np.concatenate([[0], waits.cause])
    # If several waits are at the same point, keep the empty steps, so that each wait is shown.
    kept = (end > begin) | (wait > 0)
    begin, end, wait, cause = (column[kept] for column in (begin, end, wait, cause))
    waited = np.zeros(len(service.cause), np.int64)
    for index in range(len(CAUSES)):
        waited[service.cause == index] = waits.wait[waits.cause == index]
    words = np.array([*map(layer.config.block_bytes, STORES), 0], np.int64)
    moved = service.times * words[service.cause]
    none = np.zeros(len(begin), np.int64)
    unit = np.concatenate([none + ENGINE, np.full(len(moved), PS)])
    start = np.concatenate([begin, service.start])
    order = np.lexsort((unit, start))

    def column(engine: Array, ps: Array | int) -> Array:
        values: Array = np.concatenate([engine, np.broadcast_to(ps, moved.shape)])[order]
        return values.astype(np.int64)

    named = [layer.kind.name.lower()] * len(begin) + _texts(planned)
    table = StepTable.untracked(UNITS, unit[order], lambda step: named[int(order[step])], *AWAITED)
    table = replace(
        table,
        pops=column(np.where(wait > 0, 1 << cause, 0), 0),
        pushes=column(none, np.where(waited > 0, 1 << service.cause, 0)),
    )
    # Divide times by the number of samples. Round up after a wait, so that the step does not begin before the awaited
    # service ends.
    ready = np.where(wait > 0, -(-begin // share), begin // share)
    trace = Trace(
        table=table,
        start=column(ready, service.start // share),
        end=-(-column(end, service.end) // share),
        wait=column(wait, 0) // share,
        cause=column(np.where(wait > 0, cause + CAUSE_TOKEN, 0), 0),
        contention=np.zeros(len(unit), np.int64),
        bytes_read=column(none, np.where(service.cause == RESULT, 0, moved)) // share,
        bytes_written=column(none, np.where(service.cause == RESULT, moved, 0)) // share,
        fetch_bytes=LAYOUT.nbytes,
        cycles=-(-planned.cycles // share),
    )
    if not planned.uses:
        return trace
    need = planned.uses["result"].need
    filled = -(-(need + np.append(0, late)[np.searchsorted(waits.at, need, "right")]) // share)
    return replace(trace, draw=partial(chart, layer.config.frames, service, filled, trace))


def _texts(planned: Schedule) -> list[str]:
    """Return a text for each page service: the block's number, or the number of blocks if they are unknown."""
    service = planned.service
    texts = []
    for cause, times, block in zip(service.cause.tolist(), service.times.tolist(), service.block.tolist(), strict=True):
        many = f"block {block}" if planned.uses else f"block{'s' if times > 1 else ''} x {times}"
        word = "write" if cause == RESULT else "load"
        texts.append(f"relayout x {times}" if cause == RELAYOUT else f"{word} {CAUSES[cause]} {many}")
    return texts
