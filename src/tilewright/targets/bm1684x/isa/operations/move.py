"""Copies, transposes, broadcasts, gathers, selections and sorting on all engines. Values keep their bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.isa.operations import rules
from tilewright.targets.bm1684x.isa.operations.base import DMA, HAU, TIU, Flow, Touches, Values, define
from tilewright.targets.bm1684x.values.dtypes import F32, I32, U8, U16, U32
from tilewright.targets.bm1684x.values.floats import widen


def gather_rows(v: Values) -> Array:
    """Return y with `y[0, c, k, :] = x[0, c, index[0, c, k, 0], :]`, or `fill` where the index is out of range."""
    index, x = v["index"][0, :, :, 0].astype(np.int64), v["x"][0]
    inside = index < x.shape[1]
    rows = np.take_along_axis(x, np.where(inside, index, 0)[:, :, None], 1)
    return np.where(inside[:, :, None], rows, v["fill"])[None]


def taken_from(operand: str, gather: Callable[[Values], Array]) -> Touches:
    """Return a function that returns, as a mask, which elements of `operand` a gather reads.

    To find these elements, it gathers the elements' numbers instead of their values.
    """

    def touches(v: Values, found: Mapping[str, Array]) -> dict[str, Array]:
        numbers, size = np.arange(v[operand].size).reshape(v[operand].shape), v[operand].size
        taken = np.zeros(size + 1, np.bool_)
        taken[gather(replace(v, data={**v.data, operand: numbers, "fill": np.array(size)}))] = True
        return {operand: taken[:size].reshape(numbers.shape)}

    return touches


def scatter_rows(v: Values) -> Array:
    """Return y with `y[0, c, index[0, c, k, 0], :] = x[0, c, k, :]`. Rows with an index out of range are dropped.

    All other rows come from y_before, or are 0 without it. If two indices are equal, the last row wins; what the
    machine does then is not known.
    """
    y = v["y_before"].copy() if "y_before" in v.data else np.zeros(v.shapes["y"], v.types["y"].storage)
    index = v["index"][0, :, :, 0].astype(np.int64)
    channel, row = np.nonzero(index < y.shape[2])
    y[0, channel, index[channel, row]] = v["x"][0, channel, row]
    return y


def scattered_rows(v: Values, found: Mapping[str, Array]) -> dict[str, Array]:
    """Return masks, by operand, of what a scatter touches: with y_before, only the indexed rows of y; else all rows."""
    if "y_before" not in v.data:
        return {}
    marks = {**v.data, "x": np.ones(v["x"].shape, np.bool_), "y_before": np.zeros(v.shapes["y"], np.bool_)}
    return {"y": scatter_rows(replace(v, data=marks)), "y_before": np.zeros((), np.bool_)}


def mask_select(v: Values) -> dict[str, Array]:
    """Return y, the elements of x where mask is not 0, in NCHW order, and their count. The rest of y is not written."""
    kept = v["x"][v["mask"] != 0]
    return {"y": kept, "count": np.array([kept.size])}


def selected(v: Values, found: Mapping[str, Array]) -> dict[str, Array]:
    """Return masks, by name, of the elements of x that mask_select reads, and of those of y that it writes."""
    return {"x": v["mask"] != 0, **first_ones(v, found)}


def first_ones(v: Values, found: Mapping[str, Array]) -> dict[str, Array]:
    """Return the mask of the elements of y that are written: the first N, if the operation found N elements."""
    shape = v.shapes["y"]
    return {"y": (np.arange(math.prod(shape)) < found["y"].size).reshape(shape)}


def nonzero(v: Values) -> dict[str, Array]:
    """Return y, the positions of nonzero elements of x (u32, in NCHW order, counted from `base`), and their count."""
    found = np.flatnonzero(v["x"]) + v.attribute("base")
    return {"y": found.astype(np.uint32), "count": np.array([found.size])}


def table_lookup(v: Values) -> Array:
    """Return `table[x]`, or `fill` where the operand x is out of range.

    A table (1, c, 1, k) has k entries for each channel; a table (k,) serves all channels.
    """
    index, tables = v["x"].astype(np.int64), v["table"].reshape(-1, v["table"].shape[-1])
    inside = index < tables.shape[1]
    channel = np.arange(index.shape[1])[:, None, None] if len(tables) > 1 else 0
    return np.where(inside, tables[channel, np.where(inside, index, 0)], v["fill"])


def sort(v: Values) -> dict[str, Array]:
    """Return y, the first K elements of x in stable sorted order, and index: their `numbers`, else their positions."""
    key = widen(v["x"], F32) if v.types["x"] is F32 else v["x"].astype(np.int64)
    order = np.argsort(-key if v.attribute("descending") else key, kind="stable")[: v.shapes["y"][0]]
    return {"y": v["x"][order], "index": v["numbers"][order] if "numbers" in v.data else order.astype(np.int32)}


def gather_lines(v: Values) -> Array:
    """Return y, whose line i is line `index[i] - base` of x. Where an index is out of range, it is `other` or `kept`.

    All operands are flat. A line has as many elements as y has for each index.
    """
    at, inside = _lines(v)
    lines = v["x"].reshape(-1, v.shapes["y"][0] // len(at))
    instead = v["other"] if "other" in v.data else v["kept"].reshape(len(at), -1)
    return np.where(inside[:, None], lines[at], instead).reshape(-1)


def _lines(v: Values) -> tuple[Array, Array]:
    """Return the number of the line that each index selects, and a mask of the indices in range.

    Raises ValueError if x and y are not whole lines.
    """
    at, size = v["index"].astype(np.int64) - v.attribute("base"), v.shapes["y"][0] // len(v["index"])
    if not size or v["x"].size % size or size * len(at) != v.shapes["y"][0]:
        raise ValueError(f"x has {v['x'].size} elements and y {v.shapes['y'][0]}, for {len(at)} indices")
    inside = (at >= 0) & (at < v["x"].size // size)
    return np.where(inside, at, 0), inside


def gathered_lines(v: Values, found: Mapping[str, Array]) -> dict[str, Array]:
    """Return masks of the elements of x that gather_lines reads and of the elements of y that it writes."""
    at, inside = _lines(v)
    read = np.zeros((v["x"].size // (v.shapes["y"][0] // len(at)), v.shapes["y"][0] // len(at)), np.bool_)
    read[at[inside]] = True
    written = np.repeat(inside | ("other" in v.data), read.shape[1])
    return {"x": read.reshape(-1), "y": written, "kept": np.zeros((), np.bool_)}


def hard_nms(v: Values) -> dict[str, Array]:
    """Return the boxes to keep (i32), and their count: an unverified **model** of non-maximum suppression.

    Boxes are in descending order of score. x (boxes * boxes) is not 0 where the row's box suppresses the column's box.
    A box is kept unless an earlier kept box suppresses it, until y is full. Raises ValueError if x is not square.
    """
    boxes = math.isqrt(v["x"].size)
    if boxes * boxes != v["x"].size:
        raise ValueError(f"x has {v['x'].size} elements, not the square of a number of boxes")
    suppresses = v["x"].reshape(boxes, boxes) != 0
    gone = np.zeros(boxes, np.bool_)
    kept: list[int] = []
    for box in range(boxes):
        if not gone[box] and len(kept) < v.shapes["y"][0]:
            kept.append(box)
            gone |= suppresses[box]
    return {"y": np.array(kept, np.int32), "count": np.array([len(kept)])}


def soft_nms(v: Values) -> dict[str, Array]:
    """Return the boxes to keep (i32), best first, and their count: an unverified **model** of soft suppression.

    x (boxes * boxes) has the overlaps, `scores` (boxes) the scores, both f32; each operation rounds. The box with the
    best score is kept, and each other score is multiplied by `1 - overlap` of its box with the kept one. This is
    repeated until no score exceeds `threshold` or y is full.
    """
    scores = v["scores"].copy()
    overlaps = v["x"].reshape(scores.size, scores.size)
    kept: list[int] = []
    while len(kept) < min(v.shapes["y"][0], scores.size):
        best = int(np.argmax(scores))
        if not scores[best] > v.attribute("threshold"):
            break
        kept.append(best)
        scores = scores * (np.float32(1) - overlaps[best])
        scores[kept] = -np.inf
    return {"y": np.array(kept, np.int32), "count": np.array([len(kept)])}


def _transposed(*order: int) -> Callable[[Values], Array]:
    """Return a function that computes an operation: it permutes the axes of the operand x to `order`."""
    return lambda v: v["x"].transpose(order)


def _broadcast(v: Values) -> Array:
    """Return the operand x, broadcast to the shape of the result y."""
    return np.broadcast_to(v["x"], v.shapes["y"])


cw_transposed = _transposed(0, 3, 2, 1)
bits, counted = rules.alike("x", "y"), rules.of("count", U32, I32)
moves = partial(define, flow=Flow.MOVE, arithmetic=())
#: Operations whose values decide how many elements they write.
selects: Mapping[str, Any] = {"outputs": "y count", "by_data": True}
near: Mapping[str, Any] = {"places": (rules.in_lanes, rules.first_lane)}
for name, places in (("dma_copy", (rules.short_steps,)), ("dma_linear", None)):  # both in NCHW order
    moves(DMA, name, "x", lambda v: v["x"].reshape(v.shapes["y"]), bits, places=places)
moves(DMA, "dma_broadcast", "x", _broadcast, bits, places=(rules.within_lanes, rules.packed_rows))
moves(DMA, "dma_linear_bcast", "x", _broadcast, bits, places=(rules.within_lanes,))
moves(DMA, "dma_nc_trans", "x", _transposed(1, 0, 2, 3), bits)
moves(DMA, "dma_cw_trans", "x", cw_transposed, bits)
moves(DMA, "dma_matrix_trans", "x", _transposed(1, 0), bits)
moves(DMA, "dma_reverse", "x", lambda v: np.flip(v["x"], v.attribute("axis")), bits)
filled = (rules.alike("x", "y", "fill"), rules.of("index", U32, U16, U8))
indexed: Mapping[str, Any] = {"deciding": ("index",), "touches": taken_from("x", gather_rows)}
define(DMA, "dma_h_gather", "x index fill", gather_rows, *filled, **indexed)
scatters: Mapping[str, Any] = {"by_data": True, "deciding": ("index",), "touches": scattered_rows}
define(DMA, "dma_h_scatter", "x index y_before", scatter_rows, bits, **scatters)
masked: Mapping[str, Any] = {"deciding": ("mask",), "touches": selected, **selects}
define(DMA, "dma_mask_select", "x mask", mask_select, bits, rules.integers("mask"), **masked)
positions = (rules.integers("x"), rules.of("y", U32))
define(DMA, "dma_nonzero", "x", nonzero, *positions, deciding=("x",), touches=first_ones, **selects)
moves(TIU, "cw_trans", "x", cw_transposed, bits, **near)
moves(TIU, "wc_trans", "x", cw_transposed, bits, **near)
moves(TIU, "npu_bcast", "x", _broadcast, bits, places=(rules.in_lanes, rules.within_lanes))
moves(TIU, "static_bcast", "x", _broadcast, bits, places=())
moves(TIU, "static_distribute", "x", cw_transposed, bits, places=(rules.first_of_lanes,))
looks = (rules.alike("table", "y", "fill"), rules.of("x", U8, U16))
looked: Mapping[str, Any] = {"deciding": ("x",), "arithmetic": (), "touches": taken_from("table", table_lookup)}
define(TIU, "table_lookup", "x table fill", table_lookup, *looks, **looked)
define(HAU, "hau_sort", "x numbers", sort, rules.of("x", F32, I32, U32), bits, outputs="y index", deciding=("x",))
lines = (rules.alike("x", "y", "other", "kept"), rules.of("index", I32))
gathers: Mapping[str, Any] = {"by_data": True, "deciding": ("index",), "touches": gathered_lines}
define(HAU, "hau_line_gather", "x index other kept", gather_lines, *lines, **gathers)
kept = (rules.of("y", I32), counted)
define(HAU, "hau_hard_nms", "x", hard_nms, rules.of("x", U8), *kept, deciding=("x",), touches=first_ones, **selects)
boxes = (rules.of("x", F32), rules.of("scores", F32), *kept)
define(HAU, "hau_soft_nms", "x scores", soft_nms, *boxes, deciding=("x", "scores"), touches=first_ones, **selects)
