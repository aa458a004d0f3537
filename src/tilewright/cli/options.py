"""Command-line options that several commands share, as click decorators, and functions that print a command's output.

A shell can complete the values of options. Unprintable characters in the output are replaced, because names in files
can contain escape sequences.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, fields, is_dataclass
from functools import reduce, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tilewright.errors import InputError, TilewrightError, plain

if TYPE_CHECKING:
    from tilewright.targets.base import Target
    from tilewright.targets.users import Processor

Command = TypeVar("Command", bound=Callable[..., Any])
#: File name suffixes of pages, and of timelines in Perfetto's own format and in Chrome's format.
HTML = (".html", ".htm")
TRACES = (".pftrace", ".json", ".perfetto-trace")


def answer(as_json: bool, told: Mapping[str, Any], *lines: str) -> None:
    if as_json:
        say_json(told)
        return
    for line in lines:
        say(line)


def say(text: object = "", err: bool = False) -> None:
    click.echo(plain(str(text)), err=err)


def say_json(told: object) -> None:
    # json.dumps escapes all characters that a terminal could obey, except for this one.
    click.echo(json.dumps(told).replace("\x7f", "\\u007f"))


def refuse(options: Mapping[str, object], reason: str, remedy: str = "") -> None:
    """Raises InputError, naming the option, if one of these options {name: value} has a value."""
    for name, value in options.items():
        if value:
            raise InputError(name, reason, remedy)


def able(kind: type[Any], target: str, where: str, lacks: str, remedy: str) -> Any:
    """Return a target by name. Raises InputError(where, lacks) if the target does not have the protocol `kind`."""
    from tilewright import targets

    machine = targets.get(target)
    if not isinstance(machine, kind):
        raise InputError(where, f"{target} {lacks}", remedy)
    return machine


def processor(target: str, where: str, lacks: str) -> Processor:
    """Return a target by name. Raises InputError(where, lacks) if the target does not have a processor."""
    from tilewright.targets.users import Processor

    machine: Processor = able(Processor, target, where, lacks, "choose -t cfu")
    return machine


def shared(decorator: Callable[[Any], Any]) -> Any:
    """Declare a field of a `bundle` whose value comes from a click decorator, such as an option of several commands."""
    return field(metadata={"option": decorator})


def taken(*names: str, **about: Any) -> Any:
    """Declare a field of a `bundle` whose value comes from a click option with these names and settings."""
    return field(metadata={"option": names, "about": about})


@dataclass(frozen=True)
class UserCfu:
    """The files of the user's custom function unit, and the number of other initial values to try."""

    files: tuple[str, ...] = taken(
        "--cfu",
        multiple=True,
        metavar="FILE.v|FILE.py:NAME",
        help="Replace the CFU: the module Cfu in these Verilog files, or a class in Python.",
    )
    states: int = taken(
        "--initial-states",
        type=click.IntRange(0, 64),
        default=0,
        metavar="N",
        help="Report if results depend on values that the Verilog leaves open: try N others.",
    )


def replaced(target: str, user_cfu: UserCfu) -> AbstractContextManager[None]:
    """Return a context in which the user's custom function unit, if given, replaces the unit of a target.

    Raises InputError if the target has no such unit, or if initial values are given without a unit.
    """
    if not user_cfu.files:
        if user_cfu.states:
            raise InputError("--initial-states", "needs --cfu: the built-in CFU has no undefined values")
        return nullcontext()
    return processor(target, "--cfu", "has no custom function unit").with_cfu(user_cfu.files, user_cfu.states)


@contextmanager
def debugged(target: str, port: int | None) -> Iterator[None]:
    """Run a `with` block. If a port is given, programs in the block wait for GDB at this port of this computer.

    Raises InputError if the target has no processor to debug, or if the port cannot be opened.
    """
    if port is None:
        yield
        return
    with processor(target, "--gdb", "has no server for GDB").with_gdb(port) as number:
        say(f"waiting for GDB: target remote localhost:{number}", err=True)
        yield


def with_firmware(target: str, path: str | None) -> AbstractContextManager[None]:
    """Return a context in which networks are compiled with the firmware at `path` (None: the built-in firmware).

    Raises InputError if the target runs no firmware, or if `path` is no firmware.
    """
    return nullcontext() if path is None else processor(target, "--firmware", "runs no firmware").with_firmware(path)


