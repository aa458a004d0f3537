"""The commands that only this target has: layout, firmware."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import click

from tilewright.cli import inputs, options
from tilewright.cli.options import compiler_flags, flags_of, say
from tilewright.errors import InputError
from tilewright.files import replacing
from tilewright.targets.bm1684x import TARGET
from tilewright.targets.bm1684x.layouts.placement import LayoutRequest, place
from tilewright.targets.bm1684x.native.build import firmware as compiled

_integers = inputs.numbers(lambda text: int(text, 0), "a list of integers separated by commas")


@click.command()
@click.argument("kind", metavar="LAYOUT")
@click.argument("shape", callback=_integers)
@click.argument("dtype", metavar="TYPE")
@options.target
@click.option("--start-lane", "start", type=int, default=0, metavar="LANE", help="Lane of channel 0 [0].")
@click.option("--offset", type=int, default=0, metavar="BYTES", help="Start of the tensor in its lane [0].")
@click.option("--stride", callback=_integers, metavar="N,C,H,W", help="For the layout free: strides in elements.")
@click.option("--width", type=int, metavar="COLUMNS", help="For a matrix or vector: columns per channel [all].")
@click.option("--order", metavar="AXES", help="The axes of SHAPE, such as ic,oc,kh,kw for weights [oc,ic,kh,kw].")
@options.new_file("--svg", metavar="FILE.svg", about="Draw a picture.", suffixes=(".svg",))
@options.as_json
def layout(
    target: str,
    config: str | None,
    overrides: dict[str, str],
    order: str | None,
    svg: Path | None,
    as_json: bool,
    **tensor: Any,
) -> None:
    """Show where each element of a tensor lies in memory.

    SHAPE is N,C,H,W, or OC,IC,KH,KW for the weights of a convolution.

    Example: tilewright layout aligned 2,3,4,5 f16 -t bm1684x --set lanes=4 --start-lane 2

    \f
    Raises InputError for another target.
    """
    if target != TARGET.name:
        raise InputError("layout", f"{target} has no layouts to draw", "choose another target, such as bm1684x")
    axes = order.lower().split(",") if order else ()
    placed = place(LayoutRequest(**tensor, order=axes), TARGET.config(config, overrides))
    if svg:
        picture = placed.svg()
        with replacing(svg) as file:
            file.write(picture.encode())
    fields = {"target": target, **placed.to_json(), "file": str(svg) if svg else None}
    options.answer(as_json, fields, placed.text().removesuffix("\n"))


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="KERNEL.c...", type=click.Path(path_type=Path))
@options.new_file("-o", "--output", metavar="FILE.bin", required=True, about="The firmware to write.")
@options.of_target("The machine.", default=TARGET.name, show_default=True)
@compiler_flags
@options.as_json
def firmware(
    sources: tuple[Path, ...],
    output: Path,
    target: str,
    include: tuple[str, ...],
    define: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compile kernels in C to a firmware for the model of the machine.

    The compiler is $CC, else cc, gcc, clang, or the package ziglang. Hosts load the firmware and launch its functions.
    It is code of this computer's processor (such as x86_64), not of the chip: the chip cannot load it. As native code,
    it has your rights: load only firmware that you trust.

    \f
    Raises InputError for another target, or if a source does not compile.
    """
    if target != TARGET.name:
        raise InputError(target, "takes no kernels in C", "choose another target, such as bm1684x")
    warnings = compiled(sources, output, flags_of(include, define))
    if warnings:
        say(warnings, err=True)
    code = platform.machine()
    fields = {"target": TARGET.name, "file": str(output), "code": code, "sources": [str(source) for source in sources]}
    message = f"{output}: firmware of {TARGET.name}: {code} code for the model on this computer, not for the chip"
    options.answer(as_json, {**fields, "warnings": warnings}, message)


COMMANDS: tuple[click.Command, ...] = (layout, firmware)
