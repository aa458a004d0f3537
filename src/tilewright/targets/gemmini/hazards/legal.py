"""Commands that the machine cannot execute as written. A rule is a mask of the moves or computes that break it.

[R] marks rules that an RTL run showed: the RTL stopped, or an assertion failed. [S] marks assertions in the Chisel
source.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.findings import DEADLOCK, OUT_OF_RANGE, PORTABILITY, STREAM, UNINITIALISED
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.hazards.touch import OUTSIDE, Touches
from tilewright.targets.gemmini.isa.work import KEEP, NONE, Computes, Local, Moves, Work


class Defect(NamedTuple):
    """A primitive command that breaks a rule: the kind of finding, the command's index, and the reason."""

    kind: str
    step: int
    reason: str


def defects(work: Work, touches: Touches, config: Config) -> Iterator[Defect]:
    yield from _outside(touches, config)
    for step, mask, kind, reason in (
        *_loads(work.loads, config),
        *_stores(work.stores, config),
        *_computes(work.computes, config),
    ):
        yield from (Defect(kind, index, reason) for index in step[mask].tolist())
    for index in work.preloads[~np.isin(work.preloads, work.computes.preload)].tolist():
        yield Defect(
            STREAM, index, "no compute follows this preload, so the machine becomes idle and drops it: add a compute"
        )
    steps, settings = work.config_norm
    if not config.normaliser:
        reason = "this machine has no normaliser; set normaliser=1"
        yield from (Defect(STREAM, index, reason) for index in steps.tolist())
    elif config.rtl == 2025 and config.semantics == "rtl":
        reason = "selects softmax, which gives 127 everywhere: since upstream's 2916cde, iexp has the body of igelu"
        softmax = steps[(settings["high"] == 1) & (settings["only_stat"] == 0)].tolist()
        yield from (Defect(STREAM, index, f"{reason}; set rtl=2023 or semantics=functional") for index in softmax)


#: A rule: the steps that it checks, a mask of the steps that break it, the kind of finding, and the reason.
Rule = tuple[Array, Array, str, str]


def _outside(touches: Touches, config: Config) -> Iterator[Defect]:
    spad = config.all_spad_rows
    rows = config.all_spad_rows + config.acc_rows
    in_acc = (touches.base >= spad) & (touches.base < OUTSIDE)
    end = np.where(in_acc, rows, spad)
    for at in np.flatnonzero((touches.size > 0) & (touches.last >= end)).tolist():
        memory, base, size = ("acc", spad, config.acc_rows) if in_acc[at] else ("spad", 0, spad)
        reason = f"reaches row {touches.last[at] % OUTSIDE - base} of {memory}, which has {size} rows"
        yield Defect(OUT_OF_RANGE, int(touches.step[at]), reason)


def _empty(place: Local) -> Array:
    return (place.rows == 0) | (place.cols == 0)


def _loads(moves: Moves, config: Config) -> Iterator[Rule]:
    step = moves.step
    place = moves.local
    settings = moves.settings
    dim = config.dim
    wide = (place.acc == 1) & (settings["shrunk"] == 0)
    blocks = np.where(wide, config.acc_blocks, config.spad_blocks)
    zeros = moves.dram == 0
    acc = place.acc == 1
    yield step, moves.state == NONE, UNINITIALISED, "no config_ld has set its load state"
    yield step, _empty(place), STREAM, "has no rows or no columns [S]"
    yield step, place.rows > dim, STREAM, f"has more than {dim} rows [S]"
    yield step, place.cols > blocks * dim, STREAM, f"has more columns than a request of {config.dma_bytes} bytes [S]"
    reason = "adds int32 rows with elements in two requests, which loses carries [R]: align address and stride to 4"
    yield step, _split(moves, wide & (place.accumulate == 1), config), STREAM, reason
    short = (place.cols > dim) & (settings["block_stride"] < place.rows)
    yield step, short, STREAM, "its blocks overlap: block_stride is less than its rows [S]"
    reason = "loads zeros into the accumulator with shrunk=1, which fails an assertion [R]: set shrunk=0"
    yield step, zeros & acc & (settings["shrunk"] == 1), STREAM, reason
    yield (
        step,
        ~acc & (place.cols * settings["pixels"] > np.maximum(dim, place.cols)),
        OUT_OF_RANGE,
        f"repeats pixels beyond the end of a row: pixels * cols may be at most {dim}",
    )


def _split(moves: Moves, among: Array, config: Config) -> Array:
    """Return a mask of the moves in the mask `among` that have an int32 element in two DMA requests, bool [k]."""
    place = moves.local
    if not among.any():
        return among
    # Requests end at multiples of dma_bytes, so they divide elements only in rows that are not aligned to 4 bytes.
    row = np.arange(config.dim)
    at = moves.dram[:, None] + row * moves.settings["stride"][:, None]
    crosses = at % config.dma_bytes + (4 * place.cols)[:, None] > config.dma_bytes
    return ((at % 4 != 0) & crosses & (row < place.rows[:, None])).any(axis=1) & among & (moves.dram != 0)


