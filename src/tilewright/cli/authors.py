"""Commands for who designs a machine: header, new-target."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click

from tilewright.cli import options


@click.command()
@click.argument("target")
@options.machine
@options.new_file("-o", "--output", metavar="FILE.h", about="Where to write it [the terminal].")
@options.as_json
def header(target: str, config: str | None, overrides: dict[str, str], output: Path | None, as_json: bool) -> None:
    """Print a machine as a C header.

    Sizes, codes and bits of instructions, for gateware, drivers and runtimes.
    """
    from tilewright import targets
    from tilewright.files import replacing

    machine = targets.get(target)
    chosen = machine.config(config, overrides)
    text = machine.header(chosen)
    if output:
        with replacing(output) as file:
            file.write(text.encode())
    if as_json:
        written = {"file": str(output)} if output else {"text": text}
        click.echo(json.dumps({"target": target, "config": chosen.to_dict(), **written}))
    elif output:
        click.echo(f"{output}: {text.count('#define ')} macros of {target}")
    else:
        click.echo(text, nl=False)


@click.command(name="new-target")
@click.argument("name")
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    metavar="DIR",
    help="The folder to write it into [the current one].",
)
@options.as_json
def new_target(name: str, folder: Path, as_json: bool) -> None:
    """Write a tested target to start from.

    A machine of one multiply-accumulate a cycle, as the package tilewright_NAME.
    """
    from tilewright.template import new_target as write

    made = write(name, folder)
    files = sorted(path.name for path in made.iterdir())
    before = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    tries = [f"{before}python -m pytest {made.name}", f"{before}python -m tilewright run MODEL.tflite -t {name}"]
    if as_json:
        click.echo(json.dumps({"target": name, "folder": str(made), "files": files, "next": tries}))
        return
    click.echo(f"{made}: a target of {len(files)} files: {', '.join(files)}")
    for command in tries:
        click.echo(f"  {command}")


COMMANDS: tuple[click.Command, ...] = (header, new_target)
