"""Compile firmware: kernels in C with the recorder, as a shared library.

A library is code of this machine. Building runs nothing of it; loading it runs it, in a process of its own.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tilewright.errors import InputError
from tilewright.files import regular, replacing
from tilewright.targets.bm1684x.native.headers import FIXED, files

#: Compilers that are looked for, in this order. $CC comes first, the package ziglang last.
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-std=gnu11", "-O0", "-g", "-fPIC", "-Wall", "-Wno-unused-function", "-fno-strict-aliasing")
#: A function that the header does not declare is an error: its name is wrong, or it is not supported. What published
#: kernels contain stays a warning where newer compilers make it an error, such as `.stride = NULL` for a struct.
ERRORS = (
    "-Werror=implicit-function-declaration",
    *(f"-Wno-error={name}" for name in ("int-conversion", "incompatible-pointer-types")),
)
#: Without it, a function that no source defines would only be missed when the firmware is loaded.
COMPLETE = ("-Wl,--no-undefined",) if sys.platform == "linux" else ()
#: Errors of the compiler that a message repeats.
SHOWN = 3
#: A compiler that takes longer is stopped, in seconds.
TIMEOUT = 300


def compiler() -> list[str]:
    """Return the command of a C compiler. Raises InputError if there is none, or if $CC names one that is missing."""
    if given := shlex.split(os.environ.get("CC", "")):
        if shutil.which(given[0]) is None:
            raise InputError("CC", f"there is no program {given[0]}", "set CC to a C compiler")
        return given
    for name in COMPILERS:
        if shutil.which(name):
            return [name]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    raise InputError("firmware", "there is no C compiler", "install gcc or clang, or pip install 'tilewright[cfu]'")


def library(
    output: Path, sources: Sequence[Path], flags: Sequence[str], generated: dict[str, str] | None = None
) -> str:
    """Compile C files into a shared library, whose file is replaced as a whole. Return the compiler's warnings.

    `generated` are further C files and headers, by name. Raises InputError with the compiler's messages.
    """
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        for name, text in (generated or {}).items():
            Path(folder, name).write_text(text, encoding="utf-8")
        made = Path(folder, "library")
        extra = [str(Path(folder, name)) for name in generated or {} if name.endswith(".c")]
        command = [*compiler(), *FLAGS, *ERRORS, "-shared", *COMPLETE, f"-I{FIXED}", f"-I{folder}", *flags]
        command += [*map(str, sources), *extra, "-o", str(made), "-lm", "-pthread"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError("firmware", f"the compiler does not run: {error}", "set CC to a C compiler") from None
        if done.returncode or not made.exists():
            raise InputError("firmware", f"it does not compile: {_errors(done.stderr)}", "correct the source")
        with replacing(output) as file:
            file.write(made.read_bytes())
        return done.stderr.strip()


def _errors(text: str) -> str:
    """Return the first errors in a compiler's messages."""
    lines = [line.strip() for line in text.splitlines() if "error:" in line or "undefined" in line]
    return "; ".join(lines[:SHOWN] or [text.strip()[:500]])


def firmware(sources: Sequence[str | Path], output: str | Path, flags: Sequence[str] = ()) -> str:
    """Compile kernels in C (`sources`) to the firmware `output`, and return the compiler's warnings.

    `flags` are further arguments of the compiler.
    Raises InputError if a source cannot be read, or does not compile.
    """
    if not sources:
        raise InputError("firmware", "there is no source", "give C files")
    given = [regular(source) for source in map(Path, sources)]
    for source in given:
        if source.suffix not in (".c", ".o", ".a"):
            raise InputError(str(source), "is not a C file", "give .c files (.o and .a are linked)")
    return library(Path(output), [*given, FIXED / "recorder.c"], [f"-I{given[0].parent}", *flags], dict(files()))
