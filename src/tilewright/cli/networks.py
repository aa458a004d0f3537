"""Commands that take a model: run, compile, explain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilewright.cli import options
from tilewright.cli.options import Reports

if TYPE_CHECKING:
    from tilewright.program.program import Program

#: Of a network that was not quantised.
MOSTLY = 0.5


@click.command()
@click.argument("model")
@options.target
@options.rounding
@options.no_cache
@options.simulation
@click.option("--verify", is_flag=True, help="Compare the import with the file, run by its own framework.")
def run(
    model: str,
    target: str,
    config: str | None,
    overrides: dict[str, str],
    rounding: str | None,
    no_cache: bool,
    source: str | None,
    output: Path | None,
    timing: str | None,
    html: Path | None,
    trace: Path | None,
    as_json: bool,
    check: bool,
    verify: bool,
) -> int:
    """Run a model, compare with the reference, report each layer.

    Without -i it runs one sample of random codes. -o writes `outputs` (N, ...).
    """
    from tilewright.cli.execute import execute

    program = _compiled(model, target, config, overrides, rounding, no_cache)
    reports = Reports(output, html, trace, as_json)
    return execute(program, source, timing, check, reports, model if verify else None)


@click.command(name="compile")
@click.argument("model")
@options.target
@options.rounding
@options.no_cache
@options.new_file("-o", "--output", required=True, metavar="FILE.twp", about="The program to write.")
@options.as_json
def compile_(
    model: str,
    target: str,
    config: str | None,
    overrides: dict[str, str],
    rounding: str | None,
    no_cache: bool,
    output: Path,
    as_json: bool,
) -> None:
    """Compile a model into a program file.

    `exec` runs it, `check` looks for hazards in it, `disasm` prints it.
    """
    from tilewright.program import file

    program = _compiled(model, target, config, overrides, rounding, no_cache)
    file.save(program, output)
    if as_json:
        click.echo(json.dumps({"file": str(output), **program.outline()}))
        return
    on_host = len(program.steps) - len(program.launches)
    click.echo(f"{output}: {len(program.launches)} launches on {target}, {on_host} steps on the host")


@click.command()
@click.argument("model")
@options.target
@options.rounding
@options.no_cache
@options.timing
@options.as_json
def explain(
    model: str,
    target: str,
    config: str | None,
    overrides: dict[str, str],
    rounding: str | None,
    no_cache: bool,
    timing: str | None,
    as_json: bool,
) -> None:
    """Show what runs where and why, and each compile stage.

    Cycles are those of the timing model that `run` uses. On cfu they depend on data: --timing runs a sample of zeros.
    """
    from tilewright import targets
    from tilewright.report import analysis
    from tilewright.report import explain as report
    from tilewright.run import timing_model

    machine = targets.get(target)
    chosen = timing_model(machine, timing)
    program = _compiled(model, target, config, overrides, rounding, no_cache)
    text = machine.explain(program, timing)
    if as_json:
        layers = [row.to_json() for row in analysis.rows(program.graph)] if program.graph else []
        click.echo(json.dumps({**program.outline(), "timing": chosen, "analysis": layers, "text": text}))
    else:
        report.show(program, text)


def _compiled(
    model: str, target: str, config: str | None, overrides: dict[str, str], rounding: str | None, no_cache: bool
) -> Program:
    """The program of a model; a line on stderr where it should have been quantised first."""
    from tilewright import compile as compile_model
    from tilewright.program.program import HostStep
    from tilewright.report import analysis

    program = compile_model(model, target, config, overrides, rounding, cache=not no_cache)
    on_host = {step.node: step.reason for step in program.steps if isinstance(step, HostStep)}
    share = analysis.real_share(program.graph, on_host) if program.graph else 0.0
    if share > MOSTLY and program.graph:
        advice = _advice(program, model, analysis.weightiest(program.graph, on_host))
        said = f"{share:.0%} of its MACs are of real numbers, which the host computes"
        click.echo(f"tilewright: {model}: {said}{advice}", err=True)
    return program


def _advice(program: Program, model: str, reason: str) -> str:
    """What to do about real numbers on the host: int8 is no advice where the machine was asked to compute them."""
    from tilewright import targets
    from tilewright.targets.abilities import Approximates

    int8 = f"make it int8: tilewright quantize {model} --calibration DATA -o INT8.onnx"
    target = targets.get(program.target)
    if not isinstance(target, Approximates):
        return f"; {int8}"
    if target.takes_real(target.config(program.config, {})):
        return f", for the most part because {reason}"
    return f"; {target.real_option} computes them on {program.target}, or {int8}"


COMMANDS: tuple[click.Command, ...] = (run, compile_, explain)
