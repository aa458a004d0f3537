"""Commands that take saved runs: report."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright.cli import options


@click.command()
@click.argument("path", metavar="RUN.twr")
@options.new_file("-o", "--output", required=True, metavar="FILE.html", about="The page to write.")
def report(path: str, output: Path) -> None:
    """Write a saved run as a page, one HTML file that opens without network."""
    from tilewright.report import page, record

    page.write(record.load(path), output)
    click.echo(f"{output}: the page of {path}")


COMMANDS: tuple[click.Command, ...] = (report,)
