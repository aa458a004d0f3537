"""Moves: copies, transposes, broadcasts, gathers and selections of all engines, and sorting. Values keep their bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.isa.operations import rules
from tilewright.targets.bm1684x.isa.operations.base import DMA, HAU, TIU, Touches, Values, define
from tilewright.targets.bm1684x.values.dtypes import F32, I32, U8, U16, U32
from tilewright.targets.bm1684x.values.floats import widen


def gather_rows(v: Values) -> Array:
    """y[0, c, k, :] = x[0, c, index[0, c, k, 0], :]; `fill` where the index is beyond x."""
    index, x = v["index"][0, :, :, 0].astype(np.int64), v["x"][0]
    inside = index < x.shape[1]
    rows = np.take_along_axis(x, np.where(inside, index, 0)[:, :, None], 1)
    return np.where(inside[:, :, None], rows, v["fill"])[None]


def taken_from(operand: str, gather: Callable[[Values], Array]) -> Touches:
    """The elements of an operand that a gather takes: those whose numbers it gives when it gathers numbers."""

    def touches(v: Values, found: Mapping[str, Array]) -> dict[str, Array]:
        numbers, size = np.arange(v[operand].size).reshape(v[operand].shape), v[operand].size
        taken = np.zeros(size + 1, np.bool_)
        taken[gather(replace(v, data={**v.data, operand: numbers, "fill": np.array(size)}))] = True
        return {operand: taken[:size].reshape(numbers.shape)}

    return touches


def scatter_rows(v: Values) -> Array:
    """y[0, c, index[0, c, k, 0], :] = x[0, c, k, :]; of equal indices the last stays, those beyond y are dropped.

    Other rows are those of y_before, or 0. How the machine treats equal indices is not known.
    """
    y = v["y_before"].copy() if "y_before" in v.data else np.zeros(v.shapes["y"], v.types["y"].storage)
    index = v["index"][0, :, :, 0].astype(np.int64)
    channel, row = np.nonzero(index < y.shape[2])
    y[0, channel, index[channel, row]] = v["x"][0, channel, row]
    return y


def scattered_rows(v: Values, found: Mapping[str, Array]) -> dict[str, Array]:
    """The rows of y that an index names are written; the others stay, or become 0 without y_before."""
    if "y_before" not in v.data:
        return {}
    marks = {**v.data, "x": np.ones(v["x"].shape, np.bool_), "y_before": np.zeros(v.shapes["y"], np.bool_)}
    return {"y": scatter_rows(replace(v, data=marks)), "y_before": np.zeros((), np.bool_)}


def mask_select(v: Values) -> dict[str, Array]:
    """The elements of x where mask is not 0, in NCHW order, and their count. What follows them is not written."""
    kept = v["x"][v["mask"] != 0]
    return {"y": kept, "count": np.array([kept.size])}


def selected(v: Values, found: Mapping[str, Array]) -> dict[str, Array]:
    """The elements of x that are kept, and the beginning of y that they go to."""
    return {"x": v["mask"] != 0, **first_ones(v, found)}


def first_ones(v: Values, found: Mapping[str, Array]) -> dict[str, Array]:
    """What is written of y: as many elements as there are."""
    shape = v.shapes["y"]
    return {"y": (np.arange(math.prod(shape)) < found["y"].size).reshape(shape)}


def nonzero(v: Values) -> dict[str, Array]:
    """Positions (u32, counted in NCHW order from `base`) of the elements of x that are not 0, and their count."""
    found = np.flatnonzero(v["x"]) + v.attribute("base")
    return {"y": found.astype(np.uint32), "count": np.array([found.size])}


def table_lookup(v: Values) -> Array:
    """y = table[x]; `fill` where x is beyond it. Each channel has its own table: (1, c, 1, k), or (k,) for all."""
    index, tables = v["x"].astype(np.int64), v["table"].reshape(-1, v["table"].shape[-1])
    inside = index < tables.shape[1]
    channel = np.arange(index.shape[1])[:, None, None] if len(tables) > 1 else 0
    return np.where(inside, tables[channel, np.where(inside, index, 0)], v["fill"])


def gather_columns(v: Values) -> Array:
    """y[n, c, 0, k] = x[n, c, 0, index[k]]; `fill` where the index is beyond x."""
    index = v["index"].reshape(-1).astype(np.int64)
    inside = index < v["x"].shape[3]
    return np.where(inside, v["x"][..., np.where(inside, index, 0)], v["fill"])


def gather_elements(v: Values) -> Array:
    """y[n, c, h, k] = x[0, c, h, index[n, c, 0, k]]; `fill` where the index is beyond x."""
    index = v["index"].astype(np.int64)
    inside = index < v["x"].shape[3]
    shape = (index.shape[0], *v["x"].shape[1:])
    y = np.take_along_axis(np.broadcast_to(v["x"], shape), np.where(inside, index, 0), 3)
    return np.where(inside, y, v["fill"])


def sort(v: Values) -> dict[str, Array]:
    """The first K of x in order, and their `numbers` (or where they stood); equal ones keep their order."""
    key = widen(v["x"], F32) if v.types["x"] is F32 else v["x"].astype(np.int64)
    order = np.argsort(-key if v.attribute("descending") else key, kind="stable")[: v.shapes["y"][0]]
    return {"y": v["x"][order], "index": v["numbers"][order] if "numbers" in v.data else order.astype(np.int32)}


def hard_nms(v: Values) -> dict[str, Array]:
    """Which boxes stay (i32), and their count, of `boxes` in the order of falling scores: a **model**, unverified.

    x (boxes * boxes) is not 0 where the row's box suppresses the column's. Box after box, one that no kept box before
    it suppresses is kept, as many as y holds.
    """
    boxes = math.isqrt(v["x"].size)
    if boxes * boxes != v["x"].size:
        raise ValueError(f"{v['x'].size} elements are no square of boxes")
    suppresses = v["x"].reshape(boxes, boxes) != 0
    gone = np.zeros(boxes, np.bool_)
    kept: list[int] = []
    for box in range(boxes):
        if not gone[box] and len(kept) < v.shapes["y"][0]:
            kept.append(box)
            gone |= suppresses[box]
    return {"y": np.array(kept, np.int32), "count": np.array([len(kept)])}


def soft_nms(v: Values) -> dict[str, Array]:
    """Which boxes stay (i32), best first, and their count: a **model**, unverified.

    x (boxes * boxes) are overlaps, `scores` (boxes). The best score is taken; the others' are multiplied by 1 less
    their overlap with it, until none is above `threshold` or y is full. f32, each operation rounded.
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
    """x with its axes in another order."""
    return lambda v: v["x"].transpose(order)


