"""Transfers: each call's parameters as operands. Letters of a name say where data comes from and goes to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tilewright.targets.bm1684x import layout
from tilewright.targets.bm1684x.capi.names import constant, dim4
from tilewright.targets.bm1684x.dtypes import U32, DType
from tilewright.targets.bm1684x.layout import Shape
from tilewright.targets.bm1684x.tensor import Operand, Tensor

if TYPE_CHECKING:
    from tilewright.targets.bm1684x.capi.tpu import DeviceApi, Layout

WAYS = ("S2L", "L2S", "L2L", "S2S")
#: The source's shape of a transposing copy, from the destination's.
SOURCES: dict[str, tuple[str, Callable[[Shape], Shape]]] = {
    "cpy_nc_trans": ("dma_nc_trans", lambda s: Shape(s.c, s.n, s.h, s.w)),
    "cpy_cw_trans": ("dma_cw_trans", lambda s: Shape(s.n, s.w, s.h, s.c)),
    "channel_bcast": ("dma_broadcast", lambda s: Shape(s.n, 1, s.h, s.w)),
}


def _place(
    api: DeviceApi, letter: str, address: int, shape: Shape, stride: dim4 | None, dtype: DType, default: Layout
) -> Tensor:
    if letter == "L":
        return api.local(address, shape, stride, dtype, default)
    return api.system(address, shape, stride, dtype)


def _copy(
    way: str, api: DeviceApi, name: str, dst: int, src: int, shape: dim4, to: dim4 | None, of: dim4 | None, dtype: DType
) -> None:
    for letter, address, stride in ((way[2], dst, to), (way[0], src, of)):
        if letter == "L" and stride is None:
            api.warn_of_dma_default(name, shape.shape, address)
    y = _place(api, way[2], dst, shape.shape, to, dtype, layout.dma_default)
    api.issue("dma_copy", {"x": _place(api, way[0], src, shape.shape, of, dtype, layout.dma_default)}, {"y": y})


def _reordered(
    kind: str,
    way: str,
    api: DeviceApi,
    name: str,
    dst: int,
    src: int,
    shape: dim4,
    to: dim4 | None,
    of: dim4 | None,
    dtype: DType,
) -> None:
    operation, source = SOURCES[kind]
    y = _place(api, way[2], dst, shape.shape, to, dtype, layout.aligned)
    x = _place(api, way[0], src, source(shape.shape), of, dtype, layout.aligned)
    api.issue(operation, {"x": x}, {"y": y})


def _general(
    way: str,
    api: DeviceApi,
    name: str,
    dst: int,
    src: int,
    dst_shape: dim4,
    src_shape: dim4,
    to: dim4 | None,
    of: dim4 | None,
    dtype: DType,
) -> None:
    y = _place(api, way[2], dst, dst_shape.shape, to, dtype, layout.aligned)
    api.issue("dma_copy", {"x": _place(api, way[0], src, src_shape.shape, of, dtype, layout.aligned)}, {"y": y})


def _compact(way: str, api: DeviceApi, name: str, dst: int, src: int, shape: dim4, dtype: DType) -> None:
    y = _place(api, way[2], dst, shape.shape, None, dtype, layout.compact)
    api.issue("dma_copy", {"x": _place(api, way[0], src, shape.shape, None, dtype, layout.compact)}, {"y": y})


def _set(
    letter: str, api: DeviceApi, name: str, dst: int, value: Any, shape: dim4, to: dim4 | None, dtype: DType
) -> None:
    y = _place(api, letter, dst, shape.shape, to, dtype, layout.aligned)
    api.issue("dma_broadcast", {"x": constant(value, dtype)}, {"y": y})


def _gather(
    way: str,
    api: DeviceApi,
    name: str,
    dst: int,
    src: int,
    index: int,
    index_is_local: bool,
    fill: Any,
    shape: dim4,
    rows: int,
    to: dim4 | None,
    of: dim4 | None,
    index_stride: dim4 | None,
    dtype: DType,
) -> None:
    """`shape` is the result's, `rows` the height of what is gathered from."""
    y = _place(api, way[2], dst, shape.shape, to, dtype, layout.aligned)
    x = _place(api, way[0], src, shape.shape._replace(h=rows), of, dtype, layout.aligned)
    numbers = _index(api, index, index_is_local, shape.shape, shape.h, index_stride)
    api.issue("dma_h_gather", {"x": x, "index": numbers, "fill": constant(fill, dtype)}, {"y": y})


def _scatter(
    way: str,
    api: DeviceApi,
    name: str,
    dst: int,
    src: int,
    index: int,
    index_is_local: bool,
    shape: dim4,
    rows: int,
    to: dim4 | None,
    of: dim4 | None,
    index_stride: dim4 | None,
    dtype: DType,
) -> None:
    """`shape` is the result's, `rows` the height of what is scattered; other rows of the result stay."""
    y = _place(api, way[2], dst, shape.shape, to, dtype, layout.aligned)
    x = _place(api, way[0], src, shape.shape._replace(h=rows), of, dtype, layout.aligned)
    numbers = _index(api, index, index_is_local, shape.shape, rows, index_stride)
    api.issue("dma_h_scatter", {"x": x, "index": numbers, "y_before": y}, {"y": y})


def _index(api: DeviceApi, address: int, local: bool, shape: Shape, rows: int, stride: dim4 | None) -> Operand:
    return _place(api, "L" if local else "S", address, Shape(1, shape.c, rows, 1), stride, U32, layout.aligned)


#: By name without tpu_gdma_: called with the API, the whole name, and the call's arguments.
MOVES: dict[str, Callable[..., None]] = {
    **{f"cpy_{way}": partial(_copy, way) for way in WAYS},
    **{f"{kind}_{way}": partial(_reordered, kind, way) for kind in ("cpy_nc_trans", "cpy_cw_trans") for way in WAYS},
    **{f"channel_bcast_{way}": partial(_reordered, "channel_bcast", way) for way in ("S2L", "L2L")},
    **{f"general_cpy_{way}": partial(_general, way) for way in ("S2L", "L2S")},
    **{f"compact_{way}": partial(_compact, way) for way in ("S2L", "L2S")},
    "set_C_local": partial(_set, "L"),
    "set_C_system": partial(_set, "S"),
    **{f"h_gather_{way}": partial(_gather, way) for way in WAYS},
    **{f"h_scatter_{way}": partial(_scatter, way) for way in WAYS},
}
