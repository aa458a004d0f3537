"""Verilog for people: one file for each module, with a comment at its head, and attributes that name Python lines."""

from __future__ import annotations

import inspect
import re
from contextvars import ContextVar
from pathlib import Path
from textwrap import indent
from typing import Any

import amaranth
from amaranth.hdl import ClockSignal, Instance, ResetSignal
from amaranth.lib.wiring import In

from tilewright.hdl.build import made, to_rtlil

#: Folders that hold the packages which `src` attributes name.
FOLDERS = (f"{Path(__file__).parents[2]}/", f"{Path(amaranth.__file__).parents[1]}/")
#: In Verilog, a module with the attributes before it.
VERILOG = re.compile(r"((?:^\(\*[^\n]*\*\)\n)*)^module (\w+)\(.*?^endmodule\n", re.MULTILINE | re.DOTALL)
#: While files are made: the components that are files of their own, by the name of their module.
_apart: ContextVar[dict[str, Any] | None] = ContextVar("components", default=None)


def part(component: Any, name: str, clocked: bool = True) -> Any:
    """Return what to add to `m.submodules` for a component, so that `verilog_files` writes it as module `name`.

    Components with the same name must be equal. `clocked`: whether the component has registers.
    """
    apart = _apart.get()
    if apart is None:
        return component
    apart.setdefault(name, component)
    component._MustUse__used = True  # or Amaranth warns of each component of which an equal one is converted
    ports = {
        f"{'i' if member.flow is In else 'o'}_{'__'.join(map(str, path))}": value
        for path, member, value in component.signature.flatten(component)
    }
    clock = {"i_clk": ClockSignal(), "i_rst": ResetSignal()} if clocked else {}
    return Instance(name, **clock, **ports)


def verilog_rtlil(component: Any, name: str, reset: str = "rst") -> tuple[str, dict[str, str]]:
    """Return a component as RTLIL with a module for each `part`, and the docstring of each module by its name.

    `reset` is the name of the reset.
    """
    apart = {name: component}
    token = _apart.set(apart)
    try:
        texts, heads = list[str](), dict[str, str]()
        while len(heads) < len(apart):  # converting one component finds its parts
            name, part_ = list(apart.items())[len(heads)]
            texts.append(to_rtlil(part_, name, src=True))
            heads[name] = inspect.getdoc(type(part_)) or ""
    finally:
        _apart.reset(token)
    text = "\n".join(texts).replace("\\rst ", f"\\{reset} ").replace("\\rst\n", f"\\{reset}\n")
    for folder in FOLDERS:
        text = text.replace(folder, "")
    return text, heads


def verilog_files(component: Any, name: str, reset: str = "rst") -> dict[str, str]:
    """Return a component as Verilog text, by file name: a file for each `part`, and first that of the module `name`."""
    source, heads = verilog_rtlil(component, name, reset)
    script = f"hierarchy -check -top {name}; proc -norom; memory_collect; opt_clean; setattr -mod -unset generator"
    files = {}
    for match in VERILOG.finditer(made(source, f"{script}; write_verilog result")):
        head = indent(heads.get(match[2], "A memory."), "// ", lambda line: True).replace("// \n", "//\n")
        files[f"{match[2]}.v"] = f"{head}\n{match[0]}"
    return {file: files[file] for file in sorted(files, key=lambda file: (file != f"{name}.v", file))}
