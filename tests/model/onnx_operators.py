"""Single ONNX operators between quantise and dequantise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.model.onnx_nets import Net

Build = Callable[[Net], str]


def one(kind: str, shape: tuple[int, ...], *rest: Any, **attributes: Any) -> Build:
    """An operator on one quantised input; `rest` are int64 or float32 constants."""

    def build(net: Net) -> str:
        constants = [net.const(r, np.float32 if np.asarray(r).dtype.kind == "f" else np.int64) for r in rest]
        return str(net.op(kind, net.quantized(net.input(shape)), *constants, **attributes))

    return build


IMAGE = (1, 6, 7, 9)


def extents(net: Net) -> list[tuple[str, tuple[int, ...]]]:
    dims = {name: value.type.tensor_type.shape.dim for name, value in net.inputs.items()}
    return [(name, tuple(dim.dim_value for dim in shape)) for name, shape in dims.items()]
