"""The page of a run: one HTML file that shows its layers, its timeline and why its cycles are what they are.

The file opens from disk and reads nothing else. The header and the table are plain HTML; scripts in js/ draw the rest
from the run's data, which stand in the file as JSON (RUN) and as packed arrays.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.files import replacing
from tilewright.report.page.static import body, palette
from tilewright.report.record import COLUMNS, Record
from tilewright.report.summary import LISTED

#: The scripts in the order in which they run, as one.
SCRIPTS = (
    *("core", "pen", "view", "tracks", "timeline", "detail", "chart", "strip", "flame", "table", "roofline"),
    *("network", "main"),
)
_HERE = Path(__file__).parent
#: A browser's rules for a page: no address may be loaded, whatever the data say.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
#: The typed arrays of JavaScript in which a row may stand, and the largest absolute value in each.
WIDTHS = ((np.int8, "Int8Array", 1 << 7), (np.int16, "Int16Array", 1 << 15), (np.int32, "Int32Array", 1 << 31))


def write(record: Record, path: str | Path) -> None:
    """Write the page of a run, whole or not at all."""
    save(page(record), path)


def save(page: str, path: str | Path) -> None:
    """Write a page, whole or not at all."""
    with replacing(path) as file:
        file.write(page.encode(errors="replace"))


def page(record: Record) -> str:
    """Return the page of a run as an HTML document."""
    manifest, blob = packed(record.arrays)
    colours = palette(record)
    data = {"run": record.run, "palette": colours, "columns": COLUMNS, "listed": LISTED, "arrays": manifest}
    script = "\n".join((_HERE / "js" / f"{name}.js").read_text("utf-8") for name in SCRIPTS)
    arrays = f'\n<script type="text/plain" id="arrays">{blob}</script>'
    return document(str(record.run["title"]), body(record, colours) + "\n" + scripts(data, script, arrays))


def document(title: str, body: str, style: str = "") -> str:
    """Return an HTML document in the style of all pages, with more `style` of its own."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(title)}</title>
<style>
{(_HERE / "page.css").read_text("utf-8")}{style}</style></head>
<body>
{body}
</body></html>
"""


def scripts(data: object, script: str, more: str = "") -> str:
    """Return the elements with the data of a page, which cannot end their element, and with its script."""
    text = json.dumps(data, separators=(",", ":"))
    inert = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return f"""<script type="application/json" id="data">{inert}</script>{more}
<script>
{{
{script}
}}
</script>"""


def packed(arrays: Mapping[str, Array]) -> tuple[list[dict[str, Any]], str]:
    """Return a manifest of the rows of int64 or float64 arrays [rows, n], and all rows as text.

    A row in the manifest has its array's `key`, its index `row` in it, its typed array `type`, its `length`, and
    `delta`: whether the values are differences from the value before. Wide values come first, so that each row is
    aligned.
    """
    rows: list[tuple[int, dict[str, Any], bytes]] = []
    for key in sorted(arrays):
        for index, row in enumerate(arrays[key]):
            plain = _fitted(row)
            steps = _fitted(np.diff(row, prepend=0))
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
