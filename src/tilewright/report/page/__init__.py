"""The page of a run: one HTML file that shows the layers, the timeline and the causes of the cycles.

The page works from disk without any other file. The header and the table are plain HTML. Scripts in js/ draw the rest
from the run's data, which the file contains as JSON (RUN) and as packed arrays.
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

#: The scripts, which are joined to one script in this order.
SCRIPTS = (
    *("core", "pen", "view", "tracks", "timeline", "detail", "chart", "strip", "flame", "table", "roofline"),
    *("network", "main"),
)
_HERE = Path(__file__).parent
#: The Content-Security-Policy of a page: the browser must not load any address, whatever the data contain.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
#: The typed arrays of JavaScript that may store a row, and the largest absolute value in each type.
WIDTHS = ((np.int8, "Int8Array", 1 << 7), (np.int16, "Int16Array", 1 << 15), (np.int32, "Int32Array", 1 << 31))


def write(record: Record, path: str | Path) -> None:
    """Write the page of a run completely, or not at all."""
    save(page(record), path)


def save(page: str, path: str | Path) -> None:
    """Write a page completely, or not at all."""
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
    """Return an HTML document in the style of all pages. `style` has further CSS rules for this page."""
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
    """Return the HTML elements with the data and the script of a page. Escaped data cannot end an element."""
    text = json.dumps(data, separators=(",", ":"))
    inert = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return f"""<script type="application/json" id="data">{inert}</script>{more}
<script>
{{
{script}
}}
</script>"""


def packed(arrays: Mapping[str, Array]) -> tuple[list[dict[str, Any]], str]:
    """Return a manifest of the rows of int64 or float64 arrays [rows, n], and the data of all rows as text.

    The manifest has the following for each row: the array's `key`, the row's index `row`, the typed array `type`, the
    `length`, and `delta` (true if the values are differences from the previous value). Rows of wide values come first,
    so that each row is aligned.
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
    """Return the narrowest form of a row: the bytes per value, the name of the typed array, and the content."""
    if row.dtype == np.float64:
        return 4, "Float32Array", row.astype("<f4").tobytes()
    largest = int(max(row.max(initial=0), -row.min(initial=0) - 1))
    for dtype, kind, limit in WIDTHS:
        if largest < limit:
            return np.dtype(dtype).itemsize, kind, row.astype(np.dtype(dtype).newbyteorder("<")).tobytes()
    return 8, "Float64Array", row.astype("<f8").tobytes()
