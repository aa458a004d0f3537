"""The transfer functions of the device API, as a table. In a name, S2L says: from system (S) to local memory (L)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.targets.bm1684x.capi.forms import Function, Given, Issuer, function
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape, Stride
from tilewright.targets.bm1684x.layouts.tensor import Grid, Tensor

WAYS = ("S2L", "L2S", "L2L", "S2S")
BETWEEN, FROM = WAYS[:2], ("L2S", "S2S")
ADDRESSES, STRIDES = "dst src", "dst_stride src_stride"


def _move(
    way: str,
    operation: str = "dma_copy",
    parameters: str = f"{ADDRESSES} shape {STRIDES} dtype",
    of: str = "",
    local: str = "L",
    fixed: Mapping[str, Any] | None = None,
) -> Function:
    """Return the C function of a transfer in the direction `way`, such as S2L (from system to local memory).

    `of` is the /SHAPE of the source and `local` the letter for the layout of local operands (see forms.operand).
    """
    to, source = (local if letter == "L" else "S" for letter in (way[2], way[0]))
    return function(parameters, operation, f"y=dst@{to} x=src{of}@{source}", fixed)


def _bare(way: str, operation: str, of: str, always: bool = False) -> Function:
    """Return the C function of a transfer whose command has no strides if the call has none.

    With `always`, the command always has strides.
    """
    plain, bare = (_move(way, operation, of=of, fixed={"without_strides": bare}) for bare in (False, True))

    def run(api: Issuer, given: Given) -> None:
        strides = given["dst_stride"] or given["src_stride"] or always
        (plain if strides else bare).run(api, given)

    return Function(plain.parameters, run)


def _by_index(kind: str, way: str) -> Function:
    """Return the C function of a gather or scatter of rows. Each row of each channel has its own index.

    A gather writes a fill value where an index is out of range. A scatter keeps all other rows of its destination.
    """
    fill, last = ("C ", "fill=C") if kind == "gather" else ("", f"y_before=dst@{way[2]}")
    parameters = f"dst src index index_is_local {fill}shape param_h {STRIDES} index_stride dtype"
    operands = f"y=dst@{way[2]} x=src/rows@{way[0]} index=index/{kind}s@index_is_local:u32 {last}"
    return function(parameters, f"dma_h_{kind}", operands)


def _matrix(way: str, transposed: bool, vector: bool = False) -> Function:
    """Return the C function of a transfer between a matrix in system memory and a matrix in local memory.

    The function's size parameters are the sizes of the source. Its parameter `width` is the number of columns per
    channel of the local matrix.
    """
    sizes = "length width" if vector else "rows columns width row_stride"

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

    return Function(f"dst src {sizes} dtype", run)


def _to_lanes(api: Issuer, given: Given) -> None:
    """Issue a copy of neighbouring elements outside of local memory to one place in each of some lanes.

    The destination is an address on the bus, whose place in local memory counts (measured).
    """
    count, dtype = given["count"], given["dtype"]
    x = api.system(given["src"], Shape(1, 1, 1, count), None, dtype)
    y = api.local(
        given["dst"] % api.config.local_bytes, Shape(1, given["lanes"], 1, count), None, dtype, layout.compact
    )
    api.issue("dma_linear_bcast", {"x": x}, {"y": y})


PLAIN, TWO_SHAPES = f"{ADDRESSES} shape dtype", f"{ADDRESSES} dst_shape src_shape {STRIDES} dtype"
SET, MASKED = "dst C shape dst_stride dtype", f"{ADDRESSES} mask mask_is_local shape dtype mask_dtype"
#: Functions by name, without the prefix tpu_gdma_. Selections write to system memory without gaps;
#: tpu_gdma_get_filter_num returns the number of selected elements.
MOVES: dict[str, Function] = {
    **{f"cpy_{way}": _move(way, local="L" if way == "L2L" else "D") for way in WAYS},
    **{f"cpy_nc_trans_{way}": _bare(way, "dma_nc_trans", "/nc", always=way[0] == way[2]) for way in WAYS},
    **{f"cpy_cw_trans_{way}": _move(way, "dma_cw_trans", of="/cw") for way in WAYS},
    **{f"channel_bcast_{way}": _bare(way, "dma_broadcast", "/c1") for way in ("S2L", "L2L")},
    **{f"general_cpy_{way}": _move(way, parameters=TWO_SHAPES) for way in WAYS[:3]},
    **{f"compact_{way}": _move(way, parameters=PLAIN, local="C") for way in BETWEEN},
    **{f"compact_nc_trans_{way}": _move(way, "dma_nc_trans", PLAIN, "/nc", "C") for way in BETWEEN},
    "system_cpy": function("dst src count dtype", "dma_linear", "y=dst/count@S x=src/count@S"),
    "system_bcast": Function("dst src count lanes dtype", _to_lanes),
    "set_C_local": function(SET, "dma_broadcast", "y=dst@D x=C"),
    "set_C_system": function(SET, "dma_broadcast", "y=dst@S x=C"),
    **{f"matrix_{way}": _matrix(way, False) for way in BETWEEN},
    **{f"matrix_trans_{way}": _matrix(way, True) for way in BETWEEN},
    **{f"vector_{way}": _matrix(way, False, vector=True) for way in BETWEEN},
    **{f"h_{kind}_{way}": _by_index(kind, way) for kind in ("gather", "scatter") for way in WAYS},
    **{
        f"mask_select_{way}": function(
            MASKED, "dma_mask_select", f"y=dst@S x=src@{way[0]} mask=mask@mask_is_local:mask_dtype"
        )
        for way in FROM
    },
    **{
        f"nonzero_{way}": function(f"{ADDRESSES} shape dtype base", "dma_nonzero", f"y=dst@S:u32 x=src@{way[0]}")
        for way in FROM
    },
}
