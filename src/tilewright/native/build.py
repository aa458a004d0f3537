"""Compile C files into a shared library or a program, with the user's C compiler."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.errors import InputError
from tilewright.files import replacing, scratch
from tilewright.install import hint
from tilewright.tools import compiling, run

#: The compilers to search for in this order if $CC is not set. The package ziglang comes last.
COMPILERS = ("cc", "gcc", "clang")
#: This linker option reports undefined functions; without it, a library fails only when it is loaded.
COMPLETE = ("-Wl,--no-undefined",) if sys.platform == "linux" else ()
#: The number of compiler errors that a message quotes.
SHOWN = 3
#: The time limit of a compiler, in seconds.
TIMEOUT = 300


def compiler(subject: str) -> list[str]:
    """Return the command of a C compiler.

    Raises InputError if no compiler is installed, or if the compiler in $CC is missing. The message begins with
    `subject`.
    """
    if command := shlex.split(os.environ.get("CC", "")):
        if shutil.which(command[0]) is None:
            raise InputError("CC", f"there is no program {command[0]}", "set CC to a C compiler")
        return command
    for name in COMPILERS:
        if shutil.which(name):
            return [name]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-P", "-m", "ziglang", "cc"]
    raise InputError(subject, "there is no C compiler", f"install gcc or clang, or {hint('cfu')}")


def library(
    subject: str,
    output: Path,
    sources: Sequence[Path],
    flags: Sequence[str],
    generated: Mapping[str, str] | None = None,
) -> str:
    """Compile C files into a shared library and return the compiler's warnings. The file is replaced atomically.

    `generated` has further C files and headers, {name: text}. Raises InputError, naming `subject`, with the compiler's
    messages.
    """
    return _compiled(subject, output, sources, ["-fPIC", "-Wall", "-shared", *COMPLETE, *flags], [], generated or {})


def program(subject: str, output: Path, source: Path, flags: Sequence[str], libraries: Sequence[str]) -> str:
    """Compile a C file into a program. Return the warnings. Raises InputError, naming `subject`, with the errors."""
    warnings = _compiled(
        subject,
        output,
        [source],
        ["-O2", "-Werror=implicit-function-declaration", f"-I{source.parent}", *flags],
        libraries,
        {},
    )
    output.chmod(0o700)
    return warnings


def _compiled(
    subject: str,
    output: Path,
    sources: Sequence[Path],
    flags: Sequence[str],
    libraries: Sequence[str],
    generated: Mapping[str, str],
) -> str:
    with scratch() as folder:
        for name, text in generated.items():
            (folder / name).write_text(text, encoding="utf-8")
        output_file = folder / "made"
        extra = [str(folder / name) for name in generated if name.endswith(".c")]
        command = [*compiler(subject), "-std=gnu11", f"-I{folder}", *flags]
        command += [*map(str, sources), *extra, "-o", str(output_file), *libraries, "-lm", "-pthread"]
        try:
            done = run(command, Path.cwd(), compiling(folder), TIMEOUT)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(subject, f"the compiler does not run: {error}", "set CC to a C compiler") from None
        if done.returncode or not output_file.exists():
            raise InputError(subject, f"it does not compile: {_errors(done.stderr)}", "correct the source")
        # Another process may load the file, so the file must be complete at any moment.
        with replacing(output) as file:
            file.write(output_file.read_bytes())
        return done.stderr.strip()


def _errors(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if "error:" in line or "undefined" in line]
    return "; ".join(lines[:SHOWN] or [text.strip()[:500]])
