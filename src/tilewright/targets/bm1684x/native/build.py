"""Compile firmware: kernels in C with the recorder, as a shared library.

A library is code of this machine. Building runs nothing of it; loading it runs it, in a process of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tilewright.errors import InputError
from tilewright.files import regular
from tilewright.native.build import library
from tilewright.targets.bm1684x.native.headers import FIXED, files

FLAGS = ("-O0", "-g", "-Wno-unused-function", "-fno-strict-aliasing")
#: A function that the header does not declare is an error: its name is wrong, or it is not supported. What published
#: kernels contain stays a warning where newer compilers make it an error, such as `.stride = NULL` for a struct.
ERRORS = (
    "-Werror=implicit-function-declaration",
    *(f"-Wno-error={name}" for name in ("int-conversion", "incompatible-pointer-types")),
)


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
    flags = [*FLAGS, *ERRORS, f"-I{FIXED}", f"-I{given[0].parent}", *flags]
    return library("firmware", Path(output), [*given, FIXED / "recorder.c"], flags, files())
