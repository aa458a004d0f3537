"""Sites of single operators, with values: what a network's file may hold, and what it must not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Node, Op, Quant, Site, Tensor

Shape = tuple[int, ...]
CODES = Quant((0.5,), (0,))


def tensor(
    name: str, *shape: int, dtype: str = "int8", quant: Quant | None = CODES, constant: Array | bool = False
) -> Tensor:
    """A tensor of codes, computed or constant: with the given values, or with ones."""
    if isinstance(constant, bool):
        return Tensor(name, shape, dtype, quant, np.ones(shape, dtype) if constant else None)
    return Tensor(name, constant.shape, str(constant.dtype), quant, constant)


def site(op: Op, inputs: Sequence[Tensor | None], *outputs: Tensor) -> Site:
    """A node of the operator; without `outputs`, its output is like its first input."""
    first = inputs[0]
    assert first is not None
    results = outputs or (Tensor("y", first.shape, first.dtype, first.quant),)
    names = tuple(each.name if each else "" for each in inputs)
    return Site(Node("n", op, names, tuple(each.name for each in results)), tuple(inputs), results)
