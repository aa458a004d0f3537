"""Functions of the device API: gathers, scatters and selections by mask in local memory, and tables."""

from __future__ import annotations

from tilewright.errors import MachineError
from tilewright.targets.bm1684x.capi.forms import Functions, Given, Issuer, Layout, Operands, Run
from tilewright.targets.bm1684x.capi.names import constant
from tilewright.targets.bm1684x.isa.operations.gathers import COPIES, in_each_lane, in_four_banks, once_in_four_banks
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.values.dtypes import U16

#: The parts of a lane, in eighths, in which a gather from four banks demands its operands: from, to.
EIGHTHS = {"index": (0, 2), "output": (2, 4), "param": (4, 5)}


def _shapes(kind: str, gathers: bool, given: Given) -> tuple[Shape, Shape, Shape]:
    """Return the shapes of the source, the index and the result. Indexed elements of a plane are one row."""
    n, c, h, w = given["shape"].shape
    height, width = given.get("param_h", h), given.get("param_w", w)
    if kind == "hw":
        count = h * w if gathers else height * width
        ends = Shape(n, c, height, width), Shape(n, c, 1, count)
        return (
            (ends[0], Shape(1, count, 1, 2), ends[1])
            if gathers
            else (ends[1], Shape(1, count, 1, 2), Shape(n, c, h, w))
        )
    if kind == "h":
        return Shape(1, c, height, w), Shape(n, c, h if gathers else height, 1), Shape(n, c, h, w)
    count = w if gathers else width
    if kind == "w":
        return Shape(n, c, 1, width), Shape(1, count, 1, 1), Shape(n, c, 1, w)
    return Shape(1, c, 1, width), Shape(n, c, 1, count), Shape(n, c, 1, w)


def _source(api: Issuer, given: Given, shape: Shape, each: Layout, once: Layout) -> Tensor:
    """Return the tensor at `param`, with the layout `once` if it is repeated: then all channels of a lane share it."""
    dtype = given["dtype"]
    layout_of = once if given.get("is_param_repeated") else each
    return api.local(given["param"], shape, None, dtype, layout_of)


def _moves(kind: str, way: str, exceptions: bool = False) -> Run:
    """Return the C function of a gather or scatter (`way`). Gathers may have exceptions."""

    def run(api: Issuer, given: Given) -> None:
        if given["shape"].h != 1 and kind in ("w", "pe"):
            raise MachineError(given["name"], f"h is {given['shape'].h}", "give h = 1: it moves elements of rows")
        x_shape, index_shape, y_shape = _shapes(kind, way == "gather", given)
        lined = layout.line if kind == "h" else layout.aligned
        x = _source(api, given, x_shape, lined, in_each_lane)
        own = layout.aligned if kind in ("pe", "h") else layout.compact
        api.begins(given["index"], "aligned")  # also a compact one
        index = api.local(given["index"], index_shape, None, given.get("index_dtype", U16), own)
        y = api.local(given["output"], y_shape, None, x.dtype, lined)
        operands: Operands = {"x": x, "index": index}
        if way == "scatter":
            operands["y_before"] = y
        if exceptions:
            operands |= {"other": constant(given["C"], x.dtype)} if given["fill_const"] else {"kept": y}
        api.issue(f"{kind}_{way}", operands, {"y": y})

    return run


def _from_four_banks(exceptions: bool) -> Run:
    """Return the C function of a gather from four copies of a tensor. Each operand has its own banks."""

    def run(api: Issuer, given: Given) -> None:
        n, c, h, w = given["shape"].shape
        if n != 1 or h != 1:
            raise MachineError(given["name"], f"the shape has n = {n} and h = {h}", "give n = 1 and h = 1")
        dtype, eighth = given["dtype"], api.config.lane_bytes // 8
        x = _source(api, given, Shape(COPIES, c, 1, given["param_w"]), in_four_banks, once_in_four_banks)
        index = api.local(given["index"], Shape(1, c, 1, w), None, given["index_dtype"])
        y = api.local(given["output"], Shape(1, c, 1, w), None, dtype)
        for name, place in (("index", index), ("output", y), ("param", x[0:1])):
            low, high = (eighth * end for end in EIGHTHS[name])
            at, size = (
                place.lane_offset,
                layout.slots(place.start_lane, c, api.config) * place.stride.c * place.dtype.bytes,
            )
            if not low <= at <= at + size <= high:
                reason = f"{name} takes the bytes {at:#x}..{at + size:#x} of a lane"
                raise MachineError(given["name"], reason, f"place it in {low:#x}..{high:#x}")
        operands: Operands = {"x": x, "index": index}
        if exceptions:
            operands |= {"other": constant(given["C"], dtype)} if given["fill_const"] else {"kept": y}
        api.issue("pe_gather_4bank", operands, {"y": y})

    return run


def _mask_select(api: Issuer, given: Given) -> None:
    shape, dtype = given["shape"].shape, given["dtype"]
    x = _source(api, given, shape._replace(n=1), layout.aligned, in_each_lane)
    mask = api.local(given["mask"], shape, None, given["mask_dtype"])
    count = api.local(given["count_addr"], Shape(shape.n, shape.c, 1, 1), None, U16, layout.compact)
    y = api.local(given["output"], shape, None, dtype)
    api.issue("w_mask_select", {"x": x, "mask": mask, "y_before": y}, {"y": y, "counts": count})


def _table_lookup(api: Issuer, given: Given) -> None:
    """Issue a gather whose indices are the values of a tensor, from a table of which each lane has a copy."""
    if given["table"] >= api.config.lane_bytes:
        reason = f"the table is at {given['table']:#x}"
        raise MachineError(given["name"], reason, f"give the place in each lane, below {api.config.lane_bytes:#x}")
    lane = given["src"] // api.config.lane_bytes
    n, c, h, w = given["shape"].shape
    flat, dtype = Shape(n, c, 1, h * w), given["dst_dtype"]
    x = api.local(
        given["table"] + lane * api.config.lane_bytes, Shape(1, c, 1, given["length"]), None, dtype, in_each_lane
    )
    index = api.local(given["src"], flat, None, given["src_dtype"])
    api.issue("pe_gather", {"x": x, "index": index}, {"y": api.local(given["dst"], flat, None, dtype)})


_NAMES = {"w": "w", "hw": "hw", "pe": "batch_bcast_w", "h": "batch_bcast_h"}
#: Functions by name, without the prefix tpu_bdc_.
GATHERS: Functions = {
    **{f"{name}_{way}": _moves(kind, way) for kind, name in _NAMES.items() for way in ("gather", "scatter")},
    **{f"{name}_gather_exception": _moves(kind, "gather", True) for kind, name in _NAMES.items()},
    "4bank_w_gather": _from_four_banks(False),
    "4bank_w_gather_exception": _from_four_banks(True),
    "batch_bcast_w_mask_select": _mask_select,
    "table_lookup": _table_lookup,
}
