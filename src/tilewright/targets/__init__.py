"""Find targets: sub-packages of this package, installed packages, and packages in folders that the user names.

An installed package declares an entry point in the group `tilewright.targets`. The user names a folder by `--targets
DIR`, or in the environment variable TILEWRIGHT_TARGETS; packages in this folder are called tilewright_NAME. The code of
a target runs with the user's rights, and the target's name may come from an untrusted program file. Therefore other
folders are never searched, such as the current folder or Python's path. See docs/new-target.md and SECURITY.md.
"""

from __future__ import annotations

import inspect
import os
import pkgutil
import site
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from tilewright.errors import InputError, one_of, option
from tilewright.targets.base import Target

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["FOLDERS", "GROUP", "PREFIX", "Target", "add_folder", "folder", "get", "names"]

PREFIX = "tilewright_"
#: The group of the entry points for targets.
GROUP = "tilewright.targets"
#: The environment variable with the user's folders, separated as in PATH. Worker processes inherit this variable.
FOLDERS = "TILEWRIGHT_TARGETS"


def names() -> tuple[str, ...]:
    packages = (path.parent.name for folder in _folders() for path in folder.glob(f"{PREFIX}*/__init__.py"))
    in_folders = {name.removeprefix(PREFIX) for name in packages}
    return tuple(sorted(_built_in() | set(_installed()) | {name for name in in_folders if name.isidentifier()}))


def get(name: str) -> Target:
    """Return the target called `name`.

    Raises InputError if the target does not exist, if two packages have this name, or if the package exports no TARGET
    with this name.
    """
    # The name must be unique. Otherwise a package in a folder could replace a built-in target or another package.
    packages = list(_packages(name))
    if name in _built_in():
        if packages:
            raise InputError(option("--target"), f"'{name}' is a target already", f"rename {packages[0]}")
        place = f"{__name__}.{name}"
        target = getattr(import_module(place), "TARGET", None)
    elif len(packages) > 1:
        both = f"{packages[0]} and {packages[1]}"
        raise InputError(option("--target"), f"'{name}' is ambiguous: {both}", "rename one of them")
    elif packages:
        place = str(packages[0])
        target = getattr(_imported(packages[0]), "TARGET", None)
    elif point := _installed().get(name):
        place = point.value
        target = _loaded(point)
    else:
        elsewhere = f"name the folder of a package {PREFIX}NAME: {option('--targets DIR', FOLDERS)}"
        raise InputError(option("--target"), f"there is no target '{name}'", f"{one_of(name, names())}, or {elsewhere}")
    if target is None or target.name != name:
        reason = "exports no TARGET" if target is None else f"exports a target called '{target.name}'"
        raise InputError(option("--target"), f"{place} {reason}", f"export TARGET with the name '{name}'")
    return target


def add_folder(path: Path) -> None:
    """Add a folder with packages of targets, for this process and its child processes.

    Raises InputError if the folder has no such packages, or if its name contains the character that separates folders.
    """
    if not any(path.glob(f"{PREFIX}*/__init__.py")):
        remedy = f"name the folder that has a package {PREFIX}NAME in it"
        raise InputError(option("--targets"), f"{path} has no target", remedy)
    if os.pathsep in str(path.resolve()):
        raise InputError(option("--targets"), f"{path}: '{os.pathsep}' separates folders", "rename the folder")
    os.environ[FOLDERS] = os.pathsep.join(filter(None, (os.environ.get(FOLDERS), str(path.resolve()))))


def folder(target: Target) -> Path:
    return Path(inspect.getfile(type(target))).resolve().parent


def _built_in() -> set[str]:
    return {module.name for module in pkgutil.iter_modules(__path__) if module.ispkg}


def _folders() -> list[Path]:
    # An empty part of the variable must not become the current folder.
    return [Path(part).resolve() for part in os.environ.get(FOLDERS, "").split(os.pathsep) if part]


def _packages(name: str) -> Iterator[Path]:
    if name.isidentifier():
        for path in dict.fromkeys(folder / f"{PREFIX}{name}" for folder in _folders()):
            if (path / "__init__.py").is_file():
                yield path


def _imported(package: Path) -> ModuleType:
    """Import the package at this path. `import` could find another package with its name in Python's path."""
    name = package.name
    file = package / "__init__.py"
    loaded = sys.modules.get(name)
    if loaded is not None and loaded.__file__ and Path(loaded.__file__).resolve() == file.resolve():
        return loaded
    spec = spec_from_file_location(name, file, submodule_search_locations=[str(package)])
    if loaded is not None or spec is None or spec.loader is None:
        raise InputError(option("--target"), f"{package}: another package {name} is imported", "rename one of them")
    sys.modules[name] = module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _installed() -> dict[str, EntryPoint]:
    # Search only the folders of installed packages, because Python's path may also have the current folder.
    places = {*site.getsitepackages(), site.getusersitepackages()}
    return _entry_points(tuple(path for path in sys.path if path in places))


@cache
def _entry_points(places: tuple[str, ...]) -> dict[str, EntryPoint]:
    """Return the entry points of packages in these folders. If a name occurs twice, the first entry point is used."""
    from importlib.metadata import distributions  # a slow import, which built-in targets do not need

    points = [
        point
        for distribution in distributions(path=list(places))
        for point in distribution.entry_points.select(group=GROUP)
    ]
    return {point.name: point for point in reversed(points)}


def _loaded(point: EntryPoint) -> Target:
    """Import the target of an entry point. Raises InputError if the import fails."""
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise InputError(
            option("--target"), f"{point.value} cannot be imported: {error}", "install it again"
        ) from error
