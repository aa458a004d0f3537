"""The chart of a layer: which page each frame of the stores holds, and when the engine waits for one.

A page is a block of data, weights, biases or results. With one frame, an iteration that reads two blocks of a store is
timed, and drawn, as if it began with the second one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilewright.array import Array
from tilewright.sim.causes import CAUSE_TOKEN
from tilewright.sim.chart import ALARM, HATCHED, SOLID, START, Chart, Kind, Row
from tilewright.sim.steps import Trace
from tilewright.targets.zynq.config import STORES
from tilewright.targets.zynq.timing.walk import Service

TITLE = "Pages in block RAM"
#: Kinds of boxes of each store: the frame holds a block, the PS moves it, the engine waits for it (a page fault).
HOLDS, MOVES, FAULT = range(3)
RESULT = STORES.index("result")
#: Percent of a row's height, at its top, in which faults are marked.
MARK = 25


def chart(frames: int, service: Service, filled: Array, trace: Trace) -> Chart:
    """Return the chart of a layer, with a row for each of the `frames` of each store.

    `service` has the steps of the PS, in the trace's order; `filled` is the cycle of the launch in which the engine
    begins to fill each result block. A frame holds a loaded block until the next load into the frame begins, and a
    result block from `filled` until its transfer begins.
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
    return Chart(
        TITLE, tuple(Row(name) for name in named), tuple(kinds), boxes[:, np.argsort(boxes[START], kind="stable")]
    )


def _boxes(frames: int, service: Service, filled: Array, trace: Trace) -> Iterator[Array]:
    """Yield the boxes of each store and kind, int64 [6, k] (sim.chart.Chart). Some may be empty."""
    engine, services = (np.flatnonzero(trace.table.unit == unit) for unit in range(2))
    for cause in range(len(STORES)):
        served = service.cause == cause
        step, row, block = services[served], cause * frames + service.use[served] % frames, service.block[served]
        begin, end = trace.start[step], trace.until[step]
        whole = np.append(begin[frames:], np.full(min(frames, len(begin)), trace.cycles))  # until the next load
        held = (filled, begin) if cause == RESULT else (end, whole)
        late = np.flatnonzero(trace.table.pushes[step])
        wait = engine[trace.cause[engine] == cause + CAUSE_TOKEN]
        waited = (trace.start[wait] - trace.wait[wait], trace.start[wait])
        for kind, mine, span in ((MOVES, slice(None), (begin, end)), (HOLDS, slice(None), held), (FAULT, late, waited)):
            kinds = np.full(len(span[0]), 3 * cause + kind)
            yield np.stack((row[mine], kinds, block[mine], *span, step[mine]))
