"""Codes as the machine holds them: int8, also where a tensor is uint8."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Tensor

CODE_DTYPES = ("int8", "uint8")
CODE_MIN, CODE_MAX = -128, 127


def held_offset(tensor: Tensor) -> int:
    """Return what to subtract from codes, zero point and bounds of a tensor: the machine holds uint8 as int8."""
    return 128 if tensor.dtype == "uint8" else 0


def held_zero_point(tensor: Tensor) -> int:
    return tensor.zero_point - held_offset(tensor)


def held_codes(codes: Array) -> Array:
    """Return codes as the int8 values that the machine holds."""
    return codes if codes.dtype == np.int8 else (codes ^ np.uint8(128)).view(np.int8)


def given_back(codes: Array, tensor: Tensor) -> Array:
    """Return int8 codes from the machine in the tensor's dtype: the inverse of `held_codes`."""
    return codes if tensor.dtype == "int8" else codes.view(np.uint8) ^ np.uint8(128)
