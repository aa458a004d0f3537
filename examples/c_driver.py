"""Write a network's host driver in C, for VTA or the Zynq engine: C files, and the initial contents of DRAM.

    python examples/c_driver.py examples/digits/digits.tflite -t vta -o driver [-c PRESET] [--set KEY=VALUE]
    cc -std=c99 -Wall -c driver/vta_driver.c

docs/gateware.md and docs/zynq.md say how a board calls it. tests/targets/*/gateware/test_driver_on_rtl.py compile such
drivers and run them on the compiled gateware.
"""

from __future__ import annotations

from pathlib import Path

import click

import tilewright as tw
from tilewright.cli import options
from tilewright.errors import TilewrightError
from tilewright.targets.vta.runtime import driver as vta
from tilewright.targets.zynq.runtime import driver as zynq

DRIVERS = {"vta": vta.write, "zynq": zynq.write}


@click.command(help="Write the C driver of a network. This file's first lines say how it is built.")
@click.argument("model")
@click.option("-t", "--target", required=True, type=click.Choice(list(DRIVERS)))
@click.option("-o", "--output", required=True, type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER")
@options.machine
@options.rounding
def main(
    model: str, target: str, output: Path, config: str | None, overrides: dict[str, str], rounding: str | None
) -> None:
    try:
        program = tw.compile(model, target, config, overrides, rounding)
        DRIVERS[target](program, output)
    except TilewrightError as error:
        raise click.ClickException(str(error)) from None
    for step in program.outline()["steps"]:
        click.echo(f"{step['name']}: {step['where']}{', ' + step['reason'] if 'reason' in step else ''}")
    for path in sorted(output.iterdir()):
        click.echo(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
