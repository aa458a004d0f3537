"""Commands for kernels and hosts in C: firmware, config."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.cli import options
from tilewright.cli.terminal import say
from tilewright.errors import InputError

if TYPE_CHECKING:
    from tilewright.targets.base import TakesC


def compiler_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a C compiler: `include` and `define`."""
    define = click.option(
        "-D", "define", multiple=True, metavar="NAME[=VALUE]", help="Define a macro; may be repeated."
    )
    include = click.option(
        "-I", "include", multiple=True, metavar="DIR", help="Look for headers in a folder; may be repeated."
    )
    return include(define(command))


def flags_of(include: tuple[str, ...], define: tuple[str, ...]) -> list[str]:
    """Return the compiler's arguments for these options."""
    return [*(f"-I{folder}" for folder in include), *(f"-D{macro}" for macro in define)]


def _target(name: str | None) -> tuple[str, TakesC]:
    """Return a target that takes kernels in C, and its name. Without `name`, it is the first such target.

    Raises InputError if the target takes no C.
    """
    from tilewright import targets
    from tilewright.targets.base import TakesC

    for found in [name] if name else targets.names():
        machine = targets.get(found)
        if isinstance(machine, TakesC):
            return found, machine
    raise InputError(name or "target", "takes no kernels in C", "choose another target, such as bm1684x")


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="KERNEL.c...", type=click.Path(path_type=Path))
@options.new_file("-o", "--output", metavar="FILE.bin", required=True, about="The firmware to write.")
@options.of_target("The machine [bm1684x].")
@compiler_flags
@options.as_json
def firmware(
    sources: tuple[Path, ...],
    output: Path,
    target: str | None,
    include: tuple[str, ...],
    define: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compile kernels in C to a firmware for the model of the machine.

    The compiler is $CC, else cc, gcc, clang, or the package ziglang. Hosts load the firmware and launch its functions.
    It is code of this computer's processor (such as x86_64), not of the chip: the chip cannot load it. As native code,
    it has your rights: load only firmware that you trust.
    """
    name, machine = _target(target)
    warnings = machine.firmware(sources, output, flags_of(include, define))
    if warnings:
        say(warnings, err=True)
    code = platform.machine()
    told = {"target": name, "file": str(output), "code": code, "sources": [str(source) for source in sources]}
    said = f"{output}: firmware of {name}: {code} code for the model on this computer, not for the chip"
    options.answer(as_json, {**told, "warnings": warnings}, said)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("target", nargs=-1, metavar="[--TARGET]", type=click.UNPROCESSED)
@click.option("--cflags", "kinds", flag_value="cflags", multiple=True, help="Where the headers are.")
@click.option("--libs", "kinds", flag_value="libs", multiple=True, help="What to link; makes the library at first use.")
@options.machine
@options.as_json
def config(
    target: tuple[str, ...], kinds: tuple[str, ...], config: str | None, overrides: dict[str, str], as_json: bool
) -> None:
    """Print a compiler's arguments for hosts in C.

    Example: cc host.c $(tilewright config --vta --cflags --libs)

    \f
    Raises InputError if the target has no library for hosts, or not one target is given.
    """
    from tilewright import targets
    from tilewright.targets.base import TakesHosts

    able = [name for name in targets.names() if isinstance(targets.get(name), TakesHosts)]
    if len(target) != 1:
        remedy = f"give one target: --{' or --'.join(able)}"
        raise InputError("config", f"{' and '.join(target) or 'no target'} is given", remedy)
    name = target[0].removeprefix("--")
    machine = targets.get(name)
    if not isinstance(machine, TakesHosts):
        raise InputError(name, "has no library for hosts in C", f"choose {' or '.join(able)}")
    found = machine.host_flags(machine.config(config, overrides))
    wanted = {kind: list(found[kind]) for kind in kinds or found}
    options.answer(as_json, {"target": name, **wanted}, shlex.join(flag for flags in wanted.values() for flag in flags))


COMMANDS: tuple[click.Command, ...] = (firmware, config)
