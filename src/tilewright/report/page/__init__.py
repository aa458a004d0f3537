"""The page of a run: one HTML file that shows its layers, its timeline and why its cycles are what they are.

The file opens from disk and reads nothing else. The header and the table are plain HTML; scripts in js/ draw the rest
from the run's data, which stand in the file as JSON (RUN) and as packed arrays.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

from tilewright.files import replacing
from tilewright.report.page.colours import palette
from tilewright.report.page.pack import packed
from tilewright.report.page.static import body
from tilewright.report.record import COLUMNS, Record
from tilewright.report.summary import LISTED

#: The scripts in the order in which they run, as one.
SCRIPTS = (
    "core",
    "pen",
    "view",
    "tracks",
    "timeline",
    "detail",
    "chart",
    "strip",
    "flame",
    "table",
    "roofline",
    "network",
    "main",
)
_HERE = Path(__file__).parent
STYLE = _HERE / "page.css"
#: A browser's rules for a page: no address may be loaded, whatever the data say.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"


def write(record: Record, path: str | Path) -> None:
    """Write the page of a run, whole or not at all."""
    with replacing(path) as file:
        file.write(page(record).encode(errors="replace"))


def page(record: Record) -> str:
    """Return the page of a run as an HTML document."""
    manifest, blob = packed(record.arrays)
    colours = palette(record)
    data = {"run": record.run, "palette": colours, "columns": COLUMNS, "listed": LISTED, "arrays": manifest}
    style = STYLE.read_text("utf-8")
    script = "\n".join((_HERE / "js" / f"{name}.js").read_text("utf-8") for name in SCRIPTS)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(str(record.run["title"]))}</title>
<style>
{style}</style></head>
<body>
{body(record, colours)}
<script type="application/json" id="data">{inert(json.dumps(data, separators=(",", ":")))}</script>
<script type="text/plain" id="arrays">{blob}</script>
<script>
{{
{script}
}}
</script>
</body></html>
"""


def inert(text: str) -> str:
    """Return JSON that cannot end the script element in which it stands."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
