"""Compile firmware (kernels in C and the recorder, as a shared library), and the library for hosts in C.

Two files are generated: `tpu_calls.h` declares the API functions, and `calls.c` defines functions that record the
calls.

A library is native code for this computer. Building a library does not run its code. Loading a library runs its code in
a separate process.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.errors import InputError
from tilewright.files import regular
from tilewright.native.build import library
from tilewright.native.hosts import HostLibrary
from tilewright.targets.bm1684x.capi.names import PROTOTYPES, CType, Prototype
from tilewright.targets.bm1684x.isa.rules import WIDEST_STEP
from tilewright.targets.bm1684x.layouts.tensor import LARGEST

#: The folder of the hand-written C files.
FIXED = Path(__file__).parent / "c"
_HEADER = """/* Made from the tables of the model: do not edit. Each macro notes the line of a call. */
#ifndef TPU_CALLS_H
#define TPU_CALLS_H
#ifdef __cplusplus
extern "C" {{
#endif
{declarations}
#ifdef __cplusplus
}}
#endif
{macros}
#endif
"""


def files() -> Mapping[str, str]:
    """Return the generated C files by name. `calls.c` also defines limits of the device API, and the fingerprint."""
    prototypes = PROTOTYPES.values()
    macros = [
        f"#define {prototype.name}(...) (tw_at(__FILE__, __LINE__), {prototype.name}(__VA_ARGS__))"
        for prototype in prototypes
    ]
    header = _HEADER.format(
        declarations="\n".join(f"{prototype.declaration};" for prototype in prototypes), macros="\n".join(macros)
    )
    bodies = "\n".join(_body(prototype) for prototype in prototypes)
    limits = f"const int tw_largest = {LARGEST}, tw_widest = {WIDEST_STEP};"
    source = f'#include "recorder.h"\nconst char tw_fingerprint[] = "{fingerprint()}";\n{limits}\n{bodies}'
    return {"tpu_calls.h": header, "calls.c": source}


def fingerprint() -> str:
    """Return a digest of all prototypes and the recorder. Firmware with a different digest must be compiled again."""
    text = "\n".join(f"{prototype.declaration} {prototype.format}" for prototype in PROTOTYPES.values())
    recorder = (FIXED / "recorder.c").read_bytes()
    return hashlib.sha256(text.encode() + recorder).hexdigest()[:32]


def _body(prototype: Prototype) -> str:
    put = []
    for kind, name in prototype.parameters:
        if kind.endswith("*"):
            put.append(f"TW_PUT_POINTER(tw_to, {name});")
        else:
            put.append(f"{'TW_PUT_ENUM' if kind in (CType.DTYPE, CType.MODE) else 'TW_PUT'}(tw_to, {name});")
    lines = "".join(f"    {line}\n" for line in put)
    size = struct.calcsize(prototype.format)
    record = f"    unsigned char *tw_to = tw_record({prototype.number}, {size});\n"
    return f"{prototype.declaration} {{\n{record}{lines}    tw_recorded();\n}}\n"


FLAGS = ("-O0", "-g", "-Wno-unused-function", "-fno-strict-aliasing")
#: A call of an undeclared function is an error: the name is wrong, or the function is not supported. Some code of
#: published kernels, such as `.stride = NULL` for a struct, is an error in newer compilers. The flags turn this error
#: into a warning.
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
    paths = [regular(source) for source in map(Path, sources)]
    for source in paths:
        if source.suffix not in (".c", ".o", ".a"):
            raise InputError(str(source), "is not a C file", "give .c files (.o and .a are linked)")
    flags = [*FLAGS, *ERRORS, f"-I{FIXED}", f"-I{paths[0].parent}", *flags]
    return library("firmware", Path(output), [*paths, FIXED / "recorder.c"], flags, files())


REQUESTS = (
    *("hello", "malloc", "free", "s2d", "d2s", "d2d", "fill", "firmware", "module", "unload", "function"),
    *("launch", "launch_async", "numbered", "sync", "cycles", "close"),
)
LIBRARY = HostLibrary(
    "tilewright_bm1684x",
    server="tilewright.targets.bm1684x.host.serve",
    requests=REQUESTS,
    sources=(FIXED / "host.c",),
    include=Path(__file__).parent / "include",
)
