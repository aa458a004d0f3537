"""Commands for kernels and hosts in C: firmware, config."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import click

from tilewright.cli import options
from tilewright.errors import InputError


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
    from tilewright.targets.users import TakesHosts

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


COMMANDS: tuple[click.Command, ...] = (config,)
