"""Sorting, gathers of lines and suppression of boxes on the sorting engine, whose command formats are not known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.isa import rules
from tilewright.targets.bm1684x.isa.operation import HAU, Values, define
from tilewright.targets.bm1684x.isa.operations.transfers import first_ones
from tilewright.targets.bm1684x.values.dtypes import F32, I32, U8, U32
from tilewright.targets.bm1684x.values.floats import widen


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
