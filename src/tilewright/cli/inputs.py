"""Command-line options that define a network's inputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilewright.errors import InputError

if TYPE_CHECKING:
    from tilewright.graph.ir import Pixels
    from tilewright.model.inputs import Samples
    from tilewright.program.program import Program


def _shapes(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """Read texts such as NAME=1,3,224,224. Raises BadParameter for other texts and for repeated names."""
    shapes: dict[str, tuple[int, ...]] = {}
    for value in values:
        name, mark, text = value.rpartition("=")
        try:
            shape = tuple(int(extent) for extent in text.replace("x", ",").split(",")) if text else ()
        except ValueError:
            raise click.BadParameter(f"'{value}' is not NAME=1,3,224,224", ctx, param) from None
        if not mark or not name:
            raise click.BadParameter(f"'{value}' is not NAME=1,3,224,224", ctx, param)
        if shapes.setdefault(name, shape) != shape:
            raise click.BadParameter(f"{name} is given twice", ctx, param)
    return shapes


shapes = click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=1,3,224,224",
    callback=_shapes,
    help="The shape of an ONNX input whose extents the file leaves open [an open batch axis: 1].",
)


until = click.option(
    "--until",
    multiple=True,
    metavar="NAME",
    help="A value of an ONNX file that is an output in place of the file's own; what it does not need is not read.",
)


def numbers(
    kind: Callable[[str], float], what: str
) -> Callable[[click.Context, click.Parameter, str | None], tuple[float, ...] | None]:
    """Return a click callback that reads comma-separated numbers of type `kind`. `what` names them in errors."""

    def read(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[float, ...] | None:
        try:
            return None if text is None else tuple(map(kind, text.split(",")))
        except ValueError:
            raise click.BadParameter(f"'{text}' is not {what}", ctx, param) from None

    return read


_reals = numbers(float, "a number, or one number per channel separated by commas")
mean = click.option("--mean", callback=_reals, metavar="X[,Y,Z]", help="For images: (pixel - mean) / std.")
std = click.option("--std", callback=_reals, metavar="X[,Y,Z]", help="For images.")
bgr = click.option("--bgr", is_flag=True, help="For images: the model takes blue, green, red.")
labels = click.option("--labels", metavar="FILE", help="The samples' true classes: .npy, or one number per line.")


def pixels(mean: tuple[float, ...] | None, std: tuple[float, ...] | None, bgr: bool) -> Pixels | None:
    """Return the conversion of images to inputs, or None if no option is given. Raises InputError for a std of zero."""
    if mean is None and std is None and not bgr:
        return None
    from tilewright.graph.ir import Pixels

    if std and not all(std):
        raise InputError("--std", "is zero", "give the divisor of each channel")
    return Pixels(mean or (0.0,), std or (1.0,), bgr)


def samples_of(
    program: Program, source: str | None, count: int | None, labels: str | None, prepared: Pixels | None
) -> Samples | None:
    """Return at most `count` samples from `source` (None: random samples), or None for a program without a network.

    Raises InputError if samples are given for a program without a network, or if samples or labels do not fit.
    """
    if program.graph is None:
        given = {"--input": source, "--samples": count, "--labels": labels}
        if named := next((name for name, value in given.items() if value), None):
            raise InputError(named, "this program has no network", "leave it out: the program has its own data")
        return None
    from tilewright.model import inputs

    if source:
        return inputs.read(source, program.graph, prepared or program.graph.pixels, labels, count)
    if labels:
        raise InputError("--labels", "needs samples", "add -i FILE or a folder")
    return inputs.random(program.graph, count=count or 1)


def left_out(program: Program, samples: Samples | None) -> list[str]:
    """Return lines for the work that a command skips: the steps on the host, and all samples but the first."""
    hosts = len(program.steps) - len(program.launches)
    count = len(next(iter(samples.values.values()))) if samples else 1
    lines = [f"left out: {hosts} step{'s' * (hosts > 1)} on the host, which the reference computes"] * (hosts > 0)
    return lines + [f"left out: the samples 2 to {count}, as only the first is run"] * (count > 1)


def class_names(path: str | None) -> tuple[str, ...] | None:
    """Return the names of a network's classes from a file (None: no file is given)."""
    if path is None:
        return None
    from tilewright.model.inputs import names_of

    return names_of(Path(path))
