"""Timing models, and a layer's schedule as the trace that all targets share: a track of the engine, one of the PS."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.sim.steps import Footprints, StepTable, TokenQueue
from tilewright.sim.trace import CAUSE_TOKEN, Part, Trace
from tilewright.targets.base import TimingModel
from tilewright.targets.zynq.config import STORES
from tilewright.targets.zynq.isa.descriptor import LAYOUT
from tilewright.targets.zynq.isa.layer import Layer
from tilewright.targets.zynq.timing.service import CAUSES, RELAYOUT, RESULT, Schedule, schedule

ENGINE, PS = range(2)
UNITS = ("engine", "ps")
PAGED, COMPUTE = "paged", "compute"
MODELS = {
    PAGED: TimingModel(
        PAGED,
        "states counted from the document; page services (handshake, words a cycle) assumed; nothing measured",
    ),
    COMPUTE: TimingModel(COMPUTE, "states counted from the document, every block there at once: a lower bound"),
}


def timed(layer: Layer, model: str) -> tuple[Trace, Part]:
    """A layer's trace and sums under a timing model, for one sample: its share of a batch."""
    found = schedule(layer, paged=model == PAGED)
    trace = _trace(layer, found)
    stalls = {
        f"{name} {'blocks' if name in STORES else 'by the PS'}": n // layer.samples
        for name, n in found.stalls().items()
    }
    serial = found.engine + int((found.service.end - found.service.start).sum())
    part = Part(
        cycles=trace.cycles,
        serial_cycles=max(trace.cycles, -(-serial // layer.samples)),
        bytes_read=int(trace.bytes_read.sum()) + trace.fetch_bytes,
        bytes_written=int(trace.bytes_written.sum()),
        stalls=stalls,
    )
    return trace, part


def _trace(layer: Layer, found: Schedule) -> Trace:
    """Engine steps lie between places where it may wait, PS steps are page services."""
    late = np.cumsum(found.waits.wait)
    begin = np.concatenate([[0], found.waits.at + late])
    end = np.concatenate([found.waits.at + late - found.waits.wait, [found.cycles]])
    wait = np.concatenate([[0], found.waits.wait])
    cause = np.concatenate([[0], found.waits.cause + CAUSE_TOKEN])
    kept = (end > begin) | (wait > 0)
    begin, end, wait, cause = (column[kept] for column in (begin, end, wait, np.where(wait > 0, cause, 0)))
    service, words = found.service, np.array([_bytes(layer, index) for index in range(len(CAUSES))], np.int64)
    moved = service.times * words[service.cause]
    none = np.zeros(len(begin), np.int64)
    unit = np.concatenate([none + ENGINE, np.full(len(moved), PS)])
    start = np.concatenate([begin, service.start])
    order = np.lexsort((unit, start))

    def column(engine: Array, ps: Array | int) -> Array:
        values: Array = np.concatenate([engine, np.broadcast_to(ps, moved.shape)])[order]
        return values.astype(np.int64)

    texts = [
        f"{CAUSES[c]} block{'s' if n > 1 else ''} x {n}" for c, n in zip(service.cause, service.times, strict=True)
    ]
    named = [layer.kind.name.lower()] * len(begin) + texts
    share = layer.samples
    table = StepTable(
        units=UNITS,
        queues=tuple(TokenQueue(f"{name}{' block' if name in STORES else ''}", PS, ENGINE, 1) for name in CAUSES),
        spaces=(),
        unit=unit[order],
        pops=np.zeros(len(unit), np.int64),
        pushes=np.zeros(len(unit), np.int64),
        footprint=np.zeros(len(unit), np.int64),
        footprints=Footprints.of([np.zeros((0, 6), np.int64)]),
        describe=lambda step: named[int(order[step])],
    )
    return Trace(
        table=table,
        start=column(begin, service.start) // share,
        end=-(-column(end, service.end) // share),
        wait=column(wait, 0) // share,
        cause=column(cause, 0),
        contention=np.zeros(len(unit), np.int64),
        bytes_read=column(none, np.where(service.cause == RESULT, 0, moved)) // share,
        bytes_written=column(none, np.where(service.cause == RESULT, moved, 0)) // share,
        fetch_bytes=LAYOUT.nbytes,
        cycles=-(-found.cycles // share),
    )


def _bytes(layer: Layer, cause: int) -> int:
    """Bytes of one service."""
    if cause == RELAYOUT:
        return 0
    return layer.config.block_words(STORES[cause]) * (4 if STORES[cause] == "bias" else 1)
