"""Facts about this installation: the command that installs an extra, and the installed packages of each extra."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import Distribution

#: The purpose of each extra of pyproject.toml, in the order of `tilewright doctor`.
EXTRAS = {
    "onnx": "reads .onnx models and quantises them",
    "cfu": "a C compiler for firmware of cfu and kernels of bm1684x",
    "rtl": "gateware: Amaranth, Verilator, Yosys",
    "trace": "Perfetto's own trace format; .json traces need nothing",
    "explore": "searches of large spaces of machines, Parquet",
    "cluster": "searches on a Dask cluster",
    "debug": "the prompt of `tilewright debug`; scripts need nothing",
    "docs": "the documentation site and its notebooks",
    "test": "references that the tests compare with",
    "dev": "linter, type checker, pre-commit, nox",
}
#: A requirement of an extra in a distribution's metadata, such as `onnx>=1.17; extra == "onnx"`.
_REQUIREMENT = re.compile(r"""([\w.-]+)\s*([^;]*);.*\bextra\s*==\s*['"]([\w-]+)['"]""")


def hint(extra: str) -> str:
    """Return the command that installs an extra. An editable installation stays editable."""
    folder = checkout()
    if folder is None:
        return f"{_pip()} install 'tilewright[{extra}]'"
    path = "." if folder == Path.cwd() else folder
    return f"{_pip()} install -e {shlex.quote(f'{path}[{extra}]')}"


def checkout() -> Path | None:
    """Return the folder of the checkout from which Tilewright is imported, or None for an installed copy."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "pyproject.toml").is_file() and (root / "src" / "tilewright").is_dir() else None


def origin() -> str:
    """Return the source of this installation: a checkout, the URL of a file or repository, or a package index."""
    if folder := checkout():
        return f"checkout {folder}"
    distribution = _distribution("tilewright")
    text = distribution.read_text("direct_url.json") if distribution else None
    try:
        return str(json.loads(text)["url"]) if text else "package index"
    except (ValueError, LookupError, TypeError):
        return "unknown"


def _pip() -> str:
    """Return "pip" if the shell's pip belongs to this Python, else a command with the path of this Python."""
    pip = shutil.which("pip")
    here = Path(sys.executable)
    if pip and Path(pip).parent == here.parent:
        return "pip"
    shown = os.path.relpath(here) if here.is_relative_to(Path.cwd()) else str(here)
    return f"{shlex.quote(shown)} -m pip"


@dataclass(frozen=True)
class Package:
    """A package of an extra: the required versions, and the installed version or None."""

    name: str
    wanted: str
    installed: str | None


def packages(extra: str) -> tuple[Package, ...]:
    """Return the packages of an extra from the metadata of the installed Tilewright."""
    distribution = _distribution("tilewright")
    lines = (distribution.requires or ()) if distribution else ()
    matches = [match for line in lines if (match := _REQUIREMENT.match(line)) and match[3] == extra]
    return tuple(Package(match[1], match[2].strip(" ()"), version(match[1])) for match in matches)


def version(package: str) -> str | None:
    distribution = _distribution(package)
    return distribution.version if distribution else None


def _distribution(package: str) -> Distribution | None:
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        return distribution(package)
    except PackageNotFoundError:
        return None
