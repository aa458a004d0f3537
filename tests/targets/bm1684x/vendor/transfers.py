"""Random transfers, as calls of the device API: directions, types, shapes, strides and widths of matrices."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tilewright.targets.bm1684x.capi import dim4
from tilewright.targets.bm1684x.config import DDR_BASE, Config
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.values.dtypes import BF16, F16, F32, I8, I16, U8, U32, DType

CONFIG = Config()
TYPES = (U8, I8, F16, BF16, I16, F32, U32)
MOST_BYTES = 1 << 23
FAR = DDR_BASE + (1 << 28)


def size(chosen: random.Random) -> int:
    """Return a size of an axis, often near a power of two."""
    if chosen.random() < 0.5:
        return chosen.choice([1, 2, 3, 4, 5, 8, 16, 32, 63, 64, 65])
    return int(2 ** chosen.uniform(0, 8))


def strides(chosen: random.Random, shape: dim4, local: bool, dtype: DType, w: int | None = None) -> dim4 | None:
    """Return strides with gaps at random, or None for the default. `w` is the stride of neighbours in a row."""
    if chosen.random() < 0.5:
        return None
    w = w or chosen.choice([1, 1, 1, 2, 4])
    h = shape.w * w + chosen.choice([0, 0, 1, 5, 64])
    c = shape.h * h + chosen.choice([0, 0, 3, 64, 1000])
    if local:
        unit = CONFIG.eu_bytes // dtype.bytes
        c = -(-c // unit) * unit
        return dim4(layout.slots(0, shape.c, CONFIG) * c, c, h, w)
    return dim4(shape.c * c + chosen.choice([0, 0, 7, 500]), c, h, w)


def tensor(chosen: random.Random) -> tuple[str, tuple[Any, ...]]:
    way, dtype = chosen.choice(["S2L", "L2S", "S2S"]), chosen.choice(TYPES)
    while True:
        shape = dim4(*(size(chosen) for _ in range(4)))
        if shape.shape.elements * dtype.bytes <= MOST_BYTES:
            break
    places = [0 if letter == "L" else FAR * (1 + number) for number, letter in ((0, way[2]), (1, way[0]))]
    kind = chosen.choice(
        ["cpy"] * 6
        + ["cpy_cw_trans", "cpy_nc_trans", "set_C_system", "channel_bcast", "compact", "rows", "general_cpy"]
    )
    if kind == "general_cpy" and way != "S2S":
        return f"tpu_gdma_{kind}_{way}", (*places, *reshaped(chosen), None, None, dtype)
    if kind == "rows":
        return by_rows(chosen, way, places, shape, dtype)
    if kind == "cpy_nc_trans":
        turned = dim4(shape.c, shape.n, shape.h, shape.w)
        ends = (
            strides(chosen, shape_of_end, letter == "L", dtype)
            for shape_of_end, letter in ((shape, way[2]), (turned, way[0]))
        )
        return f"tpu_gdma_{kind}_{way}", (*places, shape, *ends, dtype)
    if kind == "set_C_system":
        return f"tpu_gdma_{kind}", (FAR, 3, shape, strides(chosen, shape, False, dtype), dtype)
    if kind == "channel_bcast":
        wide, narrow = (dim4(shape.n, c, shape.h, shape.w) for c in (min(shape.c, 64), 1))
        steps = [
            strides(chosen, shape_of_end, local, dtype, 1)
            for shape_of_end, local in ((wide, True), (narrow, way[0] == "L"))
        ]
        return f"tpu_gdma_channel_bcast_{way[0]}2L", (0, 1 << 15 if way[0] == "L" else FAR, wide, *steps, dtype)
    if kind == "compact" and way != "S2S":
        return f"tpu_gdma_compact_{way}", (*places, shape, dtype)
    if kind == "cpy_cw_trans":
        return f"tpu_gdma_{kind}_{way}", (*places, shape, None, None, dtype)
    ends = (strides(chosen, shape, letter == "L", dtype) for letter in (way[2], way[0]))
    return f"tpu_gdma_cpy_{way}", (*places, shape, *ends, dtype)


def reshaped(chosen: random.Random) -> tuple[dim4, dim4]:
    """Return two shapes with the same number of elements."""
    factors = [chosen.choice([2, 2, 3, 5, 7]) for _ in range(chosen.randint(4, 9))]
    dims = dim4(1, 1, 1, 1), dim4(1, 1, 1, 1)
    for shape in dims:
        for factor in factors:
            axis = chosen.choice("nchw")
            setattr(shape, axis, getattr(shape, axis) * factor)
    return dims


def by_rows(
    chosen: random.Random, way: str, places: list[int], shape: dim4, dtype: DType
) -> tuple[str, tuple[Any, ...]]:
    """Return a transfer that is timed by its bytes alone: moves by index or mask, and linear copies."""
    sizes, count = dim4(1, shape.c, shape.h, shape.w), chosen.randint(1, 40)
    index, whole = 3 * FAR, shape.shape.elements
    return chosen.choice(
        [
            ("tpu_gdma_system_bcast", (0, FAR, min(whole, 10000), chosen.randint(1, 64), dtype)),
            ("tpu_gdma_system_cpy", (FAR, 2 * FAR, min(whole, 65535), dtype)),
            (f"tpu_gdma_h_gather_{way}", (*places, index, False, 0, sizes, count, None, None, None, dtype)),
            (f"tpu_gdma_h_scatter_{way}", (*places, index, False, sizes, count, None, None, None, dtype)),
            ("tpu_gdma_mask_select_S2S", (FAR, 2 * FAR, index, False, shape, dtype, U8)),
            ("tpu_gdma_nonzero_S2S", (FAR, 2 * FAR, shape, U32, 0)),
        ]
    )


def matrix(chosen: random.Random) -> tuple[str, tuple[Any, ...]]:
    way, turned, dtype = chosen.choice(["S2L", "L2S"]), chosen.random() < 0.5, chosen.choice(TYPES)
    rows, columns, width = (int(2 ** chosen.uniform(0, top)) for top in (10, 10, 8))
    outer = rows if turned and way == "L2S" else columns
    places = (0, FAR) if way == "S2L" else (FAR, 0)
    name = f"tpu_gdma_matrix_{'trans_' * turned}{way}"
    return name, (*places, rows, columns, width, outer + chosen.choice([0, 0, 9, 800]), dtype)


def transfers(seed: int, count: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield `count` random transfers: the name of a C function, and its arguments."""
    chosen = random.Random(seed)
    for _ in range(count):
        yield matrix(chosen) if chosen.random() < 0.25 else tensor(chosen)
