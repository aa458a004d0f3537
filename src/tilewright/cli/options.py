"""The options that several commands share; each decorator adds a group of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Reports:
    """Where the results of a run go."""

    output: Path | None
    html: Path | None
    trace: Path | None
    as_json: bool


def _writable(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """Refuse now what could not be written after a long run."""
    if path is not None and not path.resolve().parent.is_dir():
        raise click.BadParameter(f"the folder {path.parent} does not exist", ctx, param)
    return path


def new_file(*names: str, metavar: str, about: str, required: bool = False) -> Callable[[Command], Command]:
    """An option that names a file to write."""
    kind = click.Path(dir_okay=False, path_type=Path)
    return click.option(*names, type=kind, callback=_writable, metavar=metavar, help=about, required=required)


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for value in values:
        key, mark, text = value.partition("=")
        if not mark or not key:
            raise click.BadParameter(f"'{value}' is not key=value", ctx, param)
        pairs[key] = text
    return pairs


def _all(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    return lambda command: reduce(lambda made, decorate: decorate(made), reversed(decorators), command)


machine = _all(
    click.option("-c", "--config", metavar="PRESET|FILE.json", help="The machine's configuration [the first preset]."),
    click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", callback=_pairs, help="Change one number."),
)
target = _all(
    click.option("-t", "--target", required=True, metavar="TARGET", help="See `tilewright targets`."), machine
)
rounding = click.option(
    "--rounding",
    metavar="MODE",
    help="Whose requantisation: tflm, litert, xnnpack, ort [.onnx: ort, else tflm].",
)
no_cache = click.option(
    "--no-cache",
    is_flag=True,
    envvar="TILEWRIGHT_NO_CACHE",
    help="Compile anew; keep nothing in the user's cache folder ($TILEWRIGHT_CACHE_DIR, else ~/.cache/tilewright).",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
timing = click.option("--timing", metavar="MODEL", help="The timing model [the target's first].")
simulation = _all(
    click.option(
        "-i", "--input", "source", metavar="FILE", help="Samples: .npz, .npy, .bin or an image [random codes]."
    ),
    new_file("-o", "--output", metavar="OUT.npz", about="Write the output values."),
    timing,
    new_file("--html", metavar="FILE", about="Write the report as one HTML file."),
    new_file("--trace", metavar="FILE", about="Write a timeline for ui.perfetto.dev (.json: Chrome's)."),
    as_json,
    click.option("--check/--no-check", default=True, show_default=True, help="Look for races and other hazards."),
)
