"""Create a package for a new target: a copy of the template `onemac`, which is complete and has passing tests."""

from __future__ import annotations

import keyword
import re
from importlib import resources
from pathlib import Path

from tilewright import targets
from tilewright.errors import InputError, option

TEMPLATE = "onemac"
SUFFIXES = (".py", ".md", ".toml")


def new_target(name: str, into: str | Path = ".") -> Path:
    """Copy the template to the new folder tilewright_NAME in `into`, rename the target, and return the folder's path.

    Raises InputError if the name is invalid or taken, or if the folder exists or cannot be created.
    """
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        remedy = "use lower-case letters, digits and _, starting with a letter; Python keywords are reserved"
        raise InputError("NAME", f"'{name}' is not a valid target name", remedy)
    if name in targets.names():
        raise InputError("NAME", f"a target named '{name}' already exists", "choose another name")
    folder = Path(into) / f"{targets.PREFIX}{name}"
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        remedy = f"choose another name or folder{option(' (-o)', ' (`into`)')}"
        raise InputError(str(folder), "already exists, and files are never overwritten", remedy) from None
    except OSError as error:
        raise InputError(str(folder), f"cannot be created: {error.strerror or error}") from None
    for source in resources.files("tilewright.template").joinpath(TEMPLATE).iterdir():
        if source.name.endswith(SUFFIXES):
            text = _renamed(source.read_text(encoding="utf-8"), name)
            (folder / _renamed(source.name, name)).write_text(text, encoding="utf-8", newline="\n")
    return folder


def _renamed(text: str, name: str) -> str:
    """Return `text` with the template's name replaced by `name` in each spelling: onemac, OneMac, ONEMAC."""
    title = "".join(word.capitalize() for word in name.split("_"))
    return text.replace(TEMPLATE, name).replace("OneMac", title).replace(TEMPLATE.upper(), name.upper())
