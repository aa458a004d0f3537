"""Types and constants of the device API, and the C prototypes of its functions (from prototypes.h)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from enum import StrEnum
from importlib.resources import files
from typing import Any, NamedTuple

from tilewright.errors import MachineError
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.layouts.layout import Shape, Stride
from tilewright.targets.bm1684x.values.dtypes import BF16, F16, F32, I8, I16, I32, U8, U16, U32, DType, Rounding

DT_INT8 = I8
DT_UINT8 = U8
DT_INT16 = I16
DT_UINT16 = U16
DT_INT32 = I32
DT_UINT32 = U32
DT_FP16 = F16
DT_BFP16 = BF16
DT_FP32 = F32
RM_HALF_TO_EVEN = Rounding.HALF_TO_EVEN
RM_HALF_AWAY_FROM_ZERO = Rounding.HALF_AWAY_FROM_ZERO
RM_TOWARDS_ZERO = Rounding.TOWARDS_ZERO
RM_DOWN = Rounding.DOWN
RM_UP = Rounding.UP
RM_HALF_UP, RM_HALF_DOWN = Rounding.HALF_UP, Rounding.HALF_DOWN


@dataclass
class dim4:
    """Four numbers for the axes n, c, h and w: a shape, or strides in elements. Kernels may change them in place."""

    n: int = 0
    c: int = 0
    h: int = 0
    w: int = 0

    @property
    def shape(self) -> Shape:
        return Shape(*astuple(self))

    @property
    def stride(self) -> Stride:
        return Stride(*astuple(self))

    def set(self, stride: Stride) -> None:
        """Overwrite the four numbers with `stride`, as a C function does through a pointer."""
        self.n, self.c, self.h, self.w = stride


@dataclass
class dim2:
    """The height and width of a window (kernel), or its vertical and horizontal step (stride, dilation)."""

    h: int
    w: int


@dataclass
class padding_t:
    """The padding of a feature map: the number of rows above and below, and of columns left and right."""

    top: int
    bottom: int
    left: int
    right: int


@dataclass(frozen=True)
class range_t:
    """A range of memory banks: the numbers of the first and the last bank."""

    start: int
    end: int


def DIV_UP(a: int, b: int) -> int:
    return -(-a // b)


def ALIGN(x: int, a: int) -> int:
    return DIV_UP(x, a) * a


TENSOR, SCALAR, VECTOR = range(3)


@dataclass
class variable_t:
    """A C operand. `context` is a local address (TENSOR; VECTOR: one value per channel) or the value (SCALAR)."""

    type: int
    context: Any


class scalar_t(NamedTuple):
    """A scalar_t of a kernel in C: 32 bits. The call gives their type."""

    bits: int


def constant(value: Any, dtype: DType) -> Constant:
    """Return a scalar argument as a Constant. `value` is a number or a Constant in Python, and a scalar_t in C."""
    if isinstance(value, scalar_t):
        return Constant(value.bits & ((1 << dtype.bits) - 1), dtype)
    return value if isinstance(value, Constant) else Constant.of(value, dtype)


DECLARATION = re.compile(r"void (\w+)\((.*)\);")
PARAMETER = re.compile(r"([^,]*\W)(\w+)")


class CType(StrEnum):
    """The C types of parameters, spelled as in declarations.

    `recorded` is the format of a recorded argument (Python's module struct). The format of a pointer starts with a
    flag, which is 0 for NULL. `python` is the required type of an argument in Python (None: any type).
    """

    recorded: str
    python: type | None

    def __new__(cls, text: str, recorded: str, python: type | None = None) -> CType:
        ctype = str.__new__(cls, text)
        ctype._value_ = text
        ctype.recorded = recorded
        ctype.python = python
        return ctype

    LOCAL = "local_addr_t", "I"
    SYSTEM = "system_addr_t", "Q"
    EITHER = "addr_t", "Q"  # a further parameter tells whether the address is local
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
    """A parameter of a C function."""

    type: CType
    name: str

    def check(self, function: str, value: Any) -> None:
        """Check an argument of a Python call. Raises MachineError for a wrong type. Strides may be None."""
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
        """The binary format of the recorded arguments (Python's module struct)."""
        return "<" + "".join(kind.recorded for kind, _ in self.parameters)


def _declared() -> Mapping[str, Prototype]:
    text = files(__package__).joinpath("prototypes.h").read_text(encoding="utf-8")
    kinds = {str(kind): kind for kind in CType}
    prototypes = {}
    for number, match in enumerate(DECLARATION.finditer(text)):
        parameters = tuple(Parameter(kinds[kind.strip()], name) for kind, name in PARAMETER.findall(match[2]))
        prototypes[match[1]] = Prototype(number, match[1], match[0].rstrip(";"), parameters)
    return prototypes


PROTOTYPES = _declared()
#: For each function, the C types of its parameters by name.
TYPES: Mapping[str, Mapping[str, CType]] = {
    name: {parameter: kind for kind, parameter in prototype.parameters} for name, prototype in PROTOTYPES.items()
}
