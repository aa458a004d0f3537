"""The user's firmware: a project written by `tilewright new-firmware`, or an ELF file that the user has linked.

A project has the kernels in `src/`, the rest of the program in `lib/`, and the generated headers and linker script of
one machine in `machine/`. For a run on another machine, Tilewright uses generated files for that machine instead.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.errors import InputError
from tilewright.files import regular, scratch, write_folder
from tilewright.targets.cfu.config import RAM_BASE, Config
from tilewright.targets.cfu.runtime import elf
from tilewright.tools import compiling, started

from . import layout
from .firmware import SOURCES, Compiler, linker_script, machine_header, tiles
from .layout import Kind

TEMPLATE = SOURCES.parent / "project"
#: The files of the built-in firmware that are not copied to a project.
ELSEWHERE = ("link.ld", "variants", "main.c")
#: The kernel function of each kind of operator. The interpreter itself executes copies.
ENTRIES = {
    Kind.CONV: "conv_2d",
    Kind.DEPTHWISE: "depthwise_conv_2d",
    Kind.FULLY_CONNECTED: "fully_connected",
    Kind.ADD: "add",
    Kind.AVERAGE_POOL: "average_pool_2d",
    Kind.MAX_POOL: "max_pool_2d",
    Kind.SOFTMAX: "softmax",
}
#: The built-in kernel from which each kernel file of a new project is made.
KERNELS = {
    "conv_2d": "reference/conv_2d.h",
    "depthwise_conv_2d": "reference/depthwise_conv_2d.h",
    "fully_connected": "reference/fully_connected.h",
    "add": "reference/add.h",
    "pool": "pool.h",
    "softmax": "softmax.h",
}
#: Declarations of local variables in place of parameters, because functions declared by LAYER have fixed parameters.
PARAMETERS = {
    "add": "\n  const int size = op->out_h * op->out_w * op->out_c;",
    "softmax": "\n  const int8_t *input = o->input;\n  int8_t *output = o->output;",
}
#: The declaration of a built-in kernel in C.
KERNEL = re.compile(r"KERNEL void \w+\([^)]*\) \{")
POOLS = (
    "\nLAYER(average_pool_2d) { pool(op, o->input, o->output, 0); }\n\n"
    "LAYER(max_pool_2d) { pool(op, o->input, o->output, 1); }\n"
)
PROGRAM_BYTES = 1 << 20  # limit of program and data in an ELF file
PATIENCE = 120  # seconds for a compiler
SYMBOLS = ("model", "text_end", "stack_top")
SHOWN = 3


def write(folder: Path, config: Config) -> list[str]:
    """Write a new project and return the paths of its files in the folder.

    Raises InputError if the folder is not empty or cannot be written.
    """
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(str(folder), "is not empty, and files are never overwritten", "choose another folder")
    files = {path.name: path.read_text() for path in TEMPLATE.iterdir() if path.suffix != ".h"}
    files |= {f"lib/{path.name}": path.read_text() for path in TEMPLATE.glob("*.h")}
    for path in sorted(SOURCES.rglob("*.[chS]")):
        place = path.relative_to(SOURCES)
        if place.parts[0] not in ELSEWHERE:
            files[f"lib/{place.as_posix()}"] = path.read_text()
    files["lib/main.c"] = (SOURCES / "main.c").read_text().replace("#include VARIANT", '#include "kernels.h"')
    files |= {f"src/{name}.c": _kernel(name) for name in KERNELS}
    files |= {f"machine/{name}": text for name, text in machine_files(config).items()}
    write_folder(folder, files)
    return sorted(files)


def _kernel(name: str) -> str:
    text = (SOURCES / "kernels" / KERNELS[name]).read_text()
    text = re.sub(r"#if TUNED.*?\n.*?#else\n(.*?)#endif\n", r"\1", text, flags=re.DOTALL)  # only for `tuned`
    text = re.sub(r" *COMPUTE_AGAIN.*\n", "", text)  # used only by a benchmark
    about, _, rest = text.partition("#pragma once\n")
    rest = re.sub(r'#include "(\.\./)+\w+\.h"\n', "", rest).strip("\n")
    if name == "pool":  # this kernel is for two kinds of layers
        return f'{about}#include "kernels.h"\n\n{rest}\n{POOLS}'
    layer, count = KERNEL.subn(f"LAYER({name}) {{" + PARAMETERS.get(name, ""), rest, count=1)
    assert count
    return f'{about}#include "kernels.h"\n\n{layer}\n'


def machine_files(config: Config) -> dict[str, str]:
    macros = "".join(f"#define {name} {value}\n" for name, value in {**tiles(config), "TUNED": 0}.items())
    return {
        "cfu_machine.h": machine_header(config),
        "layout.h": layout.c_header(),
        "tiles.h": f"// The largest tiles that fit the buffers of the array.\n#pragma once\n{macros}",
        "link.ld": linker_script(config.ram_bytes),
    }


@dataclass(frozen=True)
class Project:
    """The user's firmware at a path: a project's folder, or an ELF file."""

    path: Path

    @classmethod
    def at(cls, path: str | Path) -> Project:
        """Return the project at a path. Raises InputError if the path is neither a project's folder nor a file."""
        path = Path(path)
        if path.is_dir():
            if not any((path / "src").glob("*.[cS]")):
                raise InputError(
                    str(path), "has no kernels in src/", f"write a project: tilewright new-firmware {path}"
                )
        else:
            regular(path)
        return cls(path)

    @property
    def compiled(self) -> bool:
        return not self.path.is_dir()

    def program(self, config: Config, compiler: Compiler | None) -> elf.Executable:
        """Return the ELF program for a machine. Raises InputError if the project does not compile, or is too large."""
        program = elf.load(self.path) if compiler is None else elf.load(self._built(config, compiler))
        missing = [name for name in SYMBOLS if name not in program.symbols]
        if missing:
            raise InputError(str(self.path), f"has no symbol {', '.join(missing)}", "link it with a project's link.ld")
        model, text_end, top = (program.symbols[name].address for name in SYMBOLS)
        end = max(segment.address + segment.size for segment in program.segments)
        lowest = min(segment.address for segment in program.segments)
        if lowest < RAM_BASE or not RAM_BASE <= text_end <= end <= model <= RAM_BASE + PROGRAM_BYTES or model % 4:
            reason = f"has its parts at {lowest:#x}..{end:#x}, and model at {model:#x}"
            remedy = f"link it with a project's link.ld; at most {PROGRAM_BYTES >> 20} MiB from {RAM_BASE:#x} on"
            raise InputError(str(self.path), reason, remedy)
        if top > RAM_BASE + config.ram_bytes:
            reason = f"needs main memory up to {top:#x}; this machine's ends at {RAM_BASE + config.ram_bytes:#x}"
            raise InputError(str(self.path), reason, "link it for this machine, or raise ram_bytes")
        return program

    def _built(self, config: Config, compiler: Compiler) -> bytes:
        """Compile a project for a machine. The paths in messages are relative to the project."""
        folder = self.path
        flags = folder / "flags.txt"
        try:
            flags_asked = shlex.split(regular(flags).read_text(), comments=True) if flags.exists() else []
        except ValueError as error:
            raise InputError(str(flags), f"cannot be read: {error}") from None
        files = [path for part in ("src", "lib") for path in sorted((folder / part).rglob("*.[cS]")) if path.is_file()]
        sources = [path.relative_to(folder).as_posix() for path in files]
        with scratch() as machine:
            for name, text in machine_files(config).items():
                (machine / name).write_text(text)
            output = machine / "firmware.elf"
            places = (
                f"-I{machine}",
                "-Ilib",
                "-Isrc",
                f"-ffile-prefix-map={machine}=machine",
                "-T",
                f"{machine}/link.ld",
            )
            command = (*compiler.command, *flags_asked, *places, *sources, *compiler.flags, "-o", str(output))
            status, messages = _run(command, folder, compiling(machine))
            if status is None:
                raise InputError(str(folder), f"is not compiled in {PATIENCE} s by {compiler.version}")
            if status or not output.is_file():
                raise _refused(folder, compiler, messages)
            return output.read_bytes()


