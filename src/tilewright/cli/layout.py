"""Commands about tensors in a machine's memory: layout."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tilewright.cli import options
from tilewright.errors import InputError


def _numbers(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    """Integers with commas between them."""
    try:
        return None if text is None else tuple(int(part, 0) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"'{text}' is not integers with commas between them", ctx, param) from None


@click.command()
@click.argument("kind", metavar="LAYOUT")
@click.argument("shape", callback=_numbers)
@click.argument("dtype", metavar="TYPE")
@options.target
@click.option("--start-lane", "start", type=int, default=0, metavar="LANE", help="Where channel 0 lies [0].")
@click.option("--offset", type=int, default=0, metavar="BYTES", help="Where it begins in its lane [0].")
@click.option("--stride", callback=_numbers, metavar="N,C,H,W", help="Of the layout free: elements.")
@click.option("--width", type=int, metavar="COLUMNS", help="Of a matrix or vector: columns a channel [all].")
@options.new_file("--svg", metavar="FILE.svg", about="Draw a picture.")
@options.as_json
def layout(
    kind: str,
    shape: tuple[int, ...],
    dtype: str,
    target: str,
    config: str | None,
    overrides: dict[str, str],
    start: int,
    offset: int,
    stride: tuple[int, ...] | None,
    width: int | None,
    svg: Path | None,
    as_json: bool,
) -> None:
    """Show where each element of a tensor lies in local memory.

    SHAPE is as N,C,H,W. Example: tilewright layout aligned 2,3,4,5 f16 -t bm1684x --set lanes=4 --start-lane 2
    """
    from tilewright import targets
    from tilewright.files import replacing
    from tilewright.targets.abilities import LayoutRequest, Layouts

    machine = targets.get(target)
    if not isinstance(machine, Layouts):
        raise InputError("layout", f"{target} has no layouts to draw")
    wanted = LayoutRequest(kind, shape, dtype, start, offset, stride, width)
    placed = machine.layout(wanted, machine.config(config, overrides))
    if svg:
        picture = placed.svg()
        with replacing(svg) as file:
            file.write(picture.encode())
    if as_json:
        click.echo(json.dumps({"target": target, **placed.to_json(), "file": str(svg) if svg else None}))
    else:
        click.echo(placed.text(), nl=False)


COMMANDS: tuple[click.Command, ...] = (layout,)
