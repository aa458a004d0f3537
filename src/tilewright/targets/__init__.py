"""Every sub-package that exports TARGET is a target; there is no list to edit."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from tilewright.errors import InputError
from tilewright.targets.base import Target


def names() -> tuple[str, ...]:
    """The targets there are, sorted."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg))


def get(name: str) -> Target:
    """The target called `name`. Raises InputError naming those that exist."""
    if name not in names():
        raise InputError("--target", f"there is no target '{name}'", f"choose one of {', '.join(names())}")
    target: Target = import_module(f"{__name__}.{name}").TARGET
    return target
