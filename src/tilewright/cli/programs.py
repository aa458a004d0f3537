"""Commands that take a program: exec, check, disasm, asm."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tilewright.cli import options
from tilewright.cli.options import Reports
from tilewright.errors import ProgramError


@click.command(name="exec")
@click.argument("path", metavar="FILE.twp")
@options.simulation
def exec_(
    path: str,
    source: str | None,
    output: Path | None,
    timing: str | None,
    html: Path | None,
    trace: Path | None,
    as_json: bool,
    check: bool,
) -> int:
    """Run a saved program on the machine it was compiled for."""
    from tilewright.cli.execute import execute
    from tilewright.program import file

    return execute(file.load(path), source, timing, check, Reports(output, html, trace, as_json))


@click.command()
@click.argument("path", metavar="FILE.twp")
@options.as_json
def check(path: str, as_json: bool) -> int:
    """Look for races, deadlocks and other hazards.

    Also for what is not portable between implementations. Status 1 where there is anything.
    """
    from tilewright import targets
    from tilewright.program import file
    from tilewright.report import findings as report

    program = file.load(path)
    found = tuple(targets.get(program.target).check(program))
    if as_json:
        click.echo(json.dumps(report.to_json(program.target, found)))
    else:
        report.show(found)
    return 1 if found else 0


@click.command()
@click.argument("path", metavar="FILE.twp")
def disasm(path: str) -> None:
    """Print a program as text that `asm` reads back."""
    from tilewright import targets
    from tilewright.program import file, listing

    program = file.load(path)
    text = targets.get(program.target).disassemble(program)
    click.echo(listing.with_machine(program, text), nl=False)


@click.command()
@click.argument("path", metavar="FILE.txt")
@options.new_file("-o", "--output", required=True, metavar="FILE.twp", about="The program to write.")
@click.option("-t", "--target", metavar="TARGET", help="[the one that the text names]")
@options.machine
def asm(path: str, output: Path, target: str | None, config: str | None, overrides: dict[str, str]) -> None:
    """Assemble text into a bare program.

    Its first lines may name target and config, as `disasm` prints them.
    """
    from tilewright import targets
    from tilewright.program import file, listing

    text = listing.read(path)
    named, numbers = listing.machine(text, path)
    if not (target or named):
        raise ProgramError(path, "does not name its target", "give -t, or a first line '# target NAME'")
    machine = targets.get(target or str(named))
    chosen = machine.config(config if config or named != machine.name else numbers, overrides)
    file.save(listing.assembled(lambda source: machine.assemble(source, chosen), text, path), output)


COMMANDS: tuple[click.Command, ...] = (exec_, check, disasm, asm)
