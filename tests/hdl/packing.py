"""Vectors of numbers as one signal, and back."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array


def packed(values: Array, bits: int) -> int:
    """Values, the first in the low bits, two's complement."""
    word = 0
    for place, value in enumerate(values.reshape(-1).tolist()):
        word |= (value & ((1 << bits) - 1)) << (place * bits)
    return word


def unpacked(word: int, bits: int, count: int) -> Array:
    fields = [word >> (place * bits) & ((1 << bits) - 1) for place in range(count)]
    return np.array([field - (1 << bits) * (field >> (bits - 1)) for field in fields], np.int64)
