"""What `tilewright new-target` copies: a whole target, tested as it stands."""

from __future__ import annotations

import keyword
import re
from importlib import resources
from pathlib import Path

from tilewright import targets
from tilewright.errors import InputError

TEMPLATE = "onemac"
SUFFIXES = (".py", ".md")


def new_target(name: str, into: str | Path = ".") -> Path:
    """Write the package tilewright_NAME into the folder `into`; its path. Nothing that exists is overwritten.

    Raises InputError for a name that cannot be a target's or is one already, and for a folder that is there.
    """
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        remedy = "start with a letter; lower-case letters, digits and _ may follow"
        raise InputError("NAME", f"'{name}' cannot name a target", remedy)
    if name in targets.names():
        raise InputError("NAME", f"there is a target '{name}' already", "choose another name")
    folder = Path(into) / f"{targets.PREFIX}{name}"
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise InputError(str(folder), "exists, and is not overwritten", "choose another name or folder (-o)") from None
    except OSError as error:
        raise InputError(str(folder), f"cannot be made: {error.strerror or error}") from None
    for source in resources.files("tilewright.template").joinpath(TEMPLATE).iterdir():
        if source.name.endswith(SUFFIXES):
            text = _renamed(source.read_text(encoding="utf-8"), name)
            (folder / _renamed(source.name, name)).write_text(text, encoding="utf-8", newline="\n")
    return folder


def _renamed(text: str, name: str) -> str:
    """The template's name, in the three ways in which it is written."""
    title = "".join(word.capitalize() for word in name.split("_"))
    return text.replace(TEMPLATE, name).replace("OneMac", title).replace(TEMPLATE.upper(), name.upper())
