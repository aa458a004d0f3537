"""Integer networks without scales (PULP): sums, and their requantisation by multiplier, addend and divisor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.errors import ModelError, UnsupportedError
from tilewright.graph.ir import Site, Tensor
from tilewright.graph.ops.base import Op, Shape, given
from tilewright.graph.ops.elementwise import aligned
from tilewright.graph.requant import Shift
from tilewright.graph.rounding import Rounding

_INTEGERS = ("int8", "uint8", "int32")


@dataclass(frozen=True)
class Integers(Op):
    """Operands are integers that broadcast to the output."""

    def codes(self, site: Site) -> tuple[Tensor, ...]:
        return ()

    def shapes(self, site: Site) -> tuple[Shape, ...]:
        shapes = [site.input(index).shape for index in range(len(site.inputs))]
        try:
            return (np.broadcast_shapes(*shapes),)
        except ValueError:
            raise ModelError(f"op '{site.node.name}'", f"inputs {list(map(list, shapes))} do not broadcast") from None


@dataclass(frozen=True)
class IntegerAdd(Integers):
    """a + b as int32, without rescaling."""

    kind = "integer_add"

    def check_types(self, site: Site) -> None:
        if {site.input(0).dtype, site.input(1).dtype} - set(_INTEGERS) or site.output.dtype != "int32":
            raise UnsupportedError(f"op '{site.node.name}'", "adds other types than integers of up to 32 bits")

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        a, b = (aligned(site, index, values[index]).astype(np.int32) for index in (0, 1))
        return (a + b,)


@dataclass(frozen=True)
class RequantShift(Integers):
    """x by `shift` with constants multiplier and addend, each int64 and broadcast."""

    kind = "requant_shift"
    shift: Shift = Shift()

    def check_types(self, site: Site) -> None:
        if site.input(0).dtype not in _INTEGERS or {site.input(1).dtype, site.input(2).dtype} != {"int64"}:
            raise UnsupportedError(f"op '{site.node.name}'", "requantises other types than integers of up to 32 bits")
        self.shift.check(f"op '{site.node.name}'", site.output.dtype)

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        x, multiplier, addend = (aligned(site, index, given(values[index])) for index in range(3))
        return (self.shift.apply(x, multiplier, addend, site.output.dtype),)
