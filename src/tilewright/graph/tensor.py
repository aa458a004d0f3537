"""Tensors of a graph with their exact quantisation, and base classes of objects that errors can name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from tilewright.array import Array
from tilewright.errors import ModelError, UnsupportedError, plain

#: The largest number of elements of a constant. Larger constants are rejected before any allocation, because model
#: files are untrusted.
MAX_ELEMENTS = 1 << 28
#: The largest number of elements of a computed tensor: its evaluation needs up to 64 bytes per element.
MAX_COMPUTED = 1 << 24
#: Types of quantised codes.
CODES = ("int8", "uint8", "int16")
DTYPES = ("int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64", "bool")
#: The code type of computed codes of 4 bits. Their arrays are int8.
INT4 = "int4"


class Located(ABC):
    """Base class of objects that errors can name."""

    @property
    @abstractmethod
    def where(self) -> str:
        """The object's kind and name, as error messages print it."""

    def fail_if(self, wrong: object, reason: str, remedy: str = "") -> None:
        """Raises ModelError if `wrong` is true: the file is damaged."""
        if wrong:
            raise ModelError(self.where, reason, remedy)

    def refuse_if(self, wrong: object, reason: str, remedy: str = "") -> None:
        """Raises UnsupportedError if `wrong` is true: the file is valid, but Tilewright does not support it."""
        if wrong:
            raise UnsupportedError(self.where, reason, remedy)


class Named(Located):
    """Base class of objects that have an operator's name, such as nodes."""

    name: str

    @property
    def where(self) -> str:
        """The operator's name as error messages print it: op 'NAME'."""
        return f"op '{self.name}'"


@dataclass(frozen=True)
class Quant:
    """Affine quantisation of a tensor: `real = scale * (code - zero_point)`.

    `scale` holds float32 values exactly. `scale` and `zero_point` have one entry, or one entry per index of axis
    `axis`.
    """

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int = 0

    #: The number of bits of each code; None: all bits of the tensor's dtype.
    bits: ClassVar[int | None] = None

    @property
    def per_channel(self) -> bool:
        return len(self.scale) > 1


class Int4(Quant):
    """The quantisation of computed codes of 4 bits, in arrays of int8. Constants of 4 bits are plain int8 values."""

    bits = 4


@dataclass(frozen=True, eq=False)
class Tensor(Located):
    """A tensor of the graph. `data` has the values of a constant (None: the tensor is computed or an input)."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    quant: Quant | None = None
    data: Array | None = None

    @property
    def where(self) -> str:
        return f"tensor '{self.name}'"

    @property
    def code_type(self) -> str:
        """The element type, which is INT4 for codes of 4 bits, whose dtype is int8."""
        return INT4 if self.quant and self.quant.bits else self.dtype

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def image(self) -> tuple[int, int, int, int]:
        """The shape as batch, rows, columns and channels. Missing axes are 1; additional axes are part of the batch."""
        rows, columns, channels = (1, 1, 1, *self.shape)[-3:]
        return prod(self.shape[:-3]), rows, columns, channels

    @property
    def nbytes(self) -> int:
        return self.size * np.dtype(self.dtype).itemsize

    @property
    def scale(self) -> float:
        """The scale. Raises ModelError if the tensor is not quantised, or if each channel has a scale."""
        return self._single().scale[0]

    @property
    def zero_point(self) -> int:
        """The zero point. Raises ModelError if the tensor is not quantised, or if each channel has a zero point."""
        return self._single().zero_point[0]

    def __repr__(self) -> str:
        scales = self.quant.scale if self.quant else ()
        text = f"<Tensor {self.name}: {type_of(self)}"
        text += f", scale {scales[0]:.6g}" if len(scales) == 1 else f", {len(scales)} scales" if scales else ""
        return plain(f"{text}, constant>" if self.data is not None else f"{text}>")

    def _single(self) -> Quant:
        if self.quant is None:
            raise ModelError(self.where, "has no quantisation parameters", "quantise the model to int8")
        self.fail_if(self.quant.per_channel, "is quantised per channel where one scale is required")
        return self.quant

    @property
    def scales(self) -> Array:
        """The scales, float64 [1] or [channels]. Raises ModelError if the tensor is not quantised."""
        return np.asarray(self.quant.scale if self.quant else [self.scale], np.float64)

    def spread(self, numbers: Sequence[float] | Array) -> Array:
        """Reshape `numbers`, one for each scale, so that they broadcast along the tensor's channels."""
        axes = [1] * len(self.shape)
        if self.quant and self.quant.per_channel:
            axes[self.quant.axis] = -1
        return np.reshape(numbers, axes)

    def same_codes(self, other: Tensor) -> bool:
        """Return whether both tensors have the same scale and zero point. Raises ModelError for scales per channel."""
        return (self.scale, self.zero_point, self.code_type) == (other.scale, other.zero_point, other.code_type)

    def check(self) -> None:
        """Check type, size, data and quantisation. Raises ModelError for a contradiction."""
        self.fail_if(self.dtype not in DTYPES, f"has the unknown element type {self.dtype}")
        computed = self.data is None
        limit = MAX_COMPUTED if computed else MAX_ELEMENTS
        least = 1 if computed else 0  # an empty constant may represent an absent operand
        shape = list(self.shape)
        self.fail_if(
            any(extent < least for extent in shape) or self.size > limit,
            f"has the shape {shape}; extents must be positive, with at most {limit} elements in total",
        )
        if self.data is not None:
            actual = f"{self.data.dtype}{list(self.data.shape)}"
            declared = f"{self.dtype}{shape}"
            self.fail_if(actual != declared, f"is declared as {declared}, but its data is {actual}")
        quant = self.quant
        if quant is None:
            return
        scales = len(quant.scale)
        positive = all(0.0 < scale < float("inf") for scale in quant.scale)
        self.fail_if(not scales or not positive, "has a quantisation scale that is not a positive number")
        zeros = len(quant.zero_point)
        self.fail_if(zeros != scales, f"has {scales} scales but {zeros} zero points")
        if self.dtype in CODES:
            low, high = code_limits(self.code_type)
            inside = all(low <= zero <= high for zero in quant.zero_point)
            self.fail_if(not inside, f"has a zero point outside the range of {self.code_type}")
            wrong = quant.bits and (self.dtype != "int8" or self.data is not None)
            self.fail_if(wrong, f"has codes of {quant.bits} bits, but is a constant or {self.dtype}")
        fits = 0 <= quant.axis < len(self.shape) and self.shape[quant.axis] == scales
        reason = f"has {scales} scales for axis {quant.axis} of shape {list(self.shape)}"
        self.fail_if(quant.per_channel and not fits, reason)


def code_limits(code_type: str) -> tuple[int, int]:
    """Return the smallest and the largest code of a Tensor's `code_type`."""
    if code_type == INT4:
        return -8, 7
    info = np.iinfo(code_type)
    return int(info.min), int(info.max)


def type_of(tensor: Tensor) -> str:
    return f"{tensor.code_type}[{','.join(map(str, tensor.shape))}]"
