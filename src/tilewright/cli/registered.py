"""The commands that one target alone has: those of the module `cli` in the target's package."""

from __future__ import annotations

from importlib import import_module

import click

from tilewright.errors import TilewrightError


def commands() -> dict[str, click.Command]:
    """Return these commands of all targets, by name."""
    from tilewright import targets

    found: dict[str, click.Command] = {}
    for name in targets.names():
        try:
            target = targets.get(name)
        except TilewrightError:
            continue  # `tilewright targets` says why it is none
        if (targets.folder(target) / "cli.py").is_file():
            module = import_module(f"{type(target).__module__}.cli")
            found |= {command.name: command for command in module.COMMANDS}
    return found
