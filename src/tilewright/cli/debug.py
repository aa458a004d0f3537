"""The command that steps through a program: debug."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.cli import inputs, options
from tilewright.cli.options import refuse, say
from tilewright.cli.programs import Machine, is_elf, load, on_machine
from tilewright.errors import InputError, shown

if TYPE_CHECKING:
    from tilewright.array import Array
    from tilewright.debug.session import Session
    from tilewright.program.program import Program


@click.command()
@click.argument("path", metavar="FILE.twp|MODEL|RUN.twr|FOLDER")
@on_machine("The target of MODEL or FOLDER.")
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
@click.option("--view", is_flag=True, help="Open a view with panes: listing, units, memory (needs Textual).")
@click.option("--echo", is_flag=True, help="Repeat each command of a script before its answer.")
@options.as_json
def debug(
    path: str,
    machine: Machine,
    rounding: str | None,
    source: str | None,
    launch: str | None,
    at: int | None,
    order: str,
    timing: str | None,
    **commands: Any,
) -> int:
    """Walk through a program instruction by instruction, forwards and back, and ask questions about it.

    RUN.twr opens the program of a saved run: its model, compiled as for the run. Commands come from a prompt, from
    --script, or from a pipe; the command `help` lists them. With --json, each answer is a JSON object on one line.

    \f
    Raises InputError for options that do not fit the input, and for --view without a terminal.
    """
    from tilewright.debug.session import Session
    from tilewright.report import record
    from tilewright.run import machine_of, timing_model
    from tilewright.targets import get

    saved = record.load(path).run if path.endswith(".twr") else None
    if saved or path.endswith(".twp"):
        given = {"--target": machine.target, "--config": machine.config, "--set": machine.overrides}
        reason = f"is not for {Path(path).suffix} files"
        refuse(given | {"--rounding": rounding}, reason, "compile the model again with this option")
    if saved:
        timing = timing or saved["summary"].get("timing")
    program, expected = _of_run(path, saved) if saved else _program(path, machine, rounding)
    samples = inputs.samples_of(program, source, None, None, None)
    model = timing_model(get(program.target), timing, machine_of(program))
    session = Session(program, samples.values if samples else None, order, model, expected)
    if saved:
        _same_run(path, program, session, saved)
    if launch is not None:
        session.launch(launch)
    if at is not None:
        session.to(at)
    return _converse(session, at, inputs.left_out(program, samples), **commands)


def _converse(
    session: Session, at: int | None, left_out: list[str], *, script: str | None, view: bool, echo: bool, as_json: bool
) -> int:
    """Open the view or the prompt, or run the commands of a script."""
    from tilewright.debug import prompt

    if view:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise InputError("--view", "needs a terminal", "leave it out: commands may come from a pipe")
        prompt.view(session).run()
        return 0
    if script is None and sys.stdin.isatty():
        prompt.converse(session, say)
        return 0
    if not as_json:
        say(session.head)
    further = len(session.launches) - 1
    closed = [f"left out: {further} other launch{'es' * (further > 1)}, which `launch NAME` opens"] * (further > 0)
    for line in (*closed, *left_out):
        say(line, err=as_json)
    if at is not None:
        # A script begins with the answer about instruction `at`, or with the reason why the session stopped earlier.
        opening = ["where", f"insn {at}"] if session.where().step != at else [f"insn {at}"]
        prompt.script(session, opening, "--at", say, as_json, echo)
    name = "standard input" if script in (None, "-") else str(script)
    prompt.script(session, prompt.lines_of(script or "-"), name, say, as_json, echo)
    return 0


def _program(path: str, machine: Machine, rounding: str | None) -> tuple[Program, Mapping[str, Array]]:
    """Load or compile a program. Return it with the expected first bytes of its outputs.

    Raises InputError if the target is missing, or if the file is an ELF file.
    """
    if path.endswith(".twp"):
        return load(path), {}
    from tilewright.api import compile as compile_model

    if machine.target is None:
        raise InputError("--target", "is missing: only a program file names its target", "give one, such as -t vta")
    if Path(path).is_dir():
        loaded = machine.folder(path)
        return loaded.program, loaded.expected
    if is_elf(path):
        raise InputError(path, "is a processor's program", "use GDB: tilewright exec FILE.elf -t cfu --gdb PORT")
    return compile_model(path, machine.target, machine.config, machine.overrides, rounding, cache=True), {}


def _of_run(path: str, run: Mapping[str, Any]) -> tuple[Program, Mapping[str, Array]]:
    """Compile the program of a saved run again. Raises InputError if the model file is missing or has changed."""
    from tilewright.files import digest

    source = Path(run["source"])
    summary = run["summary"]
    if not run["source"] or not source.exists():
        raise InputError(path, f"its file {shown(str(source))} is missing", "call tilewright in the folder of the run")
    if digest(source) != run["sha256"]:
        raise InputError(path, f"its file {shown(str(source))} has changed since", "run it and save it again")
    config = None if source.is_dir() else summary["config"]
    return _program(str(source), Machine(summary["target"], config, {}), summary.get("rounding") or None)


def _same_run(path: str, program: Program, session: Session, run: Mapping[str, Any]) -> None:
    """Check that a program is the program of a saved run. Raises InputError if launches or cycles differ."""
    names = [launch["name"] for launch in run["launches"]]
    compiled = [launch.nodes[0] if launch.nodes else launch.name for launch in program.launches]
    trace = session.walk.trace
    if names and (names != compiled or (trace and trace.cycles != run["launches"][0]["cycles"])):
        reason = f"its program was compiled otherwise, by: {shown(run['command'])}"
        raise InputError(path, reason, "compile the program to a file with these options, and open the file")
