"""Write a component as Verilog for people: one file per module, with a comment, and the Python line of each part.

The modules are those of the component: NAME for the component, NAME_PART for its submodule `part`. The attribute `src`
of a register, wire or cell is the place in the Python source that made it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import Fragment

from tilewright.array import uncollected
from tilewright.hdl.build import ZEROS, made

#: A module in Verilog, with the attributes before it.
MODULE = re.compile(r"(?:^\(\*.*\*\)\n)*^module ([^\s(]+)(?:.*\n)*?^endmodule$", re.MULTILINE)
#: The part of a source path before its package.
FOLDERS = re.compile(r'(?<=["|])[^"|]*/(?=(?:tilewright|amaranth)/)')


def modules(component: Any, name: str) -> dict[str, str]:
    """Return the Verilog of a component and its submodules, {module: text}. The component's module is `name`."""
    with uncollected():
        source = ZEROS.sub("", rtlil.convert(component, name=name, emit_src=True))
        notes = {_flat(path): note for path, note in _notes(Fragment.get(component, None), name)}
    source = re.sub(rf"\\{name}\.\S+", lambda found: _flat(found[0]), source)
    script = "proc -norom; memory_collect; setattr -mod -unset generator -unset top; write_verilog -norename result"
    text = made(source, script)
    found = {}
    for module in MODULE.finditer(text):
        body = FOLDERS.sub("", module[0])
        found[module[1]] = f"{_comment(notes.get(module[1], 'Part of the module that its name begins with.'))}{body}\n"
    return found


def _flat(name: str) -> str:
    """Return the name of a module without dots, which Verilog would have to escape."""
    return name.replace(".", "_")


def _notes(fragment: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path of each module, and the docstring of the class that describes it."""
    origin = next(iter(fragment.origins or ()), None)
    yield path, (inspect.getdoc(type(origin)) or "") if origin is not None else ""
    for inner, name, _ in fragment.subfragments:
        if name:
            yield from _notes(inner, f"{path}.{name}")


def _comment(text: str) -> str:
    return "".join(f"// {line}".rstrip() + "\n" for line in text.splitlines())
