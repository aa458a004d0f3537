"""Transfers: each call's parameters as operands. Letters of a name say where data comes from and goes to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.targets.bm1684x.capi.forms import Function, Given, Issuer, Layout
from tilewright.targets.bm1684x.capi.names import constant
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape, Stride
from tilewright.targets.bm1684x.layouts.tensor import Grid, Matrix, Tensor
from tilewright.targets.bm1684x.values.dtypes import U32

WAYS = ("S2L", "L2S", "L2L", "S2S")
BETWEEN = WAYS[:2]
ADDRESSES, STRIDES = "dst src", "dst_stride src_stride"
Order = Callable[[Shape], Shape]


def _ends(
    api: Issuer, given: Given, way: str, to: Shape, of: Shape, default: Layout = layout.aligned, warns: bool = False
) -> tuple[Tensor, Tensor]:
    """The result and the source, in local memory in the layout `default` where no stride is given.

    `warns`: of the default where it is not that of the compute engine.
    """
    found = []
    for end, letter, shape in (("dst", way[2], to), ("src", way[0], of)):
        stride = given.get(f"{end}_stride")
        if warns and letter == "L" and stride is None:
            api.warn_of_dma_default(given["name"], shape, given[end])
        found.append(api.place(letter, given[end], shape, stride, given["dtype"], default))
    return found[0], found[1]


def _same(shape: Shape) -> Shape:
    return shape


def _move(parameters: str, operation: str, way: str, order: Order = _same, **more: Any) -> Function:
    """`order`: the source's shape from the result's, where the call gives one; `more`: as for _ends."""

    def run(api: Issuer, given: Given) -> None:
        if "count" in given:
            to = of = Shape(1, 1, 1, given["count"])
        elif "shape" in given:
            to, of = given["shape"].shape, order(given["shape"].shape)
        else:
            to, of = given["dst_shape"].shape, given["src_shape"].shape
        y, x = _ends(api, given, way, to, of, **more)
        api.issue(operation, {"x": x}, {"y": y})

    return Function(parameters, run)


def nc(shape: Shape) -> Shape:
    return Shape(shape.c, shape.n, shape.h, shape.w)


def cw(shape: Shape) -> Shape:
    return Shape(shape.n, shape.w, shape.h, shape.c)


def one_channel(shape: Shape) -> Shape:
    return shape._replace(c=1)


def _by_index(operation: str, way: str) -> Function:
    """Rows by their numbers, one for each channel and row; a gather has what stands for numbers beyond the rows."""
    fill = "C " * (operation == "dma_h_gather")

    def run(api: Issuer, given: Given) -> None:
        shape, rows = given["shape"].shape, given["param_h"]
        y, x = _ends(api, given, way, shape, shape._replace(h=rows))
        letter, numbers = "L" if given["index_is_local"] else "S", Shape(1, shape.c, shape.h if fill else rows, 1)
        index = api.place(letter, given["index"], numbers, given["index_stride"], U32)
        last = {"fill": constant(given["C"], given["dtype"])} if fill else {"y_before": y}  # the other rows stay
        api.issue(operation, {"x": x, "index": index, **last}, {"y": y})

    return Function(f"dst src index index_is_local {fill}shape param_h {STRIDES} index_stride dtype", run)


def _set(letter: str) -> Function:
    def run(api: Issuer, given: Given) -> None:
        shape, dtype = given["shape"].shape, given["dtype"]
        y = api.place(letter, given["dst"], shape, given["dst_stride"], dtype)
        api.issue("dma_broadcast", {"x": constant(given["C"], dtype)}, {"y": y})

    return Function("dst C shape dst_stride dtype", run)


def _matrix(way: str, transposed: bool, vector: bool = False) -> Function:
    """Between rows outside and columns spread over lanes; sizes are the source's, the width is of the local side."""
    sizes = "length width" if vector else "rows columns width row_stride"

    def run(api: Issuer, given: Given) -> None:
        dtype, width = given["dtype"], given["width"]
        rows, columns = (1, given["length"]) if vector else (given["rows"], given["columns"])
        near, far = ("dst", "src") if way == "S2L" else ("src", "dst")
        turned = (columns, rows) if transposed else (rows, columns)
        height, length = turned if way == "S2L" else (rows, columns)
        outer = (rows, columns) if way == "S2L" else turned
        local = api.local(given[near], Shape(height, -(-length // width), 1, width), None, dtype)
        stride = Stride(0, 0, given.get("row_stride", columns), 1)
        ends: dict[str, Any] = {
            near: Matrix(local, length),
            far: Grid(Tensor(given[far], Shape(1, 1, *outer), stride, dtype, api.config)),
        }
        api.issue("dma_matrix_trans" if transposed else "dma_copy", {"x": ends["src"]}, {"y": ends["dst"]})

    return Function(f"dst src {sizes} dtype", run)


def _selected(letter: str, masked: bool) -> Function:
    """What is kept goes outside, without gaps; how many: tpu_gdma_get_filter_num."""
    mask = "mask mask_is_local " if masked else ""
    tail = "dtype mask_dtype" if masked else "dtype base"

    def run(api: Issuer, given: Given) -> None:
        shape, dtype = given["shape"].shape, given["dtype"]
        operands = {"x": api.place(letter, given["src"], shape, None, dtype)}
        if masked:
            where = "L" if given["mask_is_local"] else "S"
            operands["mask"] = api.place(where, given["mask"], shape, None, given["mask_dtype"])
        y = api.system(given["dst"], shape, None, dtype if masked else U32)
        attributes = {} if masked else {"base": given["base"]}
        api.issue("dma_mask_select" if masked else "dma_nonzero", operands, {"y": y}, attributes)

    return Function(f"dst src {mask}shape {tail}", run)


_FULL = f"{ADDRESSES} shape {STRIDES} dtype"
_PLAIN = f"{ADDRESSES} shape dtype"
#: By name without tpu_gdma_.
MOVES: dict[str, Function] = {
    **{f"cpy_{way}": _move(_FULL, "dma_copy", way, default=layout.dma_default, warns=True) for way in WAYS},
    **{f"cpy_nc_trans_{way}": _move(_FULL, "dma_nc_trans", way, nc) for way in WAYS},
    **{f"cpy_cw_trans_{way}": _move(_FULL, "dma_cw_trans", way, cw) for way in WAYS},
    **{f"channel_bcast_{way}": _move(_FULL, "dma_broadcast", way, one_channel) for way in ("S2L", "L2L")},
    **{f"general_cpy_{way}": _move(f"dst src dst_shape src_shape {STRIDES} dtype", "dma_copy", way) for way in BETWEEN},
    **{f"compact_{way}": _move(_PLAIN, "dma_copy", way, default=layout.compact) for way in BETWEEN},
    **{f"compact_nc_trans_{way}": _move(_PLAIN, "dma_nc_trans", way, nc, default=layout.compact) for way in BETWEEN},
    "system_cpy": _move("dst src count dtype", "dma_copy", "S2S"),
    "set_C_local": _set("L"),
    "set_C_system": _set("S"),
    **{f"matrix_{way}": _matrix(way, False) for way in BETWEEN},
    **{f"matrix_trans_{way}": _matrix(way, True) for way in BETWEEN},
    **{f"vector_{way}": _matrix(way, False, vector=True) for way in BETWEEN},
    **{f"h_{kind}_{way}": _by_index(f"dma_h_{kind}", way) for kind in ("gather", "scatter") for way in WAYS},
    **{f"mask_select_{way}": _selected(way[0], True) for way in ("L2S", "S2S")},
    **{f"nonzero_{way}": _selected(way[0], False) for way in ("L2S", "S2S")},
}
