"""Create a package for a new target: a copy of the template `onemac`, a complete target with passing tests."""

from __future__ import annotations

import keyword
import re
from importlib import resources
from pathlib import Path

from tilewright import targets
from tilewright.errors import InputError, option
from tilewright.files import write_folder

TEMPLATE = "onemac"
SUFFIXES = (".py", ".md", ".toml")


def new_target(name: str, into: str | Path = ".") -> Path:
    """Copy the template to a new folder `into`/tilewright_NAME, rename the target, and return the path of the folder.

    Raises InputError if the name is invalid or taken, or if the folder exists or cannot be created.
    """
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        remedy = "use lower-case letters, digits and _, starting with a letter; Python keywords are reserved"
        raise InputError("NAME", f"'{name}' is not a valid target name", remedy)
    if name in targets.names():
        raise InputError("NAME", f"a target named '{name}' already exists", "choose another name")
    folder = Path(into) / f"{targets.PREFIX}{name}"
    if folder.exists():
        remedy = f"choose another name or folder{option(' (-o)', ' (`into`)')}"
        raise InputError(str(folder), "already exists, and files are never overwritten", remedy)
    sources = resources.files("tilewright.template").joinpath(TEMPLATE).iterdir()
    texts = {source.name: source.read_text(encoding="utf-8") for source in sources if source.name.endswith(SUFFIXES)}
    write_folder(folder, {_renamed(path, name): _renamed(text, name) for path, text in texts.items()})
    return folder


def _renamed(text: str, name: str) -> str:
    """Replace the template's name in its three spellings: onemac, OneMac, ONEMAC."""
    title = "".join(word.capitalize() for word in name.split("_"))
    return text.replace(TEMPLATE, name).replace("OneMac", title).replace(TEMPLATE.upper(), name.upper())
