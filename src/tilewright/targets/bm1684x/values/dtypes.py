"""Element types, and the rounding modes by name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError, one_of


@dataclass(frozen=True)
class DType:
    """One element type. `precision` is its code in command fields. bf16 is stored as bit patterns of type uint16."""

    name: str
    precision: int
    signed: bool
    storage: np.dtype[np.generic]

    @property
    def bytes(self) -> int:
        return self.storage.itemsize

    @property
    def bits(self) -> int:
        return 8 * self.bytes

    @property
    def is_float(self) -> bool:
        return self.name in ("f16", "bf16", "f32")

    @property
    def code(self) -> int:
        """The number of this type in the device API."""
        return self.precision << 1 | self.signed

    @property
    def low(self) -> int:
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def high(self) -> int:
        return (1 << (self.bits - self.signed)) - 1

    def from_bits(self, bits: int) -> Array:
        """Return the value of a bit pattern as an array of shape (). Bits beyond the type's width are ignored."""
        return np.array(bits & ((1 << self.bits) - 1), f"<u{self.bytes}").view(self.storage)

    def __str__(self) -> str:
        return self.name


def _type(name: str, precision: int, signed: bool, storage: str) -> DType:
    return DType(name, precision, signed, np.dtype(storage))


I8 = _type("i8", 0, True, "i1")
U8 = _type("u8", 0, False, "u1")
I16 = _type("i16", 3, True, "<i2")
U16 = _type("u16", 3, False, "<u2")
I32 = _type("i32", 4, True, "<i4")
U32 = _type("u32", 4, False, "<u4")
F16 = _type("f16", 1, True, "<f2")
BF16 = _type("bf16", 5, True, "<u2")
F32 = _type("f32", 2, True, "<f4")

DTYPES = {dtype.name: dtype for dtype in (I8, U8, I16, U16, I32, U32, F16, BF16, F32)}
_FIELDS = {(dtype.precision, dtype.signed): dtype for dtype in DTYPES.values()}
_FIELDS |= {(dtype.precision, False): dtype for dtype in (F16, BF16, F32)}  # floats ignore the sign flag


def dtype_of(name: str) -> DType:
    """Return the type with the name `name`. Raises InputError if the name is unknown."""
    if name not in DTYPES:
        raise InputError("dtype", f"there is no element type '{name}'", one_of(name, DTYPES))
    return DTYPES[name]


def from_fields(precision: int, sign: int) -> DType:
    """Return the type for a precision code and a sign flag of a command. Raises InputError for a reserved code."""
    try:
        return _FIELDS[precision, bool(sign)]
    except KeyError:
        raise InputError("dtype", f"the code {precision} in a precision field is reserved", "give 0 to 5") from None


class Rounding(IntEnum):
    """The rounding modes, with the codes of the device API."""

    HALF_TO_EVEN = 0
    HALF_AWAY_FROM_ZERO = 1
    TOWARDS_ZERO = 2
    DOWN = 3
    UP = 4
    HALF_UP = 5
    HALF_DOWN = 6


def rounding_of(name: str) -> Rounding:
    """Return the rounding mode with the name `name`. Raises InputError if the name is unknown."""
    try:
        return Rounding[name.upper()]
    except KeyError:
        remedy = one_of(name, ROUNDINGS)
        raise InputError("mode", f"there is no rounding mode '{name}'", remedy) from None


ROUNDINGS = tuple(mode.name.lower() for mode in Rounding)
