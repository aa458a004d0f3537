"""Codes as the machine holds them: int8. What is uint8 in the graph is held 128 less, zero points and bounds too."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Tensor

DTYPES = ("int8", "uint8")


def offset(tensor: Tensor) -> int:
    """How much less than in the graph."""
    return 128 if tensor.dtype == "uint8" else 0


def zero_point(tensor: Tensor) -> int:
    return tensor.zero_point - offset(tensor)


def held(codes: Array) -> Array:
    """int8 of the same shape."""
    return codes if codes.dtype == np.int8 else (codes ^ np.uint8(128)).view(np.int8)


def given_back(codes: Array, tensor: Tensor) -> Array:
    """Codes of the tensor's dtype from int8, as the machine held them."""
    return codes if tensor.dtype == "int8" else codes.view(np.uint8) ^ np.uint8(128)
