"""Count the events of a launch: arithmetic, rows of the scratchpad and the accumulator, and DRAM transfers.

A command accesses each row of an operand once for each block of `dim` columns. The registers of the array are not
counted, because the energy table has no entry for register files.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.sim.events import Access, Bursts, Events, Part, Work, rows_of
from tilewright.sim.steps import Trace
from tilewright.targets.gemmini.isa.work import SCALE_ONE, Computes, Local
from tilewright.targets.gemmini.passes import Passes
from tilewright.targets.gemmini.traffic import moved_bytes, rows_in_dram

#: The width in bits of an operand of the array, and of an element of the accumulator.
NARROW = 8
WIDE = 32


def events(passes: Passes, trace: Trace | None) -> Events:
    """Return the events of a launch. DRAM transfers are sorted by the start of their commands, or by step."""
    config = passes.config
    work = passes.work
    read, written = (int(moved_bytes(moves).sum()) for moves in work.moves)
    parts = Part("multiply", NARROW), Part("add", config.pe_bits)
    return Events(
        (Work(f"8x8+{config.pe_bits}", passes.macs, parts),),
        _operations(passes),
        tuple(_accesses(passes)),
        read,
        written,
        (Bursts(_bursts(passes, trace)),),
        len(passes.cmds),
        trace.cycles if trace else 0,
        {
            "leakage, clock and control": "the commands do not determine them",
            "fetch of the host's instructions": "the host's core is not modelled",
        },
    )


def _operations(passes: Passes) -> tuple[Work, ...]:
    work = passes.work
    adding = work.computes.c
    added = _elements(adding)[(adding.acc & adding.accumulate) == 1].sum()
    loads = work.loads
    stores = work.stores
    added += _elements(loads.local)[(loads.local.acc & loads.local.accumulate) == 1].sum()
    wide = loads.local.acc & (1 - loads.settings["shrunk"])
    scaled = _elements(loads.local)[(wide == 0) & (loads.settings["scale"] != SCALE_ONE)].sum()
    requantised = _elements(stores.local)[(stores.local.acc & (1 - stores.local.full)) == 1].sum()
    scale = Part("float_multiply", WIDE)
    bounds = (Part("compare", WIDE), Part("compare", WIDE))
    operations = (
        Work(f"add {WIDE}", int(added), (Part("add", WIDE),)),
        Work("scale of inputs", int(scaled), (scale,)),
        Work("scale and bounds of results", int(requantised), (scale, *bounds)),
    )
    return tuple(operation for operation in operations if operation.count)


def _elements(place: Local) -> Array:
    return place.rows * place.cols * (1 - place.garbage)


def _accesses(passes: Passes) -> list[Access]:
    config = passes.config
    work = passes.work
    reads, writes = np.zeros(2, np.int64), np.zeros(2, np.int64)

    def count(to: Array, place: Local, chosen: Array | bool = True) -> None:
        """Add the rows of operands to `to[0]` for the scratchpad, or to `to[1]` for the accumulator."""
        rows = place.rows * -(-place.cols // config.dim) * (1 - place.garbage) * chosen
        to += np.bincount(place.acc, rows, 2).astype(np.int64)

    computes: Computes = work.computes
    for operand in (computes.a, computes.d):
        count(reads, operand)
    count(reads, computes.w, computes.fresh)
    for result in (computes.c, work.loads.local):
        count(writes, result)
        count(reads, result, result.acc & result.accumulate)
    count(reads, work.stores.local)
    bank = config.spad_rows, config.acc_rows // config.acc_banks
    bits = NARROW * config.dim, WIDE * config.dim
    return [
        Access(name, rows * width // 8, width, *map(int, counts))
        for name, rows, width, *counts in zip(("scratchpad", "accumulator"), bank, bits, reads, writes, strict=True)
    ]


def _bursts(passes: Passes, trace: Trace | None) -> Array:
    work = passes.work
    # The order matters because the energy model of DRAM charges each change of the open row.
    start = passes.sequence.copy()
    if trace is not None:
        start[passes.times.order] = trace.start
        start = start[passes.sequence]
    parts = []
    for moves in work.moves:
        move, *columns = rows_in_dram(moves)
        parts.append((start[moves.step[move]], *columns))
    when, *columns = (np.concatenate(pair) for pair in zip(*parts, strict=True))
    order = np.argsort(when, kind="stable")
    return rows_of(*(column[order] for column in columns))
