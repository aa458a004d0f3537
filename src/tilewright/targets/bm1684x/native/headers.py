"""The generated C files: `tpu_calls.h` declares the functions of the tables, `calls.c` records their calls."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from pathlib import Path

from tilewright.targets.bm1684x.capi.prototypes import PROTOTYPES, CType, Prototype
from tilewright.targets.bm1684x.isa.rules import WIDEST_STEP
from tilewright.targets.bm1684x.layouts.tensor import LARGEST

#: The files that are not generated.
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
    """Return the generated C files by name. `calls.c` also defines two limits of commands, and the fingerprint of the
    tables as text."""
    found = PROTOTYPES.values()
    macros = [f"#define {made.name}(...) (tw_at(__FILE__, __LINE__), {made.name}(__VA_ARGS__))" for made in found]
    header = _HEADER.format(declarations="\n".join(f"{made.declaration};" for made in found), macros="\n".join(macros))
    bodies = "\n".join(_body(made) for made in found)
    limits = f"const int tw_largest = {LARGEST}, tw_widest = {WIDEST_STEP};"
    source = f'#include "recorder.h"\nconst char tw_fingerprint[] = "{fingerprint()}";\n{limits}\n{bodies}'
    return {"tpu_calls.h": header, "calls.c": source}


def fingerprint() -> str:
    """Return a digest of all prototypes and of the recorder. Firmware with another digest must be compiled again."""
    text = "\n".join(f"{made.declaration} {made.format}" for made in PROTOTYPES.values())
    own = (FIXED / "recorder.c").read_bytes()
    return hashlib.sha256(text.encode() + own).hexdigest()[:32]


def _body(made: Prototype) -> str:
    """Return the C function that records calls of `made`."""
    put = []
    for kind, name in made.parameters:
        if kind.endswith("*"):
            put.append(f"TW_PUT_POINTER(tw_to, {name});")
        else:
            put.append(f"{'TW_PUT_ENUM' if kind in (CType.DTYPE, CType.MODE) else 'TW_PUT'}(tw_to, {name});")
    lines = "".join(f"    {line}\n" for line in put)
    size = struct.calcsize(made.format)
    record = f"    unsigned char *tw_to = tw_record({made.number}, {size});\n"
    return f"{made.declaration} {{\n{record}{lines}    tw_recorded();\n}}\n"
