"""Types and constants of the device API."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any

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
    """A shape or a stride. Kernels may change it in place."""

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
        """Set all four numbers, as C does through a pointer."""
        self.n, self.c, self.h, self.w = stride


@dataclass
class dim2:
    """The size of a kernel, a stride or a dilation, in rows and columns."""

    h: int
    w: int


@dataclass
class padding_t:
    """The padding of a feature map, in rows and columns."""

    top: int
    bottom: int
    left: int
    right: int


@dataclass(frozen=True)
class range_t:
    """A range of banks: the numbers of the first and the last bank."""

    start: int
    end: int


def DIV_UP(a: int, b: int) -> int:
    return -(-a // b)


def ALIGN(x: int, a: int) -> int:
    return DIV_UP(x, a) * a


TENSOR, SCALAR, VECTOR = range(3)
#: The attribute of a command, by the name of the parameter that gives it.
ATTRIBUTES = {
    "mode": "mode",
    "src_mode": "source_mode",
    "saturation": "saturate",
    "num_iter": "steps",
    "lshift": "left",
    "rshift": "right",
    "result_relu": "relu",
    "descended": "descending",
    "base": "base",
    "threshold": "threshold",
}


@dataclass
class variable_t:
    """An operand. `context` is the local address of a TENSOR or of one value per channel (VECTOR), or a number."""

    type: int
    context: Any


def constant(value: Any, dtype: DType) -> Constant:
    """Return the Constant for a scalar_t, which is a number or already a Constant."""
    return value if isinstance(value, Constant) else Constant.of(value, dtype)
