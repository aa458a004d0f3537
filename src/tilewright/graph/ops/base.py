"""What an operator is: attributes, a shape rule, an integer reference and its work, in one entry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tilewright.array import Array
from tilewright.errors import ModelError, UnsupportedError
from tilewright.graph.ir import Site, Tensor
from tilewright.graph.rounding import Rounding

Shape = tuple[int, ...]
CODES = ("int8", "uint8")


@dataclass(frozen=True)
class Op(ABC):
    """An operator's attributes; its subclasses are found by `kind` in `KINDS`."""

    kind: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if cls.kind:
            KINDS[cls.kind] = cls

    @abstractmethod
    def shapes(self, site: Site) -> tuple[Shape, ...]:
        """The output shapes that the input shapes imply. Raises ModelError where they do not fit."""

    def codes(self, site: Site) -> tuple[Tensor, ...]:
        """The tensors that must hold quantised 8-bit codes: all, unless an operator says otherwise."""
        return tuple(tensor for tensor in (*site.inputs, *site.outputs) if tensor is not None)

    def check_types(self, site: Site) -> None:
        """Raises UnsupportedError for a tensor of `codes` that is not quantised int8 or uint8."""
        for tensor in self.codes(site):
            if tensor.dtype not in CODES or tensor.quant is None:
                other = f"is {tensor.dtype}, neither int8 nor uint8"
                kind = other if tensor.dtype not in CODES else "has no quantisation parameters"
                raise UnsupportedError(f"op '{site.node.name}'", f"tensor '{tensor.name}' {kind}")

    @abstractmethod
    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """The outputs, exactly. Every value and result has a sample axis in front (see graph.ir)."""

    @property
    def label(self) -> str:
        """What people call the operator."""
        return self.kind

    def macs(self, site: Site) -> int:
        """Multiply-accumulates for one sample, padding taps included, as the field counts them."""
        return 0


KINDS: dict[str, type[Op]] = {}


def given(value: Array | None) -> Array:
    """A required input's value; validation has already established that it is present."""
    assert value is not None
    return value


def four(site: Site, index: int) -> tuple[int, int, int, int]:
    """The shape of an input that must have four axes."""
    shape = site.input(index).shape
    if len(shape) != 4:
        raise ModelError(f"op '{site.node.name}'", f"input {index} has the shape {list(shape)}; four axes are required")
    return shape
