"""The custom-0 instructions: number, name, operands and what cycles spent in them are for.

funct3 is 0 and not looked at. `cfu_op(funct3, funct7, a, b)` is CFU-Playground's macro; what each instruction does
is array/model.py, and for 16 and up array/coupled.py.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Role(StrEnum):
    """What an instruction is for: moves data, waits for the array, or computes on what was read."""

    TRANSFER = "transfer"
    WAIT = "waiting for the array"
    POST = "post-processing"


class Custom(NamedTuple):
    """One instruction, for people."""

    name: str
    operands: str
    role: Role
    meaning: str


CUSTOM: dict[int, Custom] = {
    0: Custom("set_matrixA", "upper, lower", Role.TRANSFER, "the next 8 bytes of A, lane 0 in the high byte of upper"),
    1: Custom("set_matrixB", "upper, lower", Role.TRANSFER, "the next 8 bytes of B"),
    2: Custom("start_GEMM", "accumulate << 30 | M << 20 | N << 10 | K, offset", Role.WAIT, "starts the array"),
    3: Custom("check_GEMM", "", Role.WAIT, "1 while the array works"),
    4: Custom("get_matrixC", "", Role.TRANSFER, "the next sum of C; with readout=random that of row a, column b"),
    5: Custom("set_SRDHM", "a, b", Role.POST, "latches a * b; with srdhm=single returns its rounded high half as well"),
    6: Custom("get_SRDHM", "", Role.POST, "the rounded doubled high half of the product"),
    7: Custom("RDBPOT", "x, exponent", Role.POST, "x / 2^exponent, to nearest, ties away from zero"),
    8: Custom("off_maxmin", "x, offset", Role.POST, "x + offset within int8"),
    16: Custom("put", "field, value", Role.WAIT, "a register of the layer"),
    17: Custom("push_image", "first, second", Role.TRANSFER, "8 bytes to image memory"),
    18: Custom("get_image", "", Role.TRANSFER, "4 bytes of image memory"),
    19: Custom("push_channel", "bias, multiplier", Role.TRANSFER, "a channel's bias and multiplier"),
    20: Custom("push_shift", "shift", Role.TRANSFER, "a channel's shift"),
    21: Custom("start_conv", "", Role.WAIT, "starts a convolution on image memory"),
    22: Custom("start_add", "", Role.WAIT, "starts an addition on image memory"),
    23: Custom("start_pool", "", Role.WAIT, "starts a pooling on image memory"),
    24: Custom("fetch", "address, bytes", Role.TRANSFER, "rows of B by DMA from RAM"),
    25: Custom("dot", "codes, weights", Role.POST, "adds four products of (code + 128) and weight to a sum"),
}


def name(function: int) -> str:
    """Of funct7 << 3 | funct3."""
    known = CUSTOM.get(function >> 3)
    return known.name if known and not function & 7 else f"custom0.{function >> 3}.{function & 7}"
