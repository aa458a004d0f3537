"""The page of a run: one HTML file with the layers, the timeline and the causes of the cycles.

The page works from disk without any other file. The header and the table are plain HTML. Scripts from js/ draw the
rest. The file contains the data of the run for the scripts, as JSON and as packed arrays.
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

#: The scripts. They are joined to one script in this order.
SCRIPTS = (
    *("core", "pen", "view", "tracks", "timeline", "detail", "chart", "strip", "flame", "table", "roofline"),
    *("network", "main"),
)
_HERE = Path(__file__).parent
#: The Content-Security-Policy of a page: the browser must not load any address, whatever the data contain.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
#: The typed arrays of JavaScript that may store a row, with the limit of the values in each.
WIDTHS = ((np.int8, "Int8Array", 1 << 7), (np.int16, "Int16Array", 1 << 15), (np.int32, "Int32Array", 1 << 31))


def write(record: Record, path: str | Path) -> None:
    """Write the page of a run to a file. The file gets the complete page, or does not change."""
    save(page(record), path)


def save(page: str, path: str | Path) -> None:
    with replacing(path) as file:
        file.write(page.encode(errors="replace"))


def page(record: Record) -> str:
    manifest, blob = packed(record.arrays)
    colours = palette(record)
    data = {"run": record.run, "palette": colours, "columns": COLUMNS, "listed": LISTED, "arrays": manifest}
    script = "\n".join((_HERE / "js" / f"{name}.js").read_text("utf-8") for name in SCRIPTS)
    arrays = f'\n<script type="text/plain" id="arrays">{blob}</script>'
    return document(str(record.run["title"]), body(record, colours) + "\n" + scripts(data, script, arrays))


def document(title: str, body: str, style: str = "") -> str:
    """Return an HTML document in the style of all pages. `style` adds CSS rules for this page."""
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
    """Return the HTML elements with the data and the script of a page."""
    text = json.dumps(data, separators=(",", ":"))
    # Without this, a "</script>" in the data would end the element.
    inert = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return f"""<script type="application/json" id="data">{inert}</script>{more}
<script>
{{
{script}
}}
</script>"""


def packed(arrays: Mapping[str, Array]) -> tuple[list[dict[str, Any]], str]:
    """Return a manifest of the rows of int64 or float64 arrays [rows, n], and the data of all rows as text.

    For each row, the manifest has the `key` of the array, the index `row`, the typed array `type`, the `length`, and
    `delta` (true if each value is stored as the difference from the previous value). Rows of wide values come first, so
    that each row is aligned.
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
    if row.dtype == np.float64:  # a curve needs no more precision than a float32 has
        return 4, "Float32Array", row.astype("<f4").tobytes()
    largest = int(max(row.max(initial=0), -row.min(initial=0) - 1))
    for dtype, kind, limit in WIDTHS:
        if largest < limit:
            return np.dtype(dtype).itemsize, kind, row.astype(np.dtype(dtype).newbyteorder("<")).tobytes()
    return 8, "Float64Array", row.astype("<f8").tobytes()
