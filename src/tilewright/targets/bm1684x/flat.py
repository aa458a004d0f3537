"""A tensor as one row of elements, which is how the sorting engine sees it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tilewright.array import Array
from tilewright.targets.bm1684x.dtypes import DType
from tilewright.targets.bm1684x.tensor import Tensor


@dataclass(frozen=True)
class Flat:
    """The elements of a tensor in NCHW order: shape (elements,)."""

    storage: Tensor

    @property
    def shape(self) -> tuple[int]:
        return (self.storage.shape.elements,)

    @property
    def dtype(self) -> DType:
        return self.storage.dtype

    @cached_property
    def addresses(self) -> Array:
        return self.storage.addresses.reshape(-1)
