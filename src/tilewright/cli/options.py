"""Command-line options that several commands share, as click decorators, and `Simulation`, which runs a program."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import reduce, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tilewright.cli import completing, inputs, terminal
from tilewright.cli.terminal import say, say_json
from tilewright.errors import HazardError, InputError

if TYPE_CHECKING:
    from tilewright.program.program import Program
    from tilewright.report.summary import Summary
    from tilewright.schedules import UserSchedule
    from tilewright.sim.findings import Finding
    from tilewright.targets.users import Loaded, TakesFirmware

Command = TypeVar("Command", bound=Callable[..., Any])
#: Suffixes of pages, and of timelines: Perfetto's own format, and Chrome's.
HTML, TRACES = (".html", ".htm"), (".pftrace", ".json", ".perfetto-trace")


answer = terminal.answer


@dataclass(frozen=True)
class OwnCfu:
    """The files of a custom function unit of the user's, and the number of other initial values to try."""

    files: tuple[str, ...]
    states: int


@contextmanager
def replaced(target: str, own: OwnCfu) -> Iterator[None]:
    """Replace the custom function unit of a target by the user's, if there is one, in a `with` block.

    Raises InputError if the target has no such unit, or if there are initial values to try but no unit.
    """
    if not own.files:
        if own.states:
            raise InputError("--initial-states", "needs --cfu: the built-in CFU has no undefined values")
        yield
        return
    from tilewright import targets
    from tilewright.targets.users import TakesCfu

    machine = targets.get(target)
    if not isinstance(machine, TakesCfu):
        raise InputError("--cfu", f"{target} has no custom function unit", "choose -t cfu")
    with machine.with_cfu(own.files, own.states):
        yield


@contextmanager
def debugged(target: str, port: int | None) -> Iterator[None]:
    """Let programs wait for GDB at a port of this computer, if there is one, in a `with` block.

    Raises InputError if the target's processor cannot be debugged, or if the port cannot be opened.
    """
    if port is None:
        yield
        return
    from tilewright import targets
    from tilewright.targets.users import Debugs

    machine = targets.get(target)
    if not isinstance(machine, Debugs):
        raise InputError("--gdb", f"{target} has no server for GDB", "choose -t cfu")
    with machine.with_gdb(port) as number:
        say(f"waiting for GDB: target remote localhost:{number}", err=True)
        yield


@contextmanager
def with_firmware(target: str, path: str | None) -> Iterator[None]:
    """Compile networks with the user's firmware at a path, if there is one, in a `with` block.

    Raises InputError if the target runs no firmware, or if there is none at the path.
    """
    if path is None:
        yield
        return
    with takes_firmware("--firmware", target).with_firmware(path):
        yield


def takes_firmware(where: str, target: str) -> TakesFirmware:
    """Return a target that runs firmware of the user's. Raises InputError, which names `where`, if it runs none."""
    from tilewright import targets
    from tilewright.targets.users import TakesFirmware

    machine = targets.get(target)
    if not isinstance(machine, TakesFirmware):
        raise InputError(where, f"{target} runs no firmware", "choose -t cfu")
    return machine


@contextmanager
def progress_bar() -> Iterator[Callable[[int, int, str], None] | None]:
    """Yield a callback (steps done, all steps or 0, text) that draws a bar on stderr; None if it is no terminal."""
    if not sys.stderr.isatty() or os.environ.get("TERM") in ("dumb", "unknown"):
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from tilewright.report.render import console

    shown = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*shown, console=console(sys.stderr), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, name: bar.update(task, completed=done, total=total or None, description=name)


