"""Values in DRAM: two's complement, little-endian; values narrower than a byte lie low bits first."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array


def unpack_values(raw: Array, width: int) -> Array:
    """uint8 (..., bytes) as signed integers (..., bytes * 8 / width); any strides."""
    if width == 8:  # the usual case: no copy
        return raw.view(np.int8)
    if width > 8:
        return np.ascontiguousarray(raw).view(f"<i{width // 8}")
    per_byte = 8 // width
    shifts = np.arange(per_byte, dtype=np.uint8) * width
    fields = (raw[..., None] >> shifts) & np.uint8((1 << width) - 1)
    signed = (fields << np.uint8(8 - width)).view(np.int8) >> (8 - width)
    return signed.reshape(*raw.shape[:-1], raw.shape[-1] * per_byte)


def pack_values(values: Array, width: int) -> Array:
    """Integers (..., n) truncated to `width` bits, as uint8 (..., n * width / 8)."""
    if width >= 8:
        return np.ascontiguousarray(values.astype(f"<i{width // 8}")).view(np.uint8)
    per_byte = 8 // width
    fields = (values.astype(np.int64) & ((1 << width) - 1)).astype(np.uint8)
    grouped = fields.reshape(*values.shape[:-1], values.shape[-1] // per_byte, per_byte)
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(width)
    return np.bitwise_or.reduce(grouped << shifts, axis=-1)
