"""The transfer functions of the device API. The suffix S2L means: from system memory (S) to local memory (L)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.targets.bm1684x.capi.forms import (
    Args,
    Functions,
    Issuer,
    Layout,
    Place,
    Run,
    either,
    issue,
    one_channel,
    row_of,
    transposed_cw,
    transposed_nc,
)
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape, Stride
from tilewright.targets.bm1684x.layouts.tensor import Grid, Tensor
from tilewright.targets.bm1684x.values.dtypes import U32

WAYS = ("S2L", "L2S", "L2L", "S2S")
BETWEEN = WAYS[:2]
FROM = ("L2S", "S2S")
Shaping = Callable[[Shape, Args], Shape]


def _move(operation: str = "dma_copy", shape: Shaping | None = None, local: Layout = layout.aligned) -> Run:
    return issue(operation, y=Place("dst", layout=local), x=Place("src", None, shape, local))


def _bare(direction: str, operation: str, shape: Shaping) -> Run:
    def strided(call: Args) -> bool:
        # Exchanges of n and c within one memory always have strides. Strides change the time of a transfer, not its
        # result.
        within_one_memory = direction[0] == direction[2]
        transposes = within_one_memory and operation == "dma_nc_trans"
        return bool(call["dst_stride"] or call["src_stride"] or transposes)

    with_strides, without = (
        issue(operation, y="dst", x=Place("src", shape=shape), without_strides=flag) for flag in (False, True)
    )
    return either(strided, with_strides, without)


def _index(rows: Callable[[Shape, Args], int]) -> Place:
    return Place("index", U32, lambda shape, call: Shape(1, shape.c, rows(shape, call), 1), is_local="index_is_local")


PARAM = Place("src", shape=lambda shape, call: shape._replace(h=call["param_h"]))
#: A gather writes a fill value for each index out of range. A scatter overwrites only the rows that its indices name.
GATHER = issue("dma_h_gather", y="dst", x=PARAM, index=_index(lambda shape, call: shape.h), fill="C")
SCATTER = issue(
    "dma_h_scatter", y="dst", x=PARAM, index=_index(lambda shape, call: int(call["param_h"])), y_before="dst"
)


def _matrix(way: str, transposed: bool, vector: bool = False) -> Run:
    def run(api: Issuer, call: Args) -> None:
        dtype = call["dtype"]
        width = call["width"]
        rows, columns = (1, call["length"]) if vector else (call["rows"], call["columns"])
        transposed_sizes = (columns, rows) if transposed else (rows, columns)
        sizes: dict[str, tuple[int, int]] = {"src": (rows, columns), "dst": transposed_sizes}
        # The local matrix spreads its columns over lanes, `width` columns per channel. The system matrix is stored row
        # by row.
        local, system = ("dst", "src") if way == "S2L" else ("src", "dst")
        stride = Stride(0, 0, call.get("row_stride", columns), 1)
        ends: dict[str, Any] = {
            local: api.matrix(call[local], *sizes[local], width, dtype),
            system: Grid(Tensor(call[system], Shape(1, 1, *sizes[system]), stride, dtype, api.config)),
        }
        api.issue("dma_matrix_trans" if transposed else "dma_copy", {"x": ends["src"]}, {"y": ends["dst"]})

    return run


def _to_lanes(api: Issuer, call: Args) -> None:
    count = call["count"]
    dtype = call["dtype"]
    x = api.system(call["src"], Shape(1, 1, 1, count), None, dtype)
    shape = Shape(1, call["lanes"], 1, count)
    # The machine uses only the low bits of the destination: its offset within local memory (measured).
    y = api.local(call["dst"] % api.config.local_bytes, shape, None, dtype, layout.compact)
    api.issue("dma_linear_bcast", {"x": x}, {"y": y})


LINEAR = row_of("count")
FILL = issue("dma_broadcast", y=Place("dst", layout=layout.dma_default), x="C")
MASK = Place("mask", "mask_dtype", is_local="mask_is_local")
#: Functions by name, without the prefix tpu_gdma_. A selection writes its elements to system memory without gaps, and
#: tpu_gdma_get_filter_num then returns their number.
MOVES: Functions = {
    **{f"cpy_{way}": _move(local=layout.dma_default) for way in WAYS if way != "L2L"},
    "cpy_L2L": _move(),
    **{f"cpy_nc_trans_{way}": _bare(way, "dma_nc_trans", transposed_nc) for way in WAYS},
    **{f"cpy_cw_trans_{way}": _move("dma_cw_trans", transposed_cw) for way in WAYS},
    **{f"channel_bcast_{way}": _bare(way, "dma_broadcast", one_channel) for way in ("S2L", "L2L")},
    **{f"general_cpy_{way}": _move() for way in WAYS[:3]},
    **{f"compact_{way}": _move(local=layout.compact) for way in BETWEEN},
    **{f"compact_nc_trans_{way}": _move("dma_nc_trans", transposed_nc, layout.compact) for way in BETWEEN},
    "system_cpy": issue("dma_linear", y=Place("dst", shape=LINEAR), x=Place("src", shape=LINEAR)),
    "system_bcast": _to_lanes,
    "set_C_local": FILL,
    "set_C_system": FILL,
    **{f"matrix_{way}": _matrix(way, False) for way in BETWEEN},
    **{f"matrix_trans_{way}": _matrix(way, True) for way in BETWEEN},
    **{f"vector_{way}": _matrix(way, False, vector=True) for way in BETWEEN},
    **{f"h_gather_{way}": GATHER for way in WAYS},
    **{f"h_scatter_{way}": SCATTER for way in WAYS},
    **{f"mask_select_{way}": issue("dma_mask_select", y="dst", x="src", mask=MASK) for way in FROM},
    **{f"nonzero_{way}": issue("dma_nonzero", y=Place("dst", U32), x="src") for way in FROM},
}