def _broadcast(v: Values) -> Array:
    """x to every channel of y (or to all of it)."""
    return np.broadcast_to(v["x"], v.shapes["y"])


cw_transposed = _transposed(0, 3, 2, 1)
bits, counted = rules.alike("x", "y"), rules.of("count", U32, I32)
filled = (rules.alike("x", "y", "fill"), rules.of("index", U32, U16, U8))
kept = (rules.of("y", I32), counted)
define(DMA, "dma_copy", "x", lambda v: v["x"].reshape(v.shapes["y"]), bits)  # both in NCHW order
define(DMA, "dma_broadcast", "x", _broadcast, bits)
define(DMA, "dma_nc_trans", "x", _transposed(1, 0, 2, 3), bits)
define(DMA, "dma_cw_trans", "x", cw_transposed, bits)
define(DMA, "dma_matrix_trans", "x", _transposed(1, 0), bits)
define(DMA, "dma_reverse", "x", lambda v: np.flip(v["x"], v.attribute("axis")), bits)
define(DMA, "dma_h_gather", "x index fill", gather_rows, *filled, touches=taken_from("x", gather_rows))
define(DMA, "dma_h_scatter", "x index y_before", scatter_rows, bits, by_data=True, touches=scattered_rows)
define(DMA, "dma_mask_select", "x mask", mask_select, bits, outputs="y count", by_data=True, touches=selected)
define(DMA, "dma_nonzero", "x", nonzero, rules.of("y", U32), outputs="y count", by_data=True, touches=first_ones)
define(TIU, "cw_trans", "x", cw_transposed, bits)
define(TIU, "wc_trans", "x", cw_transposed, bits)
define(TIU, "npu_bcast", "x", _broadcast, bits)
define(TIU, "static_bcast", "x", _broadcast, bits)
looks = (rules.alike("table", "y", "fill"), rules.of("x", U8, U16))
define(TIU, "table_lookup", "x table fill", table_lookup, *looks, touches=taken_from("table", table_lookup))
define(TIU, "pe_gather", "x index fill", gather_elements, *filled, touches=taken_from("x", gather_elements))
define(TIU, "w_gather", "x index fill", gather_columns, *filled, touches=taken_from("x", gather_columns))
define(HAU, "hau_sort", "x numbers", sort, rules.of("x", F32, I32, U32), bits, outputs="y index")
chosen: dict[str, Any] = {"outputs": "y count", "by_data": True, "touches": first_ones}
define(HAU, "hau_hard_nms", "x", hard_nms, rules.of("x", U8), *kept, **chosen)
boxes = (rules.of("x", F32), rules.of("scores", F32), *kept)
define(HAU, "hau_soft_nms", "x scores", soft_nms, *boxes, **chosen)
