"""Random cases for calls of the device API, made from the parameters of their C prototypes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tests.targets.bm1684x.vendor.compare import Case
from tests.targets.bm1684x.vendor.library import LOCAL, prototypes
from tilewright.array import Array
from tilewright.targets.bm1684x.capi import dim4
from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.values.dtypes import DTYPES, F32, DType, Rounding
from tilewright.targets.bm1684x.values.floats import narrow

CONFIG = Config()
#: Bytes of a lane from one operand to the next.
STEP = 0x4000


def numbers(random: np.random.Generator, dtype: DType, shape: Sequence[int], spread: float = 4.0) -> Array:
    """Return random values as `dtype` stores them. A tenth of the floats are random bit patterns."""
    if not dtype.is_float:
        return random.integers(dtype.low, dtype.high, shape, dtype.storage, endpoint=True)
    count = int(np.prod(shape))
    bits = random.integers(0, 1 << dtype.bits, count, np.uint64).astype(f"<u{dtype.bytes}").view(dtype.storage)
    reals = narrow((random.standard_normal(count) * spread).astype(np.float32), dtype)
    return np.where(random.random(count) < 0.1, bits, reals).astype(dtype.storage).reshape(shape)


def shape(chosen: random.Random) -> dim4:
    c = chosen.choice([1, 2, 5, 63, 64, 65, 100, 130])
    return dim4(chosen.randint(1, 3), c, chosen.randint(1, 6), chosen.randint(1, 20))


def free(chosen: random.Random, of: dim4, dtype: DType) -> dim4:
    w = chosen.choice([1, 1, 1, 2])
    h = of.w * w + chosen.choice([0, 1, 3])
    c = of.h * h + chosen.choice([0, 0, 5])
    return dim4(layout.slots(0, of.c, CONFIG) * c, c, h, w)


def laid(at: int, of: dim4, stride: dim4 | None, dtype: DType, values: Array) -> tuple[tuple[int, Array], ...]:
    """Return the writes that put `values` where a tensor of local memory has its elements."""
    strides = stride.stride if stride else layout.aligned(of.shape, dtype, at // CONFIG.lane_bytes, CONFIG)
    addresses = Tensor(LOCAL_BASE + at, of.shape, strides, dtype, CONFIG).addresses.reshape(-1) - LOCAL_BASE
    whole = np.zeros(int(addresses.max() - addresses.min()) // dtype.bytes + 1, dtype.storage)
    order = (addresses - addresses.min()) // dtype.bytes
    whole[order] = np.broadcast_to(values, of.shape).reshape(-1)
    lanes = np.unique(addresses // CONFIG.lane_bytes)
    pieces = []
    for lane in lanes.tolist():
        of_lane = addresses[addresses // CONFIG.lane_bytes == lane]
        low, high = int(of_lane.min()), int(of_lane.max()) + dtype.bytes
        first = (low - int(addresses.min())) // dtype.bytes
        pieces.append((low, whole[first : first + (high - low) // dtype.bytes].copy()))
    return tuple(pieces)


def elementwise(name: str, seed: int, count: int, types: Sequence[DType], **more: Any) -> Iterator[Case]:
    """Yield random cases of a function on tensors of one shape. The keys of `more` are options:

    `spread`: of the normal distribution of floats. `filled`: names of local operands that hold values (all that
    begin with src). `fixed`: arguments by name. `number`: a range of the scalars that are float. `ulps`.
    """
    for index in range(count):
        chosen, values = random.Random(f"{name} {seed} {index}"), np.random.default_rng([seed, index])
        of, place = shape(chosen), 0
        kinds = prototypes()[name]
        by_name: dict[str, DType] = {word: chosen.choice(types) for kind, word in kinds if kind == "data_type_t"}
        common = by_name.get("dtype", chosen.choice(types))
        result = by_name.get("dst_dtype", by_name.get("output_dtype", common))
        arguments: dict[str, Any] = {}
        writes: list[tuple[int, Array]] = []
        for kind, word in kinds:
            if word in more.get("fixed", {}):
                arguments[word] = more["fixed"][word]
            elif kind == "local_addr_t":
                arguments[word] = place
                place += STEP
            elif kind.startswith("dim4"):
                arguments[word] = of
                if word.endswith("stride"):
                    arguments[word] = chosen.choice([None, None, free(chosen, of, F32)])
            elif kind == "data_type_t":
                arguments[word] = by_name[word]
            elif kind == "rounding_mode_t":
                arguments[word] = chosen.choice(more.get("modes", list(Rounding)))
            elif kind == "float":
                arguments[word] = float(np.float32(chosen.uniform(*more.get("number", (0.3, 3)))))
            elif kind == "scalar_t":
                dtype = by_name.get(f"{word}_dtype", by_name.get("src_dtype", common) if word != "true_val" else result)
                raw = numbers(values, dtype, (1,)).view(f"<u{dtype.bytes}")
                arguments[word] = Constant(int(raw[0]), dtype)
            elif kind in ("bool", "_Bool"):
                arguments[word] = chosen.random() < 0.5
            else:
                low, high = more.get("ints", (-8, 8))
                arguments[word] = chosen.randint(low, high)
        for kind, word in kinds:
            if kind == "local_addr_t" and word.startswith(tuple(more.get("filled", ("src", "bias")))):
                base = word.removesuffix("_addr")
                dtype = by_name.get(f"{base}_dtype", by_name.get("src_dtype", common))
                stride = arguments.get(f"{base}_stride")
                data = numbers(values, dtype, of.shape, more.get("spread", 4.0))
                writes.extend(laid(arguments[word], of, stride, dtype, data))
        for at, bits in more.get("tables", {}).items():
            writes.extend((arguments[at] + lane * CONFIG.lane_bytes, bits(common)) for lane in range(CONFIG.lanes))
        yield Case(name, tuple(arguments[word] for _, word in kinds), tuple(writes), result, more.get("ulps", 0))


TYPES = tuple(DTYPES.values())
FLOATS = tuple(dtype for dtype in TYPES if dtype.is_float)
INTEGERS = tuple(dtype for dtype in TYPES if not dtype.is_float)
DDR_START = LOCAL
