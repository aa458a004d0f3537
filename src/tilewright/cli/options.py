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


class NewFile(click.ParamType[Path]):
    """A file to write: its folder must exist, so that a long run is not lost at its end."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        if path.is_dir():
            self.fail(f"{path} is a folder", param, ctx)
        if not path.resolve().parent.is_dir():
            self.fail(f"the folder {path.parent} does not exist", param, ctx)
        return path


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
    "--rounding", default="tflm", show_default=True, metavar="MODE", help="Whose requantisation: tflm, litert, xnnpack."
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
simulation = _all(
    click.option(
        "-i", "--input", "source", metavar="FILE", help="Samples: .npz, .npy, .bin or an image [random codes]."
    ),
    click.option("-o", "--output", type=NewFile(), metavar="OUT.npz", help="Write the output values."),
    click.option("--timing", metavar="MODEL", help="The timing model [the target's first]."),
    click.option("--html", type=NewFile(), metavar="FILE", help="Write the report as one HTML file."),
    click.option(
        "--trace", type=NewFile(), metavar="FILE", help="Write a timeline for ui.perfetto.dev (.json: Chrome's)."
    ),
    as_json,
    click.option("--check/--no-check", default=True, show_default=True, help="Look for races and other hazards."),
)
