"""Command-line options that say what a network's inputs are."""

from __future__ import annotations

import click


def _shapes(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """Read NAME=1,3,224,224 texts. Raises BadParameter for another text, or for a name that is given twice."""
    found: dict[str, tuple[int, ...]] = {}
    for value in values:
        name, mark, text = value.rpartition("=")
        try:
            shape = tuple(int(extent) for extent in text.replace("x", ",").split(",")) if text else ()
        except ValueError:
            raise click.BadParameter(f"'{value}' is not NAME=1,3,224,224", ctx, param) from None
        if not mark or not name:
            raise click.BadParameter(f"'{value}' is not NAME=1,3,224,224", ctx, param)
        if found.setdefault(name, shape) != shape:
            raise click.BadParameter(f"{name} is given twice", ctx, param)
    return found


shapes = click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=1,3,224,224",
    callback=_shapes,
    help="The shape of an ONNX input whose extents the file leaves open [an open batch axis: 1].",
)
