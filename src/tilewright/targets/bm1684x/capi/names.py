"""Types and constants of the device API."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.layouts.layout import Shape, Stride
from tilewright.targets.bm1684x.values.dtypes import BF16, F16, F32, I8, I16, I32, U8, U16, U32, DType, Rounding

DT_INT8, DT_UINT8, DT_INT16, DT_UINT16, DT_INT32, DT_UINT32 = I8, U8, I16, U16, I32, U32
DT_FP16, DT_BFP16, DT_FP32 = F16, BF16, F32
RM_HALF_TO_EVEN, RM_HALF_AWAY_FROM_ZERO = Rounding.HALF_TO_EVEN, Rounding.HALF_AWAY_FROM_ZERO
RM_TOWARDS_ZERO, RM_DOWN, RM_UP = Rounding.TOWARDS_ZERO, Rounding.DOWN, Rounding.UP
RM_HALF_UP, RM_HALF_DOWN = Rounding.HALF_UP, Rounding.HALF_DOWN


@dataclass
class dim4:
    """A shape or the strides of a tensor, on the axes n, c, h, w. Kernels may change the numbers in place."""

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
        """Set all four numbers to those of `stride`, as a C function does through a pointer."""
        self.n, self.c, self.h, self.w = stride


@dataclass
class dim2:
    """The height and width of a window (kernel), or its steps down and across (stride, dilation)."""

    h: int
    w: int


@dataclass
class padding_t:
    """The padding of a feature map: the rows above and below it, the columns on its left and right."""

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
    """A C operand: `context` is the local address of a TENSOR or VECTOR (a value per channel), or a number (SCALAR)."""

    type: int
    context: Any


class scalar_t(NamedTuple):
    """A scalar_t of a kernel in C: 32 bits, whose type the call decides."""

    bits: int


def constant(value: Any, dtype: DType) -> Constant:
    """Return the Constant for `value`, a scalar_t of the C API: in Python a number, or already a Constant."""
    if isinstance(value, scalar_t):
        return Constant(value.bits & ((1 << dtype.bits) - 1), dtype)
    return value if isinstance(value, Constant) else Constant.of(value, dtype)
