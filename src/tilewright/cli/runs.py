"""Commands that take saved runs: report, compare."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright.cli import options
from tilewright.cli.terminal import say


@click.command()
@click.argument("path", metavar="RUN.twr")
@options.new_file(
    "-o", "--output", required=True, metavar="FILE.html", about="The page to write.", suffixes=options.HTML
)
def report(path: str, output: Path) -> None:
    """Write a saved run as a page, one HTML file that opens without network."""
    from tilewright.report import page, record

    page.write(record.load(path), output)
    say(f"{output}: the page of {path}")


@click.command()
@click.argument("before", metavar="A.twr")
@click.argument("after", metavar="B.twr")
@options.new_file(
    "--html", metavar="FILE", about="Write the differences as a page, one HTML file.", suffixes=options.HTML
)
@options.as_json
def compare(before: str, after: str, html: Path | None, as_json: bool) -> None:
    """Show what takes more or fewer cycles in run B than in run A, by layer and by cause.

    The runs may be on different machines. Layers are matched by name.
    """
    from tilewright.report import compare as differences
    from tilewright.report import record
    from tilewright.report.page import difference

    runs = record.load(before), record.load(after)
    found = differences.compare(*(run.run["summary"] for run in runs))
    if html:
        difference.write(*runs, html)
    options.answer(as_json, found.to_json(), found.text)


COMMANDS: tuple[click.Command, ...] = (report, compare)
