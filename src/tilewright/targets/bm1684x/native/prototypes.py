"""The C prototypes of the device API, made from the tables of `capi`, and the bytes of a recorded call."""

from __future__ import annotations

import struct
from functools import cache
from typing import NamedTuple

from tilewright.targets.bm1684x.capi.parameters import FORMATS, CType
from tilewright.targets.bm1684x.capi.tpu import FUNCTIONS


class Prototype(NamedTuple):
    """A C function: its number in recorded calls, its name, and the pairs (C type, name) of its parameters."""

    number: int
    name: str
    parameters: tuple[tuple[CType, str], ...]

    @property
    def declaration(self) -> str:
        """The C declaration, without the semicolon."""
        listed = (f"{kind}{name}" if kind.endswith("*") else f"{kind} {name}" for kind, name in self.parameters)
        return f"void {self.name}({', '.join(listed)})"

    @property
    def format(self) -> str:
        """The bytes of the recorded arguments, as a format of the module struct."""
        return "<" + "".join(FORMATS[kind] for kind, _ in self.parameters)

    @property
    def size(self) -> int:
        """The number of bytes of the recorded arguments."""
        return struct.calcsize(self.format)


@cache
def prototypes() -> tuple[Prototype, ...]:
    """Return the prototypes of all functions in the tables, sorted by name."""
    listed = [(name, FUNCTIONS[name].parameters) for name in sorted(FUNCTIONS)]
    return tuple(
        Prototype(number, name, tuple((own.type, own.name) for own in parameters))
        for number, (name, parameters) in enumerate(listed)
    )