@contextmanager
def progress_bar() -> Iterator[Callable[[int, int, str], None] | None]:
    """Yield a callback(done, total, text) that draws a bar on stderr, or None without a terminal. 0: unknown total."""
    if not sys.stderr.isatty() or os.environ.get("TERM") in ("dumb", "unknown"):
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from tilewright.report.render import console

    shown = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*shown, console=console(sys.stderr), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, name: bar.update(task, completed=done, total=total or None, description=name)


def new_file(
    *names: str, metavar: str, about: str, required: bool = False, suffixes: tuple[str, ...] = ()
) -> Callable[[Command], Command]:
    """Return a click decorator that adds an option for an output file. The path is checked before a long run.

    The option raises BadParameter if the folder is missing, or if the suffix of the name is not in `suffixes`. A name
    without a suffix is allowed.
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

    kind = click.Path(dir_okay=False, path_type=Path)
    return click.option(*names, type=kind, callback=check, metavar=metavar, help=about, required=required)


def pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Read KEY=VALUE texts. Raises BadParameter for any other text."""
    pairs = {}
    for value in values:
        key, mark, text = value.partition("=")
        if not mark or not key:
            raise click.BadParameter(f"'{value}' is not key=value", ctx, param)
        pairs[key] = text
    return pairs


def _all(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    return lambda command: reduce(lambda decorated, decorate: decorate(decorated), reversed(decorators), command)


def bundle(name: str, kind: type[Any], *first: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a decorator that adds options to a command, and passes them as the argument `name`.

    The argument is an object of the dataclass `kind`. Each field is declared with `taken` or `shared`; a field without
    such a declaration belongs to an option in `first`.
    """
    decorators = list(first)
    for declared in fields(kind):
        if "about" in declared.metadata:
            decorators.append(click.option(*declared.metadata["option"], declared.name, **declared.metadata["about"]))
        elif "option" in declared.metadata:
            decorators.append(declared.metadata["option"])

    def decorate(command: Command) -> Any:
        @wraps(command)
        def bundled(**given: Any) -> Any:
            return command(
                **{name: kind(**{declared.name: given.pop(declared.name) for declared in fields(kind)})}, **given
            )

        return _all(*decorators)(bundled)

    return decorate


def _targets(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    from tilewright import targets

    return [name for name in targets.names() if name.startswith(typed)]


def _completed(offered: Callable[[Target], Iterable[str]]) -> Callable[..., list[str]]:
    """Return a completion function whose words depend on the option --target in the same command line."""

    def complete(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
        from tilewright import targets

        try:
            return [word for word in offered(targets.get(context.params["target"])) if word.startswith(typed)]
        except (KeyError, TypeError, AttributeError, TilewrightError):
            return []  # the user is still typing, and --target may be missing or incomplete

    return complete


def _keys(target: Target) -> Iterable[str]:
    config = target.config(None, {})
    return [f"{key.name}=" for key in fields(config)] if is_dataclass(config) else []


def of_target(text: str, **given: Any) -> Callable[[Command], Command]:
    """Return the option `--target`, whose value a shell can complete."""
    return click.option("-t", "--target", metavar="TARGET", help=text, shell_complete=_targets, **given)


config = click.option(
    "-c",
    "--config",
    metavar="PRESET|FILE.json",
    shell_complete=_completed(lambda target: target.presets),
    help="The machine's configuration [the first preset].",
)
overrides = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    callback=pairs,
    shell_complete=_completed(_keys),
    help="Change one number.",
)
machine = _all(config, overrides)
target = _all(of_target("See `tilewright targets`.", required=True), machine)
rounding = click.option(
    "--rounding", metavar="MODE", help="Requantise as this runtime: tflm, litert, xnnpack, ort [.onnx: ort, else tflm]."
)
cfu = bundle("user_cfu", UserCfu)
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
    shell_complete=_completed(lambda target: [model.name for model in target.timing_models]),
    help="The timing model [the target's first], with some of its numbers changed.",
)


def compiler_flags(command: Command) -> Command:
    define = click.option(
        "-D", "define", multiple=True, metavar="NAME[=VALUE]", help="Define a macro; may be repeated."
    )
    include = click.option(
        "-I", "include", multiple=True, metavar="DIR", help="Look for headers in a folder; may be repeated."
    )
    return include(define(command))


def flags_of(include: tuple[str, ...], define: tuple[str, ...]) -> list[str]:
    return [*(f"-I{folder}" for folder in include), *(f"-D{macro}" for macro in define)]