def _writable(*suffixes: str) -> Callable[[click.Context, click.Parameter, Path | None], Path | None]:
    """Return a click callback that checks the path of an output file: better now than after a run.

    The callback raises BadParameter if the folder is missing, or if the name ends in another suffix than `suffixes`,
    and so does not say what is written. Any name may be without a suffix.
    """

    def check(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
        if path is None:
            return None
        if not path.resolve().parent.is_dir():
            raise click.BadParameter(f"the folder {path.parent} does not exist", ctx, param)
        if suffixes and path.suffix and path.suffix.lower() not in suffixes:
            names = " or ".join(path.with_suffix(suffix).name for suffix in suffixes)
            raise click.BadParameter(f"{path} would not be a {path.suffix} file; name it {names}", ctx, param)
        return path

    return check


def new_file(
    *names: str, metavar: str, about: str, required: bool = False, suffixes: tuple[str, ...] = ()
) -> Callable[[Command], Command]:
    """Return a click decorator that adds an option for a file to write. Its name ends in one of `suffixes` [any]."""
    kind, check = click.Path(dir_okay=False, path_type=Path), _writable(*suffixes)
    return click.option(*names, type=kind, callback=check, metavar=metavar, help=about, required=required)


def pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Read KEY=VALUE texts. Raises BadParameter for another text."""
    pairs = {}
    for value in values:
        key, mark, text = value.partition("=")
        if not mark or not key:
            raise click.BadParameter(f"'{value}' is not key=value", ctx, param)
        pairs[key] = text
    return pairs


def _all(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    return lambda command: reduce(lambda made, decorate: decorate(made), reversed(decorators), command)


def bundle(name: str, kind: type[Any], *decorators: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a decorator that adds options to a command and passes them as the argument `name`, of dataclass `kind`."""

    def decorate(command: Command) -> Any:
        @wraps(command)
        def bundled(**given: Any) -> Any:
            return command(**{name: kind(**{field.name: given.pop(field.name) for field in fields(kind)})}, **given)

        return _all(*decorators)(bundled)

    return decorate


def of_target(text: str, **given: Any) -> Callable[[Command], Command]:
    """Return the option `--target` with its help; a shell can complete its value."""
    return click.option("-t", "--target", metavar="TARGET", help=text, shell_complete=completing.targets, **given)


machine = _all(
    click.option(
        "-c",
        "--config",
        metavar="PRESET|FILE.json",
        shell_complete=completing.presets,
        help="The machine's configuration [the first preset].",
    ),
    click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        callback=pairs,
        shell_complete=completing.keys,
        help="Change one number.",
    ),
)
target = _all(of_target("See `tilewright targets`.", required=True), machine)
rounding = click.option(
    "--rounding",
    metavar="MODE",
    help="Requantise as this runtime: tflm, litert, xnnpack, ort [.onnx: ort, else tflm].",
)
cfu = bundle(
    "own",
    OwnCfu,
    click.option(
        "--cfu",
        "files",
        multiple=True,
        metavar="FILE.v|FILE.py:NAME",
        help="Replace the CFU: the module Cfu in these Verilog files, or a class in Python.",
    ),
    click.option(
        "--initial-states",
        "states",
        type=click.IntRange(0, 64),
        default=0,
        metavar="N",
        help="Report if results depend on values that the Verilog leaves open: try N others.",
    ),
)
gdb = click.option(
    "--gdb",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Wait for GDB at this port of this computer; 0: any free one.",
)
firmware = click.option(
    "--firmware",
    metavar="DIR|FILE.elf",
    help="Firmware of your own: a project of `tilewright new-firmware`, or an ELF file linked from one.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
timing = click.option(
    "--timing",
    metavar="MODEL[,KEY=VALUE...]",
    shell_complete=completing.timing_models,
    help="The timing model [the target's first], with some of its numbers changed.",
)


@dataclass(frozen=True)
class Compilation:
    """A model, and the options for compiling it."""

    model: str
    target: str
    config: str | None
    overrides: dict[str, str]
    rounding: str | None
    no_cache: bool
    schedule: str | None
    search: bool
    shapes: dict[str, tuple[int, ...]]
    until: tuple[str, ...]

    def planned(self) -> UserSchedule | None:
        """Return the user's schedule, if any. Raises InputError if it does not fit, or if a search starts from none."""
        if self.schedule is None and self.search:
            raise InputError("--search", "starts from a schedule", "add --schedule FILE.json")
        if self.schedule is None:
            return None
        from tilewright import targets
        from tilewright.schedules import takes_schedules

        return takes_schedules(targets.get(self.target), "--schedule").schedule(self.schedule)


compilation = bundle(
    "compilation",
    Compilation,
    click.argument("model"),
    target,
    rounding,
    click.option(
        "--no-cache",
        is_flag=True,
        envvar="TILEWRIGHT_NO_CACHE",
        help="Always compile; do not use the user's cache folder ($TILEWRIGHT_CACHE_DIR, else ~/.cache/tilewright).",
    ),
    click.option(
        "--schedule",
        metavar="FILE.json",
        help="Tile sizes, loop order and slots of layers, as `explain --save-schedule` writes them (vta).",
    ),
    click.option("--search", is_flag=True, help="Search for plans that take fewer cycles than --schedule."),
    inputs.shapes,
    inputs.until,
)


@dataclass(frozen=True)
class Simulation:
    """The command-line options of a run: the file of its samples, the files for its results, and its settings."""

    source: str | None
    output: Path | None
    timing: str | None
    html: Path | None
    save: Path | None
    trace: Path | None
    as_json: bool
    check: bool
    what_if: bool | None
    energy: str | None
    reset: bool
    samples: int | None
    labels: str | None
    class_names: str | None
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    bgr: bool

    def run(
        self,
        program: Program,
        path: str,
        verify: bool = False,
        recompile: Callable[[Mapping[str, str]], Program] | None = None,
        loaded: Loaded | None = None,
    ) -> int:
        """Run a program, which was made from the file `path`, write the requested files and return the exit status.

        With `verify`, the imported graph is also compared with that file's own framework. `recompile` compiles the
        network for what-ifs, with some configuration keys changed. `loaded` is what is known of another compiler's
        program.
        """
        from tilewright.report import perfetto

        if self.trace:
            perfetto.require(self.trace)
        try:
            summary = self._summary(program, path if verify else None, recompile, loaded)
        except HazardError as error:
            if self.as_json:
                found = [finding.to_json() for finding in error.findings]
                say_json({"target": program.target, "hazards": max(1, len(found)), "findings": found})
            else:
                show_where(program, path, error.findings)
            raise
        return self._tell(program, path, summary)

    def _summary(
        self,
        program: Program,
        model: str | None,
        recompile: Callable[[Mapping[str, str]], Program] | None,
        loaded: Loaded | None,
    ) -> Summary:
        from tilewright import simulate
        from tilewright.energy import read
        from tilewright.run import differing

        thorough = self.html is not None if self.what_if is None else self.what_if
        table = read(self.energy) if self.energy else None
        prepared = inputs.pixels(self.mean, self.std, self.bgr)
        names = inputs.class_names(self.class_names)
        samples = inputs.samples_of(program, self.source, self.samples, self.labels, prepared)
        simulation = simulate.Simulation(self.timing, self.check, self.reset, thorough, table, names)
        if samples is None:
            summary = simulation.of_bare(program, loaded)
            for sentence in differing(summary.result.outputs, loaded.expected if loaded else {}):
                say(sentence, err=True)
            return summary
        with progress_bar() as progress:
            return simulation.of_network(program, samples, model=model, recompile=recompile, progress=progress)

    def _tell(self, program: Program, path: str, summary: Summary) -> int:
        """Write the requested files, print the report and return the exit status."""
        from tilewright.files import write_outputs
        from tilewright.report import render

        if self.output:
            write_outputs(self.output, summary.result.outputs)
        self.write(summary, path)
        if self.as_json:
            say_json(summary.to_json())
        else:
            render.show(summary)
            show_where(program, path, summary.result.findings)
        return 0 if summary.passed else 1

    def write(self, summary: Summary, path: str) -> None:
        """Write the page, the saved run and the timeline of the file `path`, as far as they are asked for."""
        from tilewright.files import digest
        from tilewright.report import perfetto

        if self.html or self.save:
            from tilewright import __version__
            from tilewright.report import page, record

            source = record.Origin(
                click.get_current_context().find_root().obj or "",
                path,
                digest(Path(path)),
                f"Tilewright {__version__}",
            )
            made = record.of(summary, source)
            if self.html:
                page.write(made, self.html)
            if self.save:
                record.save(made, self.save)
        if self.trace:
            perfetto.write(summary.result, self.trace, summary.clock_mhz)


def show_where(program: Program, path: str, findings: Sequence[Finding]) -> None:
    """Print the command that shows a finding of a program file in the debugger: the first about an instruction."""
    from tilewright import targets
    from tilewright.targets.base import Walks

    named = next((finding for finding in findings if finding.steps), next(iter(findings), None))
    if named is None or not path.endswith(".twp") or not isinstance(targets.get(program.target), Walks):
        return
    launch = f" --launch {shlex.quote(named.launch)}" if named.launch and len(program.launches) > 1 else ""
    at = f" --at {named.steps[0]}" if named.steps else ""
    say(f"to look at it: tilewright debug {shlex.quote(path)}{launch}{at}")


simulation = bundle(
    "simulation",
    Simulation,
    click.option(
        "-i",
        "--input",
        "source",
        metavar="DATA",
        help="Samples: .npz, .npy, .bin, an image, or a folder of files [random codes].",
    ),
    click.option("--samples", type=click.IntRange(1), metavar="N", help="Run the first N samples, or N random ones."),
    inputs.labels,
    click.option("--class-names", metavar="FILE", help="The names of the classes, one per line."),
    *inputs.images,
    new_file("-o", "--output", metavar="OUT.npz", about="Write the output values.", suffixes=(".npz",)),
    timing,
    new_file("--html", metavar="FILE", about="Write the run as a page, one HTML file.", suffixes=HTML),
    new_file("--save", metavar="RUN.twr", about="Keep the whole run, for `report` and `compare`.", suffixes=(".twr",)),
    new_file(
        "--trace",
        metavar="FILE.pftrace",
        about="Write a timeline for ui.perfetto.dev (.json: Chrome's format).",
        suffixes=TRACES,
    ),
    as_json,
    click.option("--check/--no-check", default=True, show_default=True, help="Look for races and other hazards."),
    click.option(
        "--what-if/--no-what-if",
        default=None,
        help="Also time changed machines that need another program, or a whole run (cfu) [with --html].",
    ),
    click.option(
        "--energy",
        metavar="TABLE|FILE.toml",
        help="Estimate the energy by this table: default, horowitz, ddr3, or your own [--json: default].",
    ),
    click.option("--reset", is_flag=True, help="Start each sample from the initial states (networks with states)."),
)