def _run(command: Sequence[str], folder: Path, extra: Mapping[str, str]) -> tuple[int | None, str]:
    """Run a command in a folder. Return the exit status (None: stopped after PATIENCE seconds) and the messages."""
    try:
        with started(command, folder, extra) as process:
            from tilewright.targets.cfu.runtime import launch  # noqa: F401  takes time: import it meanwhile

            _, messages = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return None, ""
    return process.returncode, messages


def _refused(folder: Path, compiler: Compiler, messages: str) -> InputError:
    errors = re.findall(r"^([^\s:]+:\d+):\d+: (?:fatal )?error: (.*)$", messages, re.MULTILINE)
    texts = [f"{place}: {text}" for place, text in errors]
    if not texts:  # the linker
        lines = [line.strip() for line in messages.splitlines() if line.strip()]
        texts = [line for line in lines if "error" in line or "undefined reference" in line] or lines[:1]
    more = f" (and {len(texts) - SHOWN} more)" if texts[SHOWN:] else ""
    reason = f"does not compile with {compiler.version}: {'; '.join(texts[:SHOWN]) or 'no message'}{more}"
    return InputError(str(folder), reason, "correct it; `make` in this folder prints all messages")


def kernel_names(program: elf.Executable) -> Mapping[Kind, str]:
    source = elf.Source(program)
    names = {}
    for kind, name in ENTRIES.items():
        symbol = program.functions.get(name)
        place = source.place(symbol.address).file if symbol else ""
        names[kind] = f"{name} ({place})" if place else name
    return names