def _stores(moves: Moves, config: Config) -> Iterator[Rule]:
    step = moves.step
    place = moves.local
    settings = moves.settings
    dim = config.dim
    pooled = settings["pool_stride"] > 0
    int8 = (place.acc == 1) & (place.full == 0)
    yield step, moves.state == NONE, UNINITIALISED, "no config_st comes before it"
    yield (
        step,
        int8 & (settings["scale"] == KEEP) & (moves.state != NONE),
        UNINITIALISED,
        "no config_st has set its scale",
    )
    yield step, ~pooled & _empty(place), STREAM, "has no rows or no columns [S]"
    windows = settings["porows"] * settings["pocols"] * settings["pool_size"]
    yield step, pooled & ((windows == 0) | (place.cols == 0)), STREAM, "pools no pixels or no channels [S]"
    yield step, ~pooled & (place.rows > dim), STREAM, f"has more than {dim} rows [S]"
    wide = (place.acc == 1) & (place.full == 1)
    yield step, wide & (place.cols > dim), STREAM, f"moves int32 rows of more than one block of {dim} columns [S]"
    most = max(config.dma_bytes, dim)
    yield step, place.cols > most, STREAM, f"has more columns than a request of {config.dma_bytes} bytes [S]"
    yield step, pooled & wide, STREAM, "pools int32 rows, which the RTL writes as zeros [R]"
    yield step, pooled & (place.cols > dim), OUT_OF_RANGE, f"pools more than {dim} channels"
    scale = settings["scale"].astype(np.uint32).view(np.float32)
    reason = "ReLU with a negative scale: the RTL applies ReLU first, libgemmini applies the scale first"
    yield step, int8 & (settings["activation"] == 1) & (scale < 0), PORTABILITY, reason
    if not config.normaliser:
        reason = "has a norm command, but this machine has no normaliser; set normaliser=1"
        yield step, (place.acc == 1) & (place.norm > 0), PORTABILITY, reason


def _computes(work: Computes, config: Config) -> Iterator[Rule]:
    step = work.step
    settings = work.settings
    dim = config.dim
    weights = settings["dataflow"] == 1
    flipped = settings["transpose_b"] == 1
    configured = work.config != NONE
    yield step, work.preload == NONE, DEADLOCK, "waits for a preload that never comes"
    yield step, ~configured, UNINITIALISED, "no config_ex comes before it"
    # The dataflow of the previous compute (or NONE), whose weights or sums are still in the array.
    before = _previous(weights)
    kept = (work.fresh == 0) & configured
    left = ~weights & (before == 0) & (_previous(work.c.garbage == 0) == 1)
    reason = "adds to sums that have left the array with the previous result [R]: begin with compute_preloaded"
    yield step, kept & left, UNINITIALISED, reason
    reason = "uses weights or sums of the other dataflow that are still in the array [R]: begin with compute_preloaded"
    yield step, kept & (before != NONE) & (before != weights), UNINITIALISED, reason
    reason = "its preload has no weights, so rows of older weights stay in the array [R]: preload a block of weights"
    yield step, weights & (work.fresh == 1) & (work.w.garbage == 1) & (work.preload != NONE), UNINITIALISED, reason
    for name, place in (("A", work.a), ("B or D", work.d), ("preloaded B or D", work.w)):
        real = place.garbage == 0
        reason = f"its operand {name} is in the accumulator: the RTL waits forever [R]"
        yield step, real & (place.acc == 1), DEADLOCK, reason
    for name, place in (("A", work.a), ("B or D", work.d), ("preloaded B or D", work.w), ("C", work.c)):
        large = (place.garbage == 0) & ((place.rows > dim) | (place.cols > dim))
        yield step, large, OUT_OF_RANGE, f"its operand {name} has more than {dim} rows or columns"
    yield step, configured & weights & (config.dataflow == "os"), STREAM, "dataflow ws is not built (dataflow=os)"
    yield step, configured & ~weights & (config.dataflow == "ws"), STREAM, "dataflow os is not built (dataflow=ws)"
    both = weights & (settings["transpose_a"] == 1) & flipped
    yield step, both, STREAM, "transposes both A and B, which dataflow ws does not support [S]"
    yield (
        step,
        ~weights & (settings["transpose_a"] == 0) & flipped,
        STREAM,
        "transposes B but not A, which dataflow os does not support [S]",
    )
    written = (work.c.garbage == 0) & configured
    beyond = written & weights & (work.c.rows > work.streamed)
    reason = "C has more rows than the array streams: the RTL does not write the other rows, libgemmini writes zeros"
    yield step, beyond, PORTABILITY, reason
    reason = "shifts an os result for the accumulator: the RTL shifts the result, libgemmini does not"
    yield step, written & ~weights & (work.c.acc == 1) & (settings["shift"] > 0), PORTABILITY, reason


def _previous(flags: Array) -> Array:
    return np.append(NONE, flags)[: len(flags)]
