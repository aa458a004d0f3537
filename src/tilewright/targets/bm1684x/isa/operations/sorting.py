"""Sorting, gathers of lines and suppression of boxes on the sorting engine, whose command formats are not known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.isa import rules
from tilewright.targets.bm1684x.isa.operation import HAU, Values, define
from tilewright.targets.bm1684x.isa.operations.gathers import masks, read_from, taken
from tilewright.targets.bm1684x.isa.operations.transfers import first_ones
from tilewright.targets.bm1684x.values.dtypes import F32, I32, U8, U32
from tilewright.targets.bm1684x.values.floats import widen


def sort(v: Values) -> dict[str, Array]:
    """Return y, the first K elements of x in stable sorted order, and index: their `numbers`, else their positions."""
    key = widen(v["x"], F32) if v.types["x"] is F32 else v["x"].astype(np.int64)
    order = np.argsort(-key if v.attribute("descending") else key, kind="stable")[: v.shapes["y"][0]]
    return {"y": v["x"][order], "index": v["numbers"][order] if "numbers" in v.data else order.astype(np.int32)}


def _lines(v: Values) -> tuple[Array, Array]:
    """Return the position in x of each element of y, and a mask of those whose index is out of range.

    All operands are flat. A line has as many elements as y has for each index. Line i of y is line `index[i] - base` of
    x. Raises ValueError if x and y are not whole lines.
    """
    line, size = v["index"].astype(np.int64) - v.attribute("base"), v.shapes["y"][0] // len(v["index"])
    if not size or v["x"].size % size or size * len(line) != v.shapes["y"][0]:
        raise ValueError(f"x has {v['x'].size} elements and y {v.shapes['y'][0]}, for {len(line)} indices")
    beyond = (line < 0) | (line >= v["x"].size // size)
    at = np.where(beyond, 0, line)[:, None] * size + np.arange(size)
    return at.reshape(-1), np.repeat(beyond, size)


def gather_lines(v: Values) -> Array:
    """Return the lines of x at the indices. Where an index is out of range, it is `other` or `kept`."""
    return taken(v, v["x"], *_lines(v))


def gathered_lines(v: Values, found: Mapping[str, Array]) -> dict[str, Array]:
    """Return masks of the elements of x that gather_lines reads and of the elements of y that it writes."""
    at, beyond = _lines(v)
    return masks(v, read_from(v["x"], at, beyond), beyond)


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


sorted_types = (rules.of("x", F32, I32, U32), rules.alike("x", "y"))
define(HAU, "hau_sort", "x numbers", sort, *sorted_types, outputs="y index", deciding=("x",))
lines = (rules.alike("x", "y", "other", "kept"), rules.of("index", I32))
gathers: Mapping[str, Any] = {"by_data": True, "deciding": ("index",), "touches": gathered_lines}
define(HAU, "hau_line_gather", "x index other kept", gather_lines, *lines, **gathers)
kept = (rules.of("y", I32), rules.of("count", U32, I32))
selects: Mapping[str, Any] = {"outputs": "y count", "by_data": True, "touches": first_ones}
define(HAU, "hau_hard_nms", "x", hard_nms, rules.of("x", U8), *kept, deciding=("x",), **selects)
boxes = (rules.of("x", F32), rules.of("scores", F32), *kept)
define(HAU, "hau_soft_nms", "x scores", soft_nms, *boxes, deciding=("x", "scores"), **selects)
