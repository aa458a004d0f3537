"""Commands about gateware: rtl, cosim."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from tilewright.cli import options
from tilewright.cli.programs import load
from tilewright.errors import ConfigError, InputError


@click.command()
@click.argument("target", metavar="TARGET")
@options.machine
@click.option("-o", "--output", required=True, metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@options.as_json
def rtl(target: str, config: str | None, overrides: dict[str, str], output: Path, as_json: bool) -> None:
    """Write the machine as Verilog, with what a board needs around it.

    A line on stderr says where the design does not fit the board that the configuration names.
    """
    from tilewright import targets
    from tilewright.targets.abilities import Gateware

    machine = targets.get(target)
    if not isinstance(machine, Gateware):
        raise ConfigError(target, "has no gateware")
    made = machine.config(config, overrides)
    files, excess = machine.rtl(made), machine.excess(made)
    if excess:
        click.echo(f"tilewright: {target}: the design {excess}", err=True)
    output.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (output / name).write_text(text, encoding="utf-8")
    if as_json:
        click.echo(json.dumps({"target": target, "files": [str(output / name) for name in files], "excess": excess}))
    else:
        for name in files:
            click.echo(str(output / name))


@click.command()
@click.argument("path", metavar="FILE.twp")
@click.option("-i", "--input", "source", metavar="FILE", help="Samples, of which the first is run [random codes].")
@click.option("--engine", metavar="ENGINE", default="verilator", show_default=True, help="verilator or cxxrtl.")
@options.new_file(
    "--wave", metavar="FILE.vcd", about="A waveform around the first difference (by cxxrtl, whichever compares)."
)
@click.option("--whole", is_flag=True, help="The waveform of that whole launch; of the first one where none differs.")
@options.as_json
def cosim(path: str, source: str | None, engine: str, wave: Path | None, whole: bool, as_json: bool) -> int:
    """Run a program on the compiled gateware and compare cycles and what every STORE writes with the simulator.

    Status 1 where there is a difference; the first is named by instruction, cycle and signal.
    """
    from tilewright import cosim as comparing
    from tilewright.model import inputs

    program = load(path)
    samples = None
    if program.graph is not None:
        samples = (inputs.read(source, program.graph) if source else inputs.random(program.graph)).values
    elif source:
        raise InputError("--input", "this program has no network", "its data is in the program itself")
    found = []
    if whole and wave is None:
        raise InputError("--whole", "says how long a waveform is", "give a file with --wave")
    for case in comparing.cosim(program, samples, engine, comparing.Wave(wave, whole) if wave else None):
        found.append(case)
        if not as_json:
            same = "same" if not case.differences else f"{case.mismatched_bytes} bytes differ"
            click.echo(f"{case.name}: {case.instructions} instructions, {case.rtl_cycles} cycles, {same}")
            for difference in case.differences:
                click.echo(f"  {difference}")
    differ = sum(bool(case.differences) for case in found)
    if as_json:
        click.echo(json.dumps({"target": program.target, "launches": [asdict(case) for case in found]}))
    else:
        click.echo(f"{len(found)} launches, {differ} differ")
        if wave and (whole or differ):
            click.echo(str(wave))
    return 1 if differ else 0


COMMANDS: tuple[click.Command, ...] = (rtl, cosim)
