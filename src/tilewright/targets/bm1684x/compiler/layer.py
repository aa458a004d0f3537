"""A layer: the machine's operations on each tile of a graph node's output, and the constants that they read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.compiler.stored import Stored
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.values.dtypes import DType
from tilewright.targets.bm1684x.values.window import Window


@dataclass(frozen=True)
class Input:
    """An operand of the layer: `whole` is all of its channels, else those of the tile."""

    index: int
    whole: bool = False


@dataclass(frozen=True)
class Output:
    """The layer's result."""


@dataclass(frozen=True)
class Temp:
    """A tile's intermediate result, in buffer `index` of the layer: of its result's shape, or of its input's."""

    index: int
    dtype: DType
    of_input: bool = False


@dataclass(frozen=True)
class PerChannel:
    """The word `index` of each channel's parameters; `first_of` more that follow it belong to the same operand."""

    index: int
    dtype: DType


@dataclass(frozen=True)
class Weights:
    """The layer's kernel."""


@dataclass(frozen=True)
class Bias:
    """A bias that lies compactly, as depthwise convolutions read it."""

    dtype: DType


Ref = Input | Output | Temp | PerChannel | Weights | Bias | Constant


@dataclass(frozen=True)
class Operate:
    """One operation on a tile."""

    operation: str
    operands: Mapping[str, Ref]
    result: Output | Temp
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class WeightValues:
    """Constant weights, (oc, ic, kh, kw) of a convolution or (1, c, kh, kw) of a depthwise one, stored as `dtype`."""

    values: Array
    dtype: DType
    depthwise: bool = False


@dataclass(frozen=True, eq=False)
class Layer:
    """`operations` run on each tile. `words` are the parameters of each channel, int32 or float32 [c] each, `bias` is
    int32 [c] of a depthwise convolution. `window` is None where the layer works element by element.

    `inputs` and `output` name tensors of the graph. `row_tiles`: a tile may be some rows.
    """

    name: str
    inputs: tuple[str, ...]
    output: str
    shapes: tuple[Stored, ...]
    result: Stored
    operations: tuple[Operate, ...]
    words: tuple[Array, ...] = ()
    kernel: WeightValues | None = None
    bias: Array | None = None
    window: Window | None = None
    row_tiles: bool = True
    macs: int = 0
    note: str = ""

    def temps(self) -> dict[int, set[Temp]]:
        """What each temporary buffer is used for."""
        found: dict[int, set[Temp]] = {}
        for operate in self.operations:
            if isinstance(operate.result, Temp):
                found.setdefault(operate.result.index, set()).add(operate.result)
        return found

    def word_bits(self) -> Array:
        """The parameters as uint32 (c, words)."""
        return np.stack([np.ascontiguousarray(word).view(np.uint32) for word in self.words], axis=1)
