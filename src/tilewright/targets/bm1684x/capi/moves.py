"""The transfer functions of the device API. In a name, S2L says: from system (S) to local memory (L)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.targets.bm1684x.capi import parameters as p
from tilewright.targets.bm1684x.capi.forms import (
    DeviceFunction,
    Functions,
    Given,
    Issuer,
    Layout,
    Place,
    Source,
    either,
    function,
    issue,
    one_channel,
    row_of,
    strided,
    turned_cw,
    turned_nc,
)
from tilewright.targets.bm1684x.capi.parameters import CType, Parameter
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape, Stride
from tilewright.targets.bm1684x.layouts.tensor import Grid, Tensor
from tilewright.targets.bm1684x.values.dtypes import U32

MEMORIES = {"S": CType.SYSTEM, "L": CType.LOCAL}
WAYS = ("S2L", "L2S", "L2L", "S2S")
BETWEEN, FROM = WAYS[:2], ("L2S", "S2S")
STRIDES, PLAIN = (p.DST_STRIDE, p.SRC_STRIDE), (p.SHAPE, p.DTYPE)
TWO_SHAPES = (*CType.DIM4.each("dst_shape", "src_shape"), *STRIDES, p.DTYPE)
FAR_DST, FAR_SRC = CType.SYSTEM.each("dst", "src")
INDEX, MASK = CType.EITHER.each("index", "mask")
INDEX_IS_LOCAL, MASK_IS_LOCAL = CType.BOOL("index_is_local"), CType.INT("mask_is_local")
(INDEX_STRIDE,) = CType.DIM4.each("index_stride", optional=True)
ROWS, COLUMNS, WIDTH, ROW_STRIDE = CType.INT.each("rows", "columns", "width", "row_stride")


def _ends(way: str) -> tuple[Parameter, Parameter]:
    """Return the parameters of the destination and the source of a transfer, such as S2L."""
    return MEMORIES[way[2]]("dst"), MEMORIES[way[0]]("src")


def _move(
    way: str,
    operation: str = "dma_copy",
    parameters: tuple[Parameter, ...] = (p.SHAPE, *STRIDES, p.DTYPE),
    shape: Callable[[Shape, Given], Shape] | None = None,
    local: Layout = layout.aligned,
) -> DeviceFunction:
    """Return the function of a transfer in the direction `way`. `shape` computes that of the source.

    `local` is the layout of operands in local memory without strides.
    """
    dst, src = _ends(way)
    return function(
        (dst, src, *parameters), issue(operation, y=Place(dst, layout=local), x=Place(src, None, shape, local))
    )


def _bare(way: str, operation: str, shape: Callable[[Shape, Given], Shape], always: bool = False) -> DeviceFunction:
    """Return the function of a transfer whose command has no strides if the call has none.

    With `always`, the command always has strides.
    """
    dst, src = _ends(way)

    def has_strides(given: Given) -> bool:
        return bool(given["dst_stride"] or given["src_stride"] or always)

    ends: dict[str, Source] = {"y": dst, "x": Place(src, shape=shape)}
    given, missing = (issue(operation, **ends, without_strides=bare) for bare in (False, True))
    return strided(either(has_strides, given, missing), p.DTYPE)


def _by_index(kind: str, way: str) -> DeviceFunction:
    """Return the function of a gather or scatter of rows. Each row of each channel has its own index.

    A gather writes a fill value where an index is out of range. A scatter keeps all other rows of its destination.
    """
    dst, src = _ends(way)
    gathers = kind == "gather"

    def indices(shape: Shape, given: Given) -> Shape:
        return Shape(1, shape.c, shape.h if gathers else given["param_h"], 1)

    last: dict[str, Source] = {"fill": p.C} if gathers else {"y_before": dst}
    source = Place(src, shape=lambda shape, given: shape._replace(h=given["param_h"]))
    index = Place(INDEX, U32, indices, near=INDEX_IS_LOCAL)
    fill = (p.C,) if gathers else ()
    return function(
        (dst, src, INDEX, INDEX_IS_LOCAL, *fill, p.SHAPE, p.PARAM_H, *STRIDES, INDEX_STRIDE, p.DTYPE),
        issue(f"dma_h_{kind}", y=dst, x=source, index=index, **last),
    )


def _matrix(way: str, transposed: bool, vector: bool = False) -> DeviceFunction:
    """Return the function of a transfer between a matrix in system memory and a matrix in local memory.

    The function's size parameters are the sizes of the source. Its parameter `width` is the number of columns per
    channel of the local matrix.
    """

    def run(api: Issuer, given: Given) -> None:
        dtype, width = given["dtype"], given["width"]
        rows, columns = (1, given["length"]) if vector else (given["rows"], given["columns"])
        near, far = ("dst", "src") if way == "S2L" else ("src", "dst")
        turned = (columns, rows) if transposed else (rows, columns)
        height, length = turned if way == "S2L" else (rows, columns)
        outer = (rows, columns) if way == "S2L" else turned
        stride = Stride(0, 0, given.get("row_stride", columns), 1)
        ends: dict[str, Any] = {
            near: api.matrix(given[near], height, length, width, dtype),
            far: Grid(Tensor(given[far], Shape(1, 1, *outer), stride, dtype, api.config)),
        }
        api.issue("dma_matrix_trans" if transposed else "dma_copy", {"x": ends["src"]}, {"y": ends["dst"]})

    sizes = (p.LENGTH, WIDTH) if vector else (ROWS, COLUMNS, WIDTH, ROW_STRIDE)
    return DeviceFunction((*_ends(way), *sizes, p.DTYPE), run)


def _to_lanes(api: Issuer, given: Given) -> None:
    """Issue a copy of neighbouring elements outside of local memory to one place in each of some lanes.

    The destination is an address on the bus, whose place in local memory counts (measured).
    """
    count, dtype = given["count"], given["dtype"]
    x = api.system(given["src"], Shape(1, 1, 1, count), None, dtype)
    shape = Shape(1, given["lanes"], 1, count)
    y = api.local(given["dst"] % api.config.local_bytes, shape, None, dtype, layout.compact)
    api.issue("dma_linear_bcast", {"x": x}, {"y": y})


def _fill(dst: Parameter) -> DeviceFunction:
    """Return the function that fills a tensor with a number."""
    return strided(issue("dma_broadcast", y=Place(dst, layout=layout.dma_default), x=p.C), p.DTYPE)


def _selection(way: str) -> Functions:
    """Return the functions, by C name, that write the selected elements, or the positions of those that are not 0."""
    src = _ends(way)[1]
    mask = Place(MASK, p.MASK_DTYPE, near=MASK_IS_LOCAL)
    return {
        f"mask_select_{way}": function(
            (FAR_DST, src, MASK, MASK_IS_LOCAL, *PLAIN, p.MASK_DTYPE),
            issue("dma_mask_select", y=FAR_DST, x=src, mask=mask),
        ),
        f"nonzero_{way}": function(
            (FAR_DST, src, *PLAIN, CType.UNSIGNED("base")), issue("dma_nonzero", y=Place(FAR_DST, U32), x=src)
        ),
    }


LINEAR = row_of(p.COUNT)
#: Functions by name, without the prefix tpu_gdma_. Selections write to system memory without gaps;
#: tpu_gdma_get_filter_num returns the number of selected elements.
MOVES: Functions = {
    **{f"cpy_{way}": _move(way, local=layout.dma_default) for way in WAYS if way != "L2L"},
    "cpy_L2L": _move("L2L"),
    **{f"cpy_nc_trans_{way}": _bare(way, "dma_nc_trans", turned_nc, always=way[0] == way[2]) for way in WAYS},
    **{f"cpy_cw_trans_{way}": _move(way, "dma_cw_trans", shape=turned_cw) for way in WAYS},
    **{f"channel_bcast_{way}": _bare(way, "dma_broadcast", one_channel) for way in ("S2L", "L2L")},
    **{f"general_cpy_{way}": _move(way, parameters=TWO_SHAPES) for way in WAYS[:3]},
    **{f"compact_{way}": _move(way, parameters=PLAIN, local=layout.compact) for way in BETWEEN},
    **{f"compact_nc_trans_{way}": _move(way, "dma_nc_trans", PLAIN, turned_nc, layout.compact) for way in BETWEEN},
    "system_cpy": function(
        (FAR_DST, FAR_SRC, p.COUNT, p.DTYPE),
        issue("dma_linear", y=Place(FAR_DST, shape=LINEAR), x=Place(FAR_SRC, shape=LINEAR)),
    ),
    "system_bcast": DeviceFunction((FAR_DST, FAR_SRC, p.COUNT, p.LANES, p.DTYPE), _to_lanes),
    "set_C_local": _fill(p.DST),
    "set_C_system": _fill(FAR_DST),
    **{f"matrix_{way}": _matrix(way, False) for way in BETWEEN},
    **{f"matrix_trans_{way}": _matrix(way, True) for way in BETWEEN},
    **{f"vector_{way}": _matrix(way, False, vector=True) for way in BETWEEN},
    **{f"h_{kind}_{way}": _by_index(kind, way) for kind in ("gather", "scatter") for way in WAYS},
    **{name: made for way in FROM for name, made in _selection(way).items()},
}
