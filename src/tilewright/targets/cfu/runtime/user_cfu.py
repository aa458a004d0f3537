"""Find the CFU that the user names: Verilog files, a class in a Python file, or something that makes an object."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tilewright.errors import InputError, option
from tilewright.targets import gateware

from .seam import Cfu


def maker(cfu: Sequence[str | Path] | Callable[[], Cfu], states: int = 0) -> Callable[[], Cfu]:
    """Return what makes the CFU of a run: `cfu` itself, if it can be called. RTL is compiled once, here.

    Otherwise it has Verilog files, or FILE.py:NAME, which names a class: an Amaranth component or one with the method
    `execute`. `states` is the number of other initial values that are tried (rtl.RtlCfu); only Verilog has any.
    Raises InputError if there is no such class, or if there are no `states`; ConfigError if RTL cannot be compiled.
    """
    if states and (callable(cfu) or ".py:" in str(cfu[0])):
        raise InputError(
            option("--initial-states", "states"),
            "is for a CFU in Verilog: in Amaranth and Python, all values are defined",
        )
    if callable(cfu):
        return cfu
    file, _, name = str(cfu[0]).partition(".py:")
    kind = None
    if name:
        if len(cfu) > 1:
            raise InputError(str(cfu[1]), "is one CFU too many", f"give only {cfu[0]}")
        kind = _class(Path(f"{file}.py"), name)
        if hasattr(kind, "execute"):
            return kind
    with gateware.tools():
        from .rtl import of_amaranth, of_verilog

    return of_amaranth(kind()) if kind else of_verilog(cfu, states)


def _class(path: Path, name: str) -> Callable[[], Any]:
    """Return a class of the user's Python file, which is run."""
    if not path.is_file():
        raise InputError(str(path), "is not a file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, name, None)
    if not isinstance(found, type) or not (hasattr(found, "execute") or hasattr(found, "elaborate")):
        raise InputError(str(path), f"has no CFU named {name}", "name a class with `execute`, or an Amaranth component")
    return found
