"""Write the PS driver of a network for the Zynq engine: C files, and what DDR holds before the first layer.

    python examples/zynq_driver.py examples/digits_vgg/digits_vgg.tflite -o driver [-c PRESET] [--set KEY=VALUE]
    cc -std=c99 -Wall -c driver/zynq_driver.c

docs/zynq.md says how a board calls it; tests/targets/zynq/test_driver.py runs it against a model of the engine.
"""

from __future__ import annotations

from pathlib import Path

import click

import tilewright as tw
from tilewright.cli import options
from tilewright.errors import TilewrightError
from tilewright.targets.zynq.runtime import driver


@click.command(help="Write the PS driver of a network. This file's first lines say how it is built.")
@click.argument("model")
@click.option("-o", "--output", required=True, type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER")
@options.machine
@options.rounding
def main(model: str, output: Path, config: str | None, overrides: dict[str, str], rounding: str | None) -> None:
    try:
        program = tw.compile(model, "zynq", config, overrides, rounding)
        driver.write(program, output)
    except TilewrightError as error:
        raise click.ClickException(str(error)) from None
    for step in program.outline()["steps"]:
        click.echo(f"{step['name']}: {step['where']}{', ' + step['reason'] if 'reason' in step else ''}")
    for path in sorted(output.iterdir()):
        click.echo(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
