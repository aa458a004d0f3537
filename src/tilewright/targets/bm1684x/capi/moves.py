"""Transfers: each call's parameters as operands. Letters of a name say where data comes from and goes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.targets.bm1684x.capi.forms import Function, Given, Issuer, Layout
from tilewright.targets.bm1684x.capi.names import constant
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Operand, Shape, Stride
from tilewright.targets.bm1684x.layouts.tensor import Grid, Matrix, Tensor
from tilewright.targets.bm1684x.values.dtypes import U32

WAYS = ("S2L", "L2S", "L2L", "S2S")
BETWEEN = WAYS[:2]
ADDRESSES, STRIDES = "dst src", "dst_stride src_stride"
Sides = Callable[[Given], tuple[Shape, Shape]]
Extras = Callable[[Issuer, Given], Mapping[str, Operand | Constant]]


def _same(given: Given) -> tuple[Shape, Shape]:
    return given["shape"].shape, given["shape"].shape


def _none(api: Issuer, given: Given) -> Mapping[str, Operand | Constant]:
    return {}


def _move(
    parameters: str,
    operation: str,
    way: str,
    sides: Sides = _same,
    default: Layout = layout.aligned,
    extras: Extras = _none,
    warns: bool = False,
) -> Function:
    """`sides`: the result's shape and the source's; `default`: the local layout where no stride is given.

    `warns`: of the default where it is not that of the compute engine.
    """

    def run(api: Issuer, given: Given) -> None:
        to, of = sides(given)
        ends = {}
        for end, letter, shape in (("dst", way[2], to), ("src", way[0], of)):
            stride = given.get(f"{end}_stride")
            if warns and letter == "L" and stride is None:
                api.warn_of_dma_default(given["name"], shape, given[end])
            ends[end] = api.place(letter, given[end], shape, stride, given["dtype"], default)
        operands = {"x": ends["src"], **extras(api, given)}
        if operation == "dma_h_scatter":  # what is not scattered to stays
            operands["y_before"] = ends["dst"]
        api.issue(operation, operands, {"y": ends["dst"]})

    return Function(parameters, run)


def _turned(order: Callable[[Shape], Shape]) -> Sides:
    """The source's shape from the result's."""
    return lambda given: (given["shape"].shape, order(given["shape"].shape))


nc, cw = _turned(lambda s: Shape(s.c, s.n, s.h, s.w)), _turned(lambda s: Shape(s.n, s.w, s.h, s.c))
broadcast = _turned(lambda s: s._replace(c=1))


def _two_shapes(given: Given) -> tuple[Shape, Shape]:
    return given["dst_shape"].shape, given["src_shape"].shape


def _by_rows(given: Given) -> tuple[Shape, Shape]:
    return given["shape"].shape, given["shape"].shape._replace(h=given["param_h"])


def _line(given: Given) -> tuple[Shape, Shape]:
    return Shape(1, 1, 1, given["count"]), Shape(1, 1, 1, given["count"])


def _index(rows: Callable[[Given], int], fills: bool) -> Extras:
    """Numbers of rows, one for each channel and row; what stands for numbers beyond the rows."""

    def extras(api: Issuer, given: Given) -> Mapping[str, Operand | Constant]:
        letter, shape = "L" if given["index_is_local"] else "S", Shape(1, given["shape"].c, rows(given), 1)
        numbers = api.place(letter, given["index"], shape, given["index_stride"], U32, layout.aligned)
        return {"index": numbers, **({"fill": constant(given["C"], given["dtype"])} if fills else {})}

    return extras


gather, scatter = _index(lambda given: int(given["shape"].h), True), _index(lambda given: int(given["param_h"]), False)
_GATHER = "dst src index index_is_local C shape param_h dst_stride src_stride index_stride dtype"


def _set(letter: str) -> Function:
    def run(api: Issuer, given: Given) -> None:
        shape, dtype = given["shape"].shape, given["dtype"]
        y = api.place(letter, given["dst"], shape, given["dst_stride"], dtype, layout.aligned)
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
        operands = {"x": api.place(letter, given["src"], shape, None, dtype, layout.aligned)}
        if masked:
            where = "L" if given["mask_is_local"] else "S"
            operands["mask"] = api.place(where, given["mask"], shape, None, given["mask_dtype"], layout.aligned)
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
    **{f"channel_bcast_{way}": _move(_FULL, "dma_broadcast", way, broadcast) for way in ("S2L", "L2L")},
    **{
        f"general_cpy_{way}": _move(f"dst src dst_shape src_shape {STRIDES} dtype", "dma_copy", way, _two_shapes)
        for way in BETWEEN
    },
    **{f"compact_{way}": _move(_PLAIN, "dma_copy", way, default=layout.compact) for way in BETWEEN},
    **{f"compact_nc_trans_{way}": _move(_PLAIN, "dma_nc_trans", way, nc, layout.compact) for way in BETWEEN},
    "system_cpy": _move("dst src count dtype", "dma_copy", "S2S", _line),
    "set_C_local": _set("L"),
    "set_C_system": _set("S"),
    **{f"matrix_{way}": _matrix(way, False) for way in BETWEEN},
    **{f"matrix_trans_{way}": _matrix(way, True) for way in BETWEEN},
    **{f"vector_{way}": _matrix(way, False, vector=True) for way in BETWEEN},
    **{f"h_gather_{way}": _move(_GATHER, "dma_h_gather", way, _by_rows, extras=gather) for way in WAYS},
    **{
        f"h_scatter_{way}": _move(_GATHER.replace(" C ", " "), "dma_h_scatter", way, _by_rows, extras=scatter)
        for way in WAYS
    },
    **{f"mask_select_{way}": _selected(way[0], True) for way in ("L2S", "S2S")},
    **{f"nonzero_{way}": _selected(way[0], False) for way in ("L2S", "S2S")},
}
