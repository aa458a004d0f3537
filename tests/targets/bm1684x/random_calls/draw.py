"""Random choices, and the values that memories hold before a call."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.capi import dim4
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.values.dtypes import BF16, DTYPES, F16, F32, DType

CONFIG = Config()
#: Bytes of local memory, of DDR, and from one operand to the next: in a lane, and in DDR.
LOCAL, DDR, STEP, FAR = CONFIG.local_bytes, 1 << 22, CONFIG.bank_bytes, 1 << 19
POOL = 1 << 22
TYPES = tuple(DTYPES.values())
FLOATS = tuple(dtype for dtype in TYPES if dtype.is_float)
INTEGERS = tuple(dtype for dtype in TYPES if not dtype.is_float)
#: Bits of the exponent, and of the fraction.
FIELDS = {F16: (5, 10), BF16: (8, 7), F32: (8, 23)}
Some = TypeVar("Some")


def values(state: np.random.RandomState, dtype: DType, count: int, tame: bool = False) -> Array:
    """Return `count` values as `dtype` stores them. Floats are near 1; unless `tame`, a tenth are any bits."""
    bits = state.randint(0, 1 << 32, count, np.uint64)
    if dtype.is_float:
        exponent, fraction = FIELDS[dtype]
        near = (1 << (exponent - 1)) - 6 + state.randint(0, 9, count).astype(np.uint64)
        sign = (bits >> np.uint64(31)) << np.uint64(exponent + fraction)
        bit_patterns = sign | near << np.uint64(fraction) | bits & np.uint64((1 << fraction) - 1)
        bits = np.where(tame | (state.randint(0, 10, count) > 0), bit_patterns, bits)
    return bits.astype(f"<u{dtype.bytes}").view(dtype.storage)


@cache
def pool(dtype: DType, limit: int) -> Array:
    """Return POOL bytes of values of a type. With a `limit`, integers are in -limit..limit - 1 (0.. if unsigned), and
    floats are near 1."""
    drawn = values(np.random.RandomState(dtype.code + 1000 * limit), dtype, POOL // dtype.bytes, bool(limit))
    if limit and not dtype.is_float:
        drawn = drawn.astype(np.int64) % (2 * limit if dtype.signed else limit) - limit * dtype.signed
    return drawn.astype(dtype.storage, copy=False)


@dataclass(frozen=True)
class Fill:
    """Values for one operand: STEP bytes of each lane at a local address, or FAR bytes at a place in DDR.

    They are bytes of the pool of a type and limit, from byte `start` on.
    """

    at: int
    far: bool
    dtype: DType
    limit: int
    start: int

    def write(self, local: Array, ddr: Array) -> None:
        """Write the values to local memory and DDR (uint8)."""
        raw = pool(self.dtype, self.limit).view(np.uint8)
        if self.far:
            ddr[self.at : self.at + FAR] = raw[self.start : self.start + FAR]
            return
        lanes, first = local.reshape(CONFIG.lanes, CONFIG.lane_bytes), self.at % CONFIG.lane_bytes
        size = min(STEP, CONFIG.lane_bytes - first)
        lanes[:, first : first + size] = raw[self.start : self.start + CONFIG.lanes * size].reshape(CONFIG.lanes, size)


@dataclass
class Draw:
    """A stream of random choices, and what was chosen: the values of operands."""

    seed: str
    fills: list[Fill] = field(default_factory=list)
    places: int = 0

    def __post_init__(self) -> None:
        self.state = np.random.RandomState(zlib.crc32(self.seed.encode()))

    def between(self, low: int, high: int) -> int:
        return int(self.state.randint(low, high + 1))

    def of(self, choices: Sequence[Some]) -> Some:
        return choices[self.between(0, len(choices) - 1)]

    def chance(self, percent: int) -> bool:
        return self.between(0, 99) < percent

    def place(self) -> int:
        """Return the local address of the next operand, in a bank of its own."""
        self.places += 1
        return (self.places - 1) * STEP

    def fill(self, at: int, dtype: DType, limit: int = 0, far: bool = False) -> int:
        """Give the operand at an address values, and return the address."""
        size = FAR if far else STEP * CONFIG.lanes
        self.fills.append(Fill(at, far, dtype, limit, self.between(0, (POOL - size) // 64) * 64))
        return at

    def filled(self, dtype: DType, limit: int = 0) -> int:
        """Return the local address of a new operand with values."""
        return self.fill(self.place(), dtype, limit)

    def constant(self, dtype: DType) -> Constant:
        raw = values(self.state, dtype, 1).view(f"<u{dtype.bytes}")
        return Constant(int(raw[0]), dtype)

    def real(self) -> float:
        """Return a small f32."""
        return self.between(-4096, 4096) / 1024 * 2.0 ** self.between(-4, 2)

    def shape(self, rows: int = 6, columns: int = 20) -> dim4:
        c = self.of([1, 2, 5, 63, 64, 65, 100, 130])
        return dim4(self.between(1, 3), c, self.between(1, rows), self.between(1, columns))

    def strides(self, of: dim4, lane: int, repeats: bool = False) -> dim4 | None:
        """Return None for the default layout, or strides with gaps; with `repeats`, some are 0."""
        if self.chance(60):
            return None
        if repeats and self.chance(30):
            keeps = [self.between(0, 99) < 50 for _ in range(4)]
            plain = dim4(-(-(lane + of.c) // CONFIG.lanes) * of.h * of.w, of.h * of.w, of.w, 1)
            return dim4(plain.n * keeps[0], plain.c * keeps[1], plain.h * keeps[2], plain.w * keeps[3])
        w = self.of([1, 1, 1, 2])
        h = of.w * w + self.of([0, 1, 3])
        c = of.h * h + self.of([0, 0, 5])
        return dim4(-(-(lane + of.c) // CONFIG.lanes) * c, c, h, w)


@dataclass(frozen=True)
class Call:
    """A call: the C name, the arguments, the values of its operands, and the type of its results."""

    name: str
    arguments: tuple[Any, ...]
    fills: tuple[Fill, ...]
    dtype: DType
