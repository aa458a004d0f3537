"""Commands that take a program: exec, check, disasm, asm."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilewright.cli import options
from tilewright.cli.options import Reports
from tilewright.errors import InputError, ProgramError, TilewrightError

if TYPE_CHECKING:
    from tilewright.program.program import Program


@click.command(name="exec")
@click.argument("path", metavar="FILE.twp|FILE.elf")
@click.option("-t", "--target", metavar="TARGET", help="Whose processor runs FILE.elf.")
@options.machine
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Stop FILE.elf after so many instructions.")
@options.new_file("--profile", metavar="FILE", about="Write FILE.elf's profile for speedscope.app.")
@options.simulation
def exec_(
    path: str,
    target: str | None,
    config: str | None,
    overrides: dict[str, str],
    limit: int | None,
    profile: Path | None,
    source: str | None,
    output: Path | None,
    timing: str | None,
    html: Path | None,
    trace: Path | None,
    as_json: bool,
    check: bool,
) -> int:
    """Run a saved program on the machine it was compiled for, or an ELF file on a target's processor."""
    from tilewright.cli.execute import execute, execute_elf, is_elf

    for_elf = {"--target": target, "--config": config, "--set": overrides, "--limit": limit, "--profile": profile}
    for_program = {"--input": source, "--output": output, "--html": html, "--trace": trace}
    if is_elf(path):
        _refuse(for_program, "an ELF file has none")
        return execute_elf(path, target, config, overrides, timing, limit, profile, as_json)
    _refuse(for_elf, "is for ELF files: a program names its machine")
    return execute(load(path), source, timing, check, Reports(output, html, trace, as_json))


@click.command()
@click.argument("path", metavar="FILE.twp")
@options.as_json
def check(path: str, as_json: bool) -> int:
    """Look for races, deadlocks and other hazards.

    Also for what is not portable between implementations. Status 1 where there is anything.
    """
    from tilewright import targets
    from tilewright.report import text

    program = load(path)
    found = tuple(targets.get(program.target).check(program))
    if as_json:
        told = {"target": program.target, "hazards": len(found), "findings": [finding.to_json() for finding in found]}
        click.echo(json.dumps(told))
    else:
        text.show_findings(found)
    return 1 if found else 0


@click.command()
@click.argument("path", metavar="FILE.twp")
@options.as_json
def disasm(path: str, as_json: bool) -> None:
    """Print a program as text that `asm` reads back."""
    from tilewright import targets
    from tilewright.program import file

    program = load(path)
    text = file.with_machine(program, targets.get(program.target).disassemble(program))
    if as_json:
        click.echo(json.dumps({"target": program.target, "config": dict(program.config), "text": text}))
    else:
        click.echo(text, nl=False)


@click.command()
@click.argument("path", metavar="FILE.txt")
@options.new_file("-o", "--output", required=True, metavar="FILE.twp", about="The program to write.")
@click.option("-t", "--target", metavar="TARGET", help="[the one that the text names]")
@options.machine
@options.as_json
def asm(
    path: str, output: Path, target: str | None, config: str | None, overrides: dict[str, str], as_json: bool
) -> None:
    """Assemble text into a bare program.

    Its first lines may name target and config, as `disasm` prints them.
    """
    from tilewright import targets
    from tilewright.program import file

    text = file.read_text(path)
    named, numbers = file.machine_of(text, path)
    if not (target or named):
        raise ProgramError(path, "does not name its target", "give -t, or a first line '# target NAME'")
    machine = targets.get(target or str(named))
    chosen = machine.config(config if config or named != machine.name else numbers, overrides)
    with file.naming(path):
        program = machine.assemble(text, chosen)
    file.save(program, output)
    if as_json:
        click.echo(json.dumps({"file": str(output), **program.outline()}))


def _refuse(options: Mapping[str, object], reason: str) -> None:
    for name, value in options.items():
        if value:
            raise InputError(name, reason)


def load(path: str) -> Program:
    """A program for a machine that exists; errors name the file."""
    from tilewright import targets
    from tilewright.graph.rounding import rounding_mode
    from tilewright.program import file

    program = file.load(path)
    try:
        targets.get(program.target).config(program.config, {})
        rounding_mode(program.rounding)
    except TilewrightError as error:
        raise ProgramError(f"{path}: {error.where}", error.reason, "compile it again") from None
    return program


COMMANDS: tuple[click.Command, ...] = (exec_, check, disasm, asm)
