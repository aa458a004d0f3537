"""Random arguments for transfers, with and without indices, and for sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.targets.bm1684x.random_calls.draw import FAR, STEP, TYPES, Call, Draw
from tests.targets.bm1684x.random_calls.elementwise import parameters
from tests.targets.bm1684x.random_calls.products import call
from tilewright.targets.bm1684x.capi import dim4
from tilewright.targets.bm1684x.config import DDR_BASE
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I16, I32, U8, U16, U32, DType

Maker = Callable[[Draw, str], Call]


def far(draw: Draw, dtype: DType, limit: int = 0) -> int:
    """Return the bus address of a new operand in DDR, with values."""
    draw.places += 1
    draw.fill((draw.places - 1) * FAR, dtype, limit, far=True)
    return DDR_BASE + (draw.places - 1) * FAR


def place(draw: Draw, letter: str, dtype: DType, limit: int = 0) -> int:
    """Return the address of a new operand in local memory (L) or DDR (S), with values."""
    return draw.filled(dtype, limit) if letter == "L" else far(draw, dtype, limit)


def _ways(name: str) -> tuple[str, str]:
    """Return the letters of the destination and the source of a transfer."""
    way = name.rsplit("_", maxsplit=1)[-1]
    return way[2], way[0]


def plain(draw: Draw, name: str) -> Call:
    """A copy, transpose or broadcast of tensors."""
    dtype, shape, given = draw.of(TYPES), draw.shape(), dict[str, Any]()
    to, source = _ways(name) if name[-3:-2] in "LS" and name[-2] == "2" else ("S" if "system" in name else "L", "S")
    if "bcast" in name:
        shape = dim4(shape.n, min(shape.c, 64), shape.h, shape.w)
    if "cw_trans" in name:
        shape = dim4(shape.n, shape.c, shape.h, draw.of([1, 5, 20, 64, 70]))
    given |= {"dst": place(draw, to, dtype)}
    lane = draw.of([0, 0, 5]) if to == "L" and "bcast" not in name else 0
    given["dst"] += lane << 18
    if "set_C" not in name:
        given["src"] = place(draw, source, dtype)
    turned = dim4(shape.c, shape.n, shape.h, shape.w) if "nc_trans" in name else shape
    turned = dim4(shape.n, shape.w, shape.h, shape.c) if "cw_trans" in name else turned
    if any(word == "dst_stride" for _, word in parameters()[name]) and "cw_trans" not in name:
        given["dst_stride"] = _stride(draw, shape, to, lane)
        given["src_stride"] = _stride(draw, turned, source, 0)
        if "nc_trans" in name and any(given[word] and given[word].w > 1 for word in ("dst_stride", "src_stride")):
            given["dst_stride"] = given["src_stride"] = None  # the model ignores gaps along w
    if "system_cpy" in name:
        given["count"] = draw.between(1, 5000)
    if "system_bcast" in name:
        given |= {"dst": draw.place(), "count": draw.between(1, STEP // dtype.bytes), "lanes": draw.between(1, 64)}
    if "general" in name:
        given |= {"dst_shape": shape, "src_shape": shape}
    return call(draw, name, {**given, "shape": shape}, {"dtype": dtype, "C": dtype}, dtype)


def _stride(draw: Draw, of: dim4, letter: str, lane: int) -> dim4 | None:
    if letter == "L":
        return draw.strides(of, lane)
    if draw.chance(50):
        return None
    w = draw.of([1, 1, 2])
    h = of.w * w + draw.of([0, 0, 3])
    c = of.h * h + draw.of([0, 7])
    return dim4(of.c * c + draw.of([0, 11]), c, h, w)


def matrix(draw: Draw, name: str) -> Call:
    dtype, (to, source) = draw.of(TYPES), _ways(name)
    rows, columns, width = draw.between(1, 40), draw.between(1, 120), draw.of([1, 3, 16, 20])
    outer = rows if "trans" in name and source == "L" else columns
    given = {"dst": place(draw, to, dtype), "src": place(draw, source, dtype)}
    given |= {"rows": rows, "columns": columns, "width": width, "row_stride": outer + draw.of([0, 0, 7])}
    return call(draw, name, {**given, "length": columns}, {"dtype": dtype}, dtype)


def by_index(draw: Draw, name: str) -> Call:
    """A gather or scatter of rows, or a selection."""
    dtype, (to, source) = draw.of(TYPES), _ways(name.replace("_with_ret", ""))
    shape, height = dim4(1, draw.of([1, 5, 64, 65, 100]), draw.between(1, 8), draw.between(1, 20)), draw.between(1, 12)
    given: dict[str, Any] = {"dst": place(draw, to, dtype), "src": place(draw, source, dtype)}
    near = draw.chance(50)
    if "select" in name or "nonzero" in name:
        mask = draw.of([U8, I8, U16, I16, U32, I32])
        dtype = mask if "nonzero" in name else dtype
        given["src"] = place(draw, source, dtype, 0 if dtype.is_float else draw.of([0, 2]))
        given |= {"mask": place(draw, "L" if near else "S", mask, 2), "mask_is_local": near}
        types = {"dtype": dtype, "mask_dtype": mask}
        shape.n = draw.between(1, 3)
        return call(draw, name, {**given, "shape": shape, "base": draw.between(0, 9)}, types, dtype)
    rows = height if "gather" in name else shape.h
    given |= {"index": place(draw, "L" if near else "S", U32, rows + rows // 4), "index_is_local": near}
    return call(draw, name, {**given, "shape": shape, "param_h": height}, {"dtype": dtype, "C": dtype}, dtype)


def sort(draw: Draw, name: str) -> Call:
    if "line" in name:
        return lines(draw, name)
    dtype, length = draw.of([F32, I32, U32]), draw.between(1, 400)
    names = [word for kind, word in parameters()[name] if kind == "system_addr_t"]
    given = {word: far(draw, I32 if word in ("index", "numbers") else dtype) for word in names}
    k = draw.between(1, length)
    given |= {"length": length, "k": k, "flags": (F32, I32, U32).index(dtype), "descends": draw.between(0, 1)}
    given |= {"indexed": draw.between(0, 1), "automatic": draw.between(0, 1)}
    return call(draw, name, given, {"dtype": dtype}, dtype)


def lines(draw: Draw, name: str) -> Call:
    """A gather of lines, some of them out of range."""
    dtype, count = draw.of(TYPES), draw.between(1, 20)
    end = draw.between(0, count - 1)
    given: dict[str, Any] = {"line_num": count, "line_len": draw.between(1, 200), "index_len": draw.between(1, 60)}
    given |= {"start": draw.between(0, end), "end": end, "index": far(draw, I32, count + 2)}
    given |= {"output": far(draw, dtype), "param": far(draw, dtype)}
    return call(draw, name, given, {"dtype": dtype, "C": dtype}, dtype)


def _named(start: str, *ways: str) -> list[str]:
    return [f"tpu_gdma_{start}_{way}" for way in ways]


BOTH, ALL = ("S2L", "L2S"), ("S2L", "L2S", "L2L", "S2S")
MOVES: dict[str, tuple[list[str], Maker]] = {
    "copies": (
        [
            *_named("cpy", *ALL),
            *_named("general_cpy", *BOTH, "L2L"),
            "tpu_gdma_system_bcast",
            *_named("compact", *BOTH),
            *("tpu_gdma_system_cpy", "tpu_gdma_set_C_local", "tpu_gdma_set_C_system"),
            *_named("channel_bcast", "S2L", "L2L"),
        ],
        plain,
    ),
    "transposes": (
        [*_named("cpy_nc_trans", *ALL), *_named("cpy_cw_trans", *ALL), *_named("compact_nc_trans", *BOTH)],
        plain,
    ),
    "matrices": ([*_named("matrix", *BOTH), *_named("matrix_trans", *BOTH), *_named("vector", *BOTH)], matrix),
    "moves by index": (
        [
            *_named("h_gather", *ALL),
            *_named("h_scatter", *ALL),
            *_named("mask_select", "L2S", "S2S"),
            *_named("nonzero", "L2S", "S2S"),
        ],
        by_index,
    ),
    "sorting": (
        [
            *(f"tpu_hau_sort{kind}" for kind in ("", "_natural_index", "_specific_index", "_general")),
            "tpu_hau_line_gather",
        ],
        sort,
    ),
}
