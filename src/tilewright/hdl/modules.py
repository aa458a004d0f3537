"""Readable Verilog: one file per module, with a comment at the top, and attributes that name Python lines.

Every component inside of the top component becomes a module with the ports of its signature. Equal components become
one module. The name of a module is the class of its component, unless `part` gives another name. Modules with the same
name are distinguished by the path of their first use: BankedMemory_inp.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from textwrap import indent
from typing import Any, TypeVar

import amaranth
from amaranth.back.rtlil import convert_fragment
from amaranth.hdl import ClockSignal, Fragment, Instance, ResetSignal, Value
from amaranth.hdl._ast import SignalDict, SignalSet
from amaranth.hdl._ir import PortDirection
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In

from tilewright.array import uncollected
from tilewright.errors import ConfigError
from tilewright.hdl.build import ZEROS, yosys_result

#: `src` attributes have paths of files in these folders.
FOLDERS = (f"{Path(__file__).parents[2]}/", f"{Path(amaranth.__file__).parents[1]}/")
#: A Verilog module and the attributes before it.
VERILOG = re.compile(r"((?:^\(\*[^\n]*\*\)\n)*)^module (\w+)\(.*?^endmodule\n", re.MULTILINE | re.DOTALL)
#: In RTLIL, module number N first has the temporary name @N, and ITSELF in its own text. Thus equal modules have equal
#: texts. The final names are chosen when all equal modules are known.
NUMBERED = re.compile(r"\\@(\d+)")
ITSELF = "@"
#: An inner module that is not a component, such as a FIFO of Amaranth's library.
INNER = re.compile(r"\\@\.([\w.]+)")
_Part = TypeVar("_Part", bound=Component)


def part(component: _Part, name: str) -> _Part:
    """Name the Verilog module of a component. Return the component."""
    component.__dict__["module_name"] = name
    return component


@dataclass(frozen=True)
class _Module:
    """A module in RTLIL: its component, and its path from the top module."""

    component: Any
    path: tuple[str, ...]
    text: str

    @property
    def name(self) -> str:
        return str(self.component.__dict__.get("module_name", type(self.component).__name__))

    @property
    def clocked(self) -> bool:
        return bool(re.search(r" input \d+ +\\clk$", self.text, re.MULTILINE))


class _Modules:
    """The modules of a component, without duplicates. A module comes after its submodules."""

    def __init__(self) -> None:
        self.modules = list[_Module]()
        self.numbers = dict[tuple[str, str], int]()  # {(name, text): number}
        self.driven: Any = SignalDict()  # {signal: (component that drives the signal, ports of this component)}
        self.read = list[tuple[Any, Any, Any]]()  # (signal, component that reads the signal, ports of this component)

    def add(self, component: Any, fragment: Fragment, path: tuple[str, ...]) -> int:
        """Add the modules of a component, elaborated to `fragment`. Return the number of its own module."""
        # Inner components come first, because the text of this module contains their numbers. So the texts of two
        # modules are equal if the modules and all their submodules are equal.
        for at, (inner, name, src) in enumerate(fragment.subfragments):
            origin = (inner.origins or (None,))[0]
            if isinstance(origin, Component) and not isinstance(origin, Memory):
                number = self.add(origin, inner, (*path, name))
                fragment.subfragments[at] = (self._instance(origin, number, src), name, src)
        ports = {
            name: (Value.cast(value), PortDirection.Input if is_input else PortDirection.Output)
            for name, is_input, value in _ports(component)
        }
        self._note(component, fragment)
        module = _Module(component, path, convert_fragment(fragment, ports, ITSELF)[0])
        number = self.numbers.setdefault((module.name, module.text), len(self.modules))
        if number == len(self.modules):
            self.modules.append(module)
        return number

    def _note(self, component: Any, fragment: Fragment) -> None:
        """Record the signals that a component drives and reads, without those of inner components."""
        ports = SignalSet(signal for _, _, port in _ports(component) for signal in Value.cast(port)._rhs_signals())
        for statement in chain.from_iterable(fragment.statements.values()):
            for signal in statement._lhs_signals():
                self.driven[signal] = component, ports
            for signal in statement._rhs_signals():
                self.read.append((signal, component, ports))

    def check(self) -> None:
        """Raises ConfigError if a component reads a signal of another component that is not a port."""
        for signal, component, ports in self.read:
            driver, driver_ports = self.driven.get(signal, (component, ports))
            if driver is not component and signal not in ports and signal not in driver_ports:
                reason = f"{type(component).__name__} reads {signal.name} of {type(driver).__name__}, which is no port"
                raise ConfigError("Verilog", reason, "make it a port")

    def _instance(self, component: Any, number: int, src: Any) -> Instance:
        ports = {f"{'i' if is_input else 'o'}_{name}": value for name, is_input, value in _ports(component)}
        clock = {"i_clk": ClockSignal(), "i_rst": ResetSignal()} if self.modules[number].clocked else {}
        return Instance(f"@{number}", src_loc=src, **clock, **ports)

    def named(self, top: str) -> list[str]:
        """Return the names of all modules. The last module is the top module, with the name `top`."""
        names = [module.name for module in self.modules[:-1]]
        namesakes = {name: [m.path for m in self.modules[:-1] if m.name == name] for name in names}
        return [_placed(name, m.path, namesakes[name]) for name, m in zip(names, self.modules, strict=False)] + [top]


def _placed(name: str, path: tuple[str, ...], namesakes: list[tuple[str, ...]]) -> str:
    """Return a unique name for a module: `name`, and the last parts of its path that make it unique."""
    for length in range(len(path) + 1):
        end = path[len(path) - length :]
        if sum(same[len(same) - length :] == end for same in namesakes) == 1:
            break
    return "_".join((name, *end))


def _ports(component: Any) -> Iterator[tuple[str, bool, Any]]:
    for path, member, value in component.signature.flatten(component):
        yield "__".join(map(str, path)), member.flow is In, value


def verilog_rtlil(component: Any, name: str, reset: str = "rst") -> tuple[str, dict[str, str]]:
    """Return RTLIL with a module for each inner component, and the docstrings {module: text}, the top module first.

    `name` is the name of the top module, and `reset` the name of its reset.
    """
    modules = _Modules()
    with uncollected():
        modules.add(component, Fragment.get(component, None), ())
        modules.check()
    names = modules.named(name)
    texts = list[str]()
    heads = {
        module_name: inspect.getdoc(type(module.component)) or ""
        for module_name, module in zip(names, modules.modules, strict=True)
    }
    for module_name, module in zip(names, modules.modules, strict=True):
        text = ZEROS.sub("", module.text).replace(f"module \\{ITSELF}\n", f"module \\{module_name}\n")
        text = NUMBERED.sub(lambda match: f"\\{names[int(match[1])]}", text)
        inner = {path: f"{module_name}_{path.replace('.', '_')}" for path in INNER.findall(text)}
        heads |= dict.fromkeys(inner.values(), f"A part of {module_name}.")
        # Begin with the longest path, because one path can be the beginning of another.
        for path in sorted(inner, key=len, reverse=True):
            text = text.replace(f"\\@.{path}", f"\\{inner[path]}")
        texts.append(text)
    text = "\n".join(texts).replace("\\rst ", f"\\{reset} ").replace("\\rst\n", f"\\{reset}\n")
    for folder in FOLDERS:
        text = text.replace(folder, "")
    return text, {name: heads[name], **heads}


def verilog_files(component: Any, name: str, reset: str = "rst") -> dict[str, str]:
    """Return a component as Verilog files {name: text}, one for each module. The first has the top module, `name`."""
    source, heads = verilog_rtlil(component, name, reset)
    script = f"hierarchy -check -top {name}; proc -norom; memory_collect; opt_clean; setattr -mod -unset generator"
    files = {}
    for match in VERILOG.finditer(yosys_result(source, f"{script}; write_verilog result")):
        head = indent(heads[match[2]], "// ", lambda line: True).replace("// \n", "//\n")
        files[f"{match[2]}.v"] = f"{head}\n{match[0]}"
    return {file: files[file] for file in sorted(files, key=lambda file: (file != f"{name}.v", file))}
