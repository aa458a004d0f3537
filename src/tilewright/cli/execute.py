"""One run from samples to reports: the sequence that `run` and `exec` share; and ELF files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import click

from tilewright.cli.options import Reports
from tilewright.errors import HazardError, InputError, ProgramError
from tilewright.program.program import Program


def execute(
    program: Program, source: str | None, timing: str | None, check: bool, reports: Reports, model: str | None = None
) -> int:
    """Run a program and write what was asked for; return the exit status.

    `model` is the file to verify the import against, by its own framework.
    """
    try:
        return _execute(program, source, timing, check, reports, model)
    except HazardError as error:
        if reports.as_json:
            found = [finding.to_json() for finding in error.findings]
            click.echo(json.dumps({"target": program.target, "hazards": max(1, len(found)), "findings": found}))
        raise


def _execute(
    program: Program, source: str | None, timing: str | None, check: bool, reports: Reports, model: str | None
) -> int:
    from tilewright import bare, targets
    from tilewright.files import write_outputs
    from tilewright.model import inputs
    from tilewright.model.verify import verify
    from tilewright.report import html, perfetto, text
    from tilewright.report.summary import summarise

    if reports.trace:
        perfetto.require(reports.trace)
    graph, verification = program.graph, None
    if graph is None:
        if source:
            raise InputError("--input", "this program has no network", "its data is in the program itself")
        result = bare.run(program, timing=timing, check=check)
        origin, labels = "the program's own data", None
    else:
        samples = inputs.read(source, graph) if source else inputs.random(graph)
        verification = verify(model, graph, samples.values) if model else None
        origin, labels = samples.source, samples.labels
        with text.progress_bar() as progress:
            result = program.run(samples.values, timing=timing, check=check, progress=progress)
    target = targets.get(program.target)
    clock = float(target.describe(target.config(program.config, {}))["clock_mhz"])
    summary = summarise(result, graph, origin, labels, clock, check, verification)
    if reports.output:
        write_outputs(reports.output, result.outputs)
    if reports.html:
        html.write(summary, reports.html)
    if reports.trace:
        perfetto.write(result, reports.trace)
    if reports.as_json:
        click.echo(json.dumps(summary.to_json()))
    else:
        text.show(summary)
    return 0 if summary.passed else 1


def is_elf(path: str) -> bool:
    """By its first bytes, whatever it is called."""
    from tilewright.files import regular

    with regular(path, ProgramError).open("rb") as file:
        return file.read(4) == b"\x7fELF"


def execute_elf(
    path: str,
    name: str | None,
    preset: str | None,
    overrides: Mapping[str, str],
    timing: str | None,
    limit: int | None,
    profile: Path | None,
    as_json: bool,
) -> int:
    """Run an ELF file on a target's processor and write what was asked for; the exit status."""
    from tilewright import targets
    from tilewright.files import replacing
    from tilewright.run import timing_model
    from tilewright.targets.abilities import Executes

    if name is None:
        raise InputError("--target", "an ELF file does not say on what it runs", "give -t cfu, say")
    target = targets.get(name)
    if not isinstance(target, Executes):
        raise InputError("--target", f"{name} has no processor that runs ELF files", "compile a model for it instead")
    done = target.execute(Path(path), target.config(preset, overrides), timing_model(target, timing), limit)
    if profile:
        with replacing(profile) as file:
            file.write(json.dumps(done.speedscope).encode())
    click.echo(json.dumps(done.data) if as_json else done.text)
    return 0 if done.passed else 1
