"""The command quantize: a float ONNX model to int8."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilewright.cli import options

if TYPE_CHECKING:
    from tilewright.quantize.samples import Pixels


def _numbers(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[float, ...] | None:
    try:
        return tuple(float(word) for word in text.split(",")) if text else None
    except ValueError:
        raise click.BadParameter(f"'{text}' is not a number, or one a channel with commas", ctx, param) from None


@click.command()
@click.argument("model")
@click.option("--calibration", required=True, metavar="DATA", help="Samples: .npz, .npy, .png, or a folder of them.")
@options.new_file("-o", "--output", metavar="OUT.onnx", about="The model to write [MODEL_SCHEME.onnx, here].")
@click.option(
    "--scheme",
    type=click.Choice(["affine", "pow2"]),
    default="affine",
    show_default=True,
    help="Any scales and zero points, or powers of two and shifts only.",
)
@click.option(
    "--activations", type=click.Choice(["int8", "uint8"]), default="int8", show_default=True, help="affine only."
)
@click.option(
    "--method",
    type=click.Choice(["minmax", "entropy", "percentile"]),
    default="minmax",
    show_default=True,
    help="How ranges of activations are found; affine only.",
)
@click.option("--evaluation", metavar="DATA", help="What to measure on [the calibration samples].")
@click.option("--labels", metavar="FILE", help="True classes of those: .npy, or one number a line.")
@click.option("--mean", callback=_numbers, metavar="X[,Y,Z]", help="For images: (pixel - mean) / std.")
@click.option("--std", callback=_numbers, metavar="X[,Y,Z]", help="For images.")
@click.option("--bgr", is_flag=True, help="For images: the model takes blue, green, red.")
@click.option(
    "--verify/--no-verify",
    default=True,
    show_default=True,
    help="Compare what `run` makes of the file with onnxruntime.",
)
@options.as_json
def quantize(
    model: str,
    calibration: str,
    output: Path | None,
    scheme: str,
    activations: str,
    method: str,
    evaluation: str | None,
    labels: str | None,
    mean: tuple[float, ...] | None,
    std: tuple[float, ...] | None,
    bgr: bool,
    verify: bool,
    as_json: bool,
) -> int:
    """Quantise a float ONNX model to int8.

    Writes a QDQ model and reports how far each tensor is from the float model's. See docs/quantize.md. The exit status
    is 1 where the written file, as `run` reads it, differs from what onnxruntime makes of it.
    """
    from tilewright.quantize import Options, require
    from tilewright.quantize import quantize as run
    from tilewright.report import text

    require()
    from tilewright.quantize import report

    settings = Options(scheme, method, activations, _pixels(mean, std, bgr))
    output = output or Path(f"{Path(model).stem}_{scheme}.onnx")
    with text.progress_bar() as progress:
        made = run(model, calibration, output, settings, evaluation, labels, progress, verify)
    if as_json:
        click.echo(json.dumps(made.to_json()))
    else:
        report.show(made)
    return 1 if made.verification and made.verification.differences else 0


def _pixels(mean: tuple[float, ...] | None, std: tuple[float, ...] | None, bgr: bool) -> Pixels | None:
    if mean is None and std is None and not bgr:
        return None
    from tilewright.quantize.samples import Pixels

    return Pixels(mean or (0.0,), std or (1.0,), bgr)


COMMANDS: tuple[click.Command, ...] = (quantize,)
