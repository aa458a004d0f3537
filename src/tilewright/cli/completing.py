"""What a shell offers for the values of options: targets, presets, configuration keys and timing models.

click calls these functions with what was typed so far. They answer nothing rather than raise an error: the user is
still typing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING

import click

from tilewright.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.targets.base import Target

Completes = Callable[[click.Context, click.Parameter, str], list[str]]


def targets(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    """Return the names of the targets that begin with what was typed."""
    from tilewright import targets

    return [name for name in targets.names() if name.startswith(typed)]


def _of_target(offered: Callable[[Target], Iterable[str]]) -> Completes:
    """Return a completion from the target that the command line names before; without one, it offers nothing."""

    def complete(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
        from tilewright import targets

        try:
            return [word for word in offered(targets.get(context.params["target"])) if word.startswith(typed)]
        except (KeyError, TypeError, AttributeError, TilewrightError):
            return []

    return complete


def _keys(target: Target) -> Iterable[str]:
    config = target.config(None, {})
    return [f"{key.name}=" for key in fields(config)] if is_dataclass(config) else []


presets = _of_target(lambda target: target.presets)
keys = _of_target(_keys)
timing_models = _of_target(lambda target: [model.name for model in target.timing_models])
