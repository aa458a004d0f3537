"""Arrays as text: the rows of each array as one compressed block, in base64."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.array import Array

#: The typed arrays of JavaScript in which a row may stand, and the largest absolute value in each.
WIDTHS = ((np.int8, "Int8Array", 1 << 7), (np.int16, "Int16Array", 1 << 15), (np.int32, "Int32Array", 1 << 31))


def packed(arrays: Mapping[str, Array]) -> tuple[list[dict[str, Any]], str]:
    """Return a manifest of the rows of int64 or float64 arrays [rows, n], and all rows as text.

    A row in the manifest has its array's `key`, its index `row` in it, its typed array `type`, its `length`, and
    `delta`: whether the values are differences from the value before. Wide values come first, so that each row is
    aligned.
    """
    rows: list[tuple[int, dict[str, Any], bytes]] = []
    for key in sorted(arrays):
        for index, row in enumerate(arrays[key]):
            plain, steps = _fitted(row), _fitted(np.diff(row, prepend=0))
            (width, kind, content), delta = min((plain, False), (steps, True), key=lambda item: item[0][0])
            rows.append((width, {"key": key, "row": index, "type": kind, "length": len(row), "delta": delta}, content))
    rows.sort(key=lambda row: -row[0])
    blob = zlib.compress(b"".join(content for _, _, content in rows), 9)
    return [about for _, about, _ in rows], base64.b64encode(blob).decode("ascii")


def _fitted(row: Array) -> tuple[int, str, bytes]:
    """Return the narrowest form of a row: bytes of a value, name of the typed array, content."""
    if row.dtype == np.float64:
        return 4, "Float32Array", row.astype("<f4").tobytes()
    largest = int(max(row.max(initial=0), -row.min(initial=0) - 1))
    for dtype, kind, limit in WIDTHS:
        if largest < limit:
            return np.dtype(dtype).itemsize, kind, row.astype(np.dtype(dtype).newbyteorder("<")).tobytes()
    return 8, "Float64Array", row.astype("<f8").tobytes()
