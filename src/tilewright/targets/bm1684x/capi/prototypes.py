"""The C prototypes of the device API: prototypes.h, which declares all functions of the tables with their types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from importlib.resources import files
from typing import Any, NamedTuple

from tilewright.errors import MachineError
from tilewright.targets.bm1684x.capi.names import dim2, dim4, padding_t
from tilewright.targets.bm1684x.values.dtypes import DType

DECLARATION = re.compile(r"void (\w+)\((.*)\);")
PARAMETER = re.compile(r"([^,]*\W)(\w+)")


class CType(StrEnum):
    """The C types of parameters, as a declaration writes them.

    `recorded` are the bytes of a recorded argument, as a format of the module struct. A pointer starts with a flag: 0
    is NULL. `python` is the type of arguments in Python, where it is checked.
    """

    recorded: str
    python: type | None

    def __new__(cls, text: str, recorded: str, python: type | None = None) -> CType:
        made = str.__new__(cls, text)
        made._value_ = text
        made.recorded, made.python = recorded, python
        return made

    LOCAL = "local_addr_t", "I"
    SYSTEM = "system_addr_t", "Q"
    EITHER = "addr_t", "Q"  # a second parameter says which of both memories
    STATIC = "static_addr_t", "I"
    SCALAR = "scalar_t", "I"
    VARIABLE = "const variable_t *", "?iI"
    DTYPE = "data_type_t", "i", DType
    MODE = "rounding_mode_t", "i"
    DIM4 = "const dim4 *", "?4i", dim4
    DIM2 = "const dim2 *", "?2i", dim2
    PADDING = "const padding_t *", "?4i", padding_t
    BOOL = "bool", "?"
    CHAR = "char", "b"
    BYTE = "unsigned char", "B"
    INT = "int", "i"
    UNSIGNED = "unsigned int", "I"
    FLOAT = "float", "f"


class Parameter(NamedTuple):
    """One parameter of a function."""

    type: CType
    name: str

    def check(self, function: str, value: Any) -> None:
        """Check an argument of the Python form. Raises MachineError if it is not of the parameter's type.

        The strides of a tensor may be None, as they may be NULL in C.
        """
        kind = self.type.python
        if kind is None or isinstance(value, kind) or (value is None and self.name.endswith("_stride")):
            return
        raise MachineError(function, f"{self.name} is {value!r}", f"give a {kind.__name__}")


class Prototype(NamedTuple):
    """A C function: its number in recorded calls, its name, its declaration in C, and its parameters."""

    number: int
    name: str
    declaration: str
    parameters: tuple[Parameter, ...]

    @property
    def format(self) -> str:
        """The bytes of the recorded arguments, as a format of the module struct."""
        return "<" + "".join(kind.recorded for kind, _ in self.parameters)


def _declared() -> Mapping[str, Prototype]:
    text = files(__package__).joinpath("prototypes.h").read_text(encoding="utf-8")
    kinds = {str(kind): kind for kind in CType}
    found = {}
    for number, own in enumerate(DECLARATION.finditer(text)):
        parameters = tuple(Parameter(kinds[kind.strip()], name) for kind, name in PARAMETER.findall(own[2]))
        found[own[1]] = Prototype(number, own[1], own[0].rstrip(";"), parameters)
    return found


PROTOTYPES = _declared()
#: The C types of the parameters of each function.
TYPES: Mapping[str, Mapping[str, CType]] = {
    name: {parameter: kind for kind, parameter in own.parameters} for name, own in PROTOTYPES.items()
}
