"""Finds targets: each sub-package that exports TARGET, and each importable package named tilewright_NAME.

There is no list to edit. Your own target is a folder `tilewright_NAME` in the current directory, on PYTHONPATH, or
installed. See docs/new-target.md.
"""

from __future__ import annotations

import inspect
import pkgutil
import sys
from contextlib import suppress
from importlib import import_module, invalidate_caches
from importlib.util import find_spec
from pathlib import Path

from tilewright.errors import InputError, one_of, option
from tilewright.targets.base import TakesSchedules, Target

__all__ = ["PREFIX", "Target", "folder", "get", "names", "takes_schedules"]

PREFIX = "tilewright_"


def names() -> tuple[str, ...]:
    """Return the names of all targets, sorted."""
    found = {module.name for module in pkgutil.iter_modules(__path__) if module.ispkg}
    _look_here()
    own = (module.name for module in pkgutil.iter_modules() if module.ispkg and module.name.startswith(PREFIX))
    return tuple(sorted(found | {name.removeprefix(PREFIX) for name in own}))


def get(name: str) -> Target:
    """Return the target called `name`.

    Raises InputError if there is no such target, if two packages have this name, or if the package exports no TARGET
    of this name.
    """
    _look_here()
    places = [
        place for place in (f"{__name__}.{name}", f"{PREFIX}{name}") if name.isidentifier() and _is_package(place)
    ]
    if not places:
        raise InputError(option("--target"), f"there is no target '{name}'", one_of(name, names()))
    if len(places) > 1:
        raise InputError(option("--target"), f"'{name}' is ambiguous: {' and '.join(places)}", f"rename {places[1]}")
    package = import_module(places[0])
    target: Target | None = getattr(package, "TARGET", None)
    if target is None or target.name != name:
        reason = "exports no TARGET" if target is None else f"exports a target called '{target.name}'"
        raise InputError(option("--target"), f"{places[0]} {reason}", f"export TARGET with the name '{name}'")
    return target


def takes_schedules(target: Target, where: str = "schedule") -> TakesSchedules:
    """Return a target that takes schedules of the user's. Raises InputError, which names `where`, if it takes none."""
    if not isinstance(target, TakesSchedules):
        raise InputError(
            where, f"{target.name} takes no schedules of layers", f"choose {option('-t vta', 'the target vta')}"
        )
    return target


def folder(target: Target) -> Path:
    """Return the folder of a target's sources."""
    return Path(inspect.getfile(type(target))).resolve().parent


def _look_here() -> None:
    """Let packages in the current directory be imported if a target may be among them, as `python -m` does.

    The directory is the last place that is searched, so that it replaces nothing.
    """
    with suppress(OSError):  # the directory was deleted
        here = Path.cwd()
        if str(here) not in sys.path and "" not in sys.path and any(here.glob(f"{PREFIX}*/__init__.py")):
            sys.path.append(str(here))
            invalidate_caches()


def _is_package(module: str) -> bool:
    """Return whether a package can be imported. Unlike `names`, this finds packages that import hooks provide."""
    spec = find_spec(module)
    return spec is not None and bool(spec.submodule_search_locations) and spec.origin is not None
