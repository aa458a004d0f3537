"""A tensor seen as a matrix, or as one row of elements."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from tilewright.array import Array
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.dtypes import DType
from tilewright.targets.bm1684x.operand import Drawn

if TYPE_CHECKING:
    from tilewright.targets.bm1684x.tensor import Tensor


@dataclass(frozen=True, repr=False)
class View(Drawn):
    """The elements of a tensor, in their order, in another shape."""

    stride: ClassVar[None] = None
    storage: Tensor

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]: ...

    @property
    def config(self) -> Config:
        return self.storage.config

    @property
    def dtype(self) -> DType:
        return self.storage.dtype

    @cached_property
    def addresses(self) -> Array:
        return self.storage.addresses.reshape(self.shape)


class Rows(View):
    """A (rows, columns) matrix whose rows go from lane to lane: the tensor (1, rows, 1, columns)."""

    axes: ClassVar[tuple[str, ...]] = ("row", "column")

    @property
    def shape(self) -> tuple[int, int]:
        return self.storage.shape.c, self.storage.shape.w


class Grid(View):
    """A (rows, columns) matrix outside of local memory: the tensor (1, 1, rows, columns)."""

    axes: ClassVar[tuple[str, ...]] = ("row", "column")

    @property
    def shape(self) -> tuple[int, int]:
        return self.storage.shape.h, self.storage.shape.w


class Flat(View):
    """The elements of a tensor in NCHW order, shape (elements,): what the sorting engine sees."""

    axes: ClassVar[tuple[str, ...]] = ("element",)

    @property
    def shape(self) -> tuple[int]:
        return (self.storage.shape.elements,)
