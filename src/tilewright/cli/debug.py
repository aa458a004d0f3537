"""The command that walks through a program: debug."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilewright.cli import inputs, options
from tilewright.cli.programs import load
from tilewright.errors import InputError

if TYPE_CHECKING:
    from tilewright.program.program import Program


@click.command()
@click.argument("path", metavar="FILE.twp|MODEL|FOLDER")
@click.option("-t", "--target", metavar="TARGET", help="The target of MODEL or FOLDER.")
@options.machine
@options.rounding
@click.option("-i", "--input", "source", metavar="FILE", help="Samples; only the first is used [random codes].")
@click.option("--launch", metavar="N|NAME", help="Open this launch [the first].")
@click.option("--at", type=click.IntRange(0), metavar="N", help="Go to the moment before instruction N.")
@click.option("--script", metavar="FILE", help="Run the commands in a file, one a line (-: standard input).")
@click.option(
    "--order",
    type=click.Choice(["stream", "time"]),
    default="stream",
    show_default=True,
    help="Run instructions in stream order, or in the order of the cycles in which they start.",
)
@options.timing
@click.option("--echo", is_flag=True, help="Repeat each command of a script before its answer.")
@options.as_json
def debug(
    path: str,
    target: str | None,
    config: str | None,
    overrides: dict[str, str],
    rounding: str | None,
    source: str | None,
    launch: str | None,
    at: int | None,
    script: str | None,
    order: str,
    timing: str | None,
    echo: bool,
    as_json: bool,
) -> int:
    """Walk through a program instruction by instruction, forwards and back, and ask questions about it.

    Commands come from a prompt, from --script, or from a pipe; the command `help` lists them. With --json, each answer
    is a JSON object on one line.
    """
    from tilewright.debug import prompt
    from tilewright.debug.session import Session
    from tilewright.run import timing_model
    from tilewright.targets import get

    program = _program(path, target, config, overrides, rounding)
    samples = inputs.samples_of(program, source, None, None, None)
    session = Session(program, samples.values if samples else None, order, timing_model(get(program.target), timing))
    if launch is not None:
        session.launch(launch)
    if at is not None:
        session.to(at)
    if script is None and sys.stdin.isatty():
        prompt.converse(session, click.echo)
        return 0
    if not as_json:
        click.echo(session.head)
    if at is not None:
        opening = ["where", f"insn {at}"] if session.where().step != at else [f"insn {at}"]
        prompt.script(session, opening, "--at", click.echo, as_json, echo)
    name = "standard input" if script in (None, "-") else str(script)
    prompt.script(session, prompt.lines_of(script or "-"), name, click.echo, as_json, echo)
    return 0


def _program(
    path: str, target: str | None, config: str | None, overrides: dict[str, str], rounding: str | None
) -> Program:
    """Load a program file or a folder, or compile a model. Raises InputError if the target is missing."""
    if path.endswith(".twp"):
        for name, given in {"--target": target, "--config": config, "--set": overrides, "--rounding": rounding}.items():
            if given:
                raise InputError(name, "is not for program files", "compile the model again with this option")
        return load(path)
    from tilewright import compile as compile_model
    from tilewright import targets
    from tilewright.targets.base import Folders

    if target is None:
        raise InputError("--target", "is missing: only a program file names its target", "give one, such as -t vta")
    machine = targets.get(target)
    if not Path(path).is_dir():
        return compile_model(path, target, config, overrides, rounding, cache=True)
    if not isinstance(machine, Folders):
        raise InputError("--target", f"{target} reads no folders of programs", "give a program file (.twp)")
    return machine.load(Path(path), machine.config(config, overrides)).program


COMMANDS: tuple[click.Command, ...] = (debug,)
