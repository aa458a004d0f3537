"""Functions of the device API: gathers, scatters, selections, tables, and the functions of the sorting engine."""

from __future__ import annotations

from importlib.resources import files

from tilewright.errors import MachineError
from tilewright.targets.bm1684x.capi.forms import (
    Args,
    Functions,
    Issuer,
    Layout,
    Operands,
    Place,
    Run,
    Source,
    issue,
    row_of,
)
from tilewright.targets.bm1684x.capi.names import constant
from tilewright.targets.bm1684x.config import STATIC_BASE
from tilewright.targets.bm1684x.isa.operations.gathers import COPIES, in_each_lane, in_four_banks, once_in_four_banks
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape
from tilewright.targets.bm1684x.layouts.tensor import Flat, Operand, Tensor
from tilewright.targets.bm1684x.values.dtypes import F32, I32, U8, U16, U32, DType
from tilewright.targets.bm1684x.values.memory import OFFSETS

#: The range of a lane that must contain each operand of a gather from four banks: begin and end, in eighths of a lane.
EIGHTHS = {"index": (0, 2), "output": (2, 4), "param": (4, 5)}


def _shapes(kind: str, gathers: bool, call: Args) -> tuple[Shape, Shape, Shape]:
    n, c, h, w = call["shape"].shape
    height, width = call.get("param_h", h), call.get("param_w", w)
    # A gather from a plane (hw) returns a row, and a scatter to a plane reads a row.
    if kind == "hw" and gathers:
        return Shape(n, c, height, width), Shape(1, h * w, 1, 2), Shape(n, c, 1, h * w)
    if kind == "hw":
        count = height * width
        return Shape(n, c, 1, count), Shape(1, count, 1, 2), Shape(n, c, h, w)
    if kind == "h":
        return Shape(1, c, height, w), Shape(n, c, h if gathers else height, 1), Shape(n, c, h, w)
    count = w if gathers else width
    if kind == "w":
        return Shape(n, c, 1, width), Shape(1, count, 1, 1), Shape(n, c, 1, w)
    return Shape(1, c, 1, width), Shape(n, c, 1, count), Shape(n, c, 1, w)


def _source(api: Issuer, call: Args, shape: Shape, per_channel: Layout, once: Layout) -> Tensor:
    dtype = call["dtype"]
    # All channels of a lane share one copy of a repeated source.
    layout_of = once if call.get("is_param_repeated") else per_channel
    return api.local(call["param"], shape, None, dtype, layout_of)


def _moves(kind: str, direction: str, exceptions: bool = False, four_banks: bool = False) -> Run:
    """Return the C function of a gather or scatter. `exceptions` and `four_banks` apply only to gathers."""

    def run(api: Issuer, call: Args) -> None:
        n = call["shape"].n
        h = call["shape"].h
        if four_banks and not n == h == 1:
            raise MachineError(call["name"], f"the shape has n = {n} and h = {h}", "give n = 1 and h = 1")
        if h != 1 and kind in ("w", "pe"):
            raise MachineError(call["name"], f"h is {h}", "give h = 1: the function moves elements within rows")
        x_shape, index_shape, y_shape = _shapes(kind, direction == "gather", call)
        lined = layout.line if kind == "h" else layout.aligned
        if four_banks:
            x = _source(api, call, x_shape._replace(n=COPIES), in_four_banks, once_in_four_banks)
        else:
            x = _source(api, call, x_shape, lined, in_each_lane)
        index_layout = layout.aligned if kind in ("pe", "h") else layout.compact
        api.begins(call["index"], "aligned")  # the address must be aligned even if the index is compact
        index = api.local(call["index"], index_shape, None, call.get("index_dtype", U16), index_layout)
        y = api.local(call["output"], y_shape, None, x.dtype, lined)
        if four_banks:
            for name, place in (("index", index), ("output", y), ("param", x[0:1])):
                _check_banks(call, name, place)
        operands: Operands = {"x": x, "index": index}
        if direction == "scatter":
            operands["y_before"] = y
        if exceptions:
            operands |= {"other": constant(call["C"], x.dtype)} if call["fill_const"] else {"kept": y}
        api.issue(f"{kind}_{direction}" + "_4bank" * four_banks, operands, {"y": y})

    return run


def _check_banks(call: Args, name: str, place: Tensor) -> None:
    low, high = (place.config.lane_bytes // 8 * end for end in EIGHTHS[name])
    at = place.lane_offset
    end = at + place.slots * place.stride.c * place.dtype.bytes
    if not low <= at <= end <= high:
        reason = f"{name} takes the bytes {at:#x}..{end:#x} of a lane"
        raise MachineError(call["name"], reason, f"place it in {low:#x}..{high:#x}")


def _mask_select(api: Issuer, call: Args) -> None:
    shape = call["shape"].shape
    dtype = call["dtype"]
    x = _source(api, call, shape._replace(n=1), layout.aligned, in_each_lane)
    mask = api.local(call["mask"], shape, None, call["mask_dtype"])
    count = api.local(call["count_addr"], Shape(shape.n, shape.c, 1, 1), None, U16, layout.compact)
    y = api.local(call["output"], shape, None, dtype)
    api.issue("w_mask_select", {"x": x, "mask": mask, "y_before": y}, {"y": y, "counts": count})


def _table_lookup(api: Issuer, call: Args) -> None:
    if call["table"] >= api.config.lane_bytes:
        reason = f"the table is at {call['table']:#x}"
        raise MachineError(call["name"], reason, f"give the place in each lane, below {api.config.lane_bytes:#x}")
    lane = call["src"] // api.config.lane_bytes
    n, c, h, w = call["shape"].shape
    flat = Shape(n, c, 1, h * w)
    dtype = call["dst_dtype"]
    x = api.local(
        call["table"] + lane * api.config.lane_bytes, Shape(1, c, 1, call["length"]), None, dtype, in_each_lane
    )
    index = api.local(call["src"], flat, None, call["src_dtype"])
    api.issue("pe_gather", {"x": x, "index": index}, {"y": api.local(call["dst"], flat, None, dtype)})


_NAMES = {"w": "w", "hw": "hw", "pe": "batch_bcast_w", "h": "batch_bcast_h"}
#: Functions by name, without the prefix tpu_bdc_.
GATHERS: Functions = {
    **{f"{name}_{way}": _moves(kind, way) for kind, name in _NAMES.items() for way in ("gather", "scatter")},
    **{f"{name}_gather_exception": _moves(kind, "gather", True) for kind, name in _NAMES.items()},
    "4bank_w_gather": _moves("pe", "gather", four_banks=True),
    "4bank_w_gather_exception": _moves("pe", "gather", True, four_banks=True),
    "batch_bcast_w_mask_select": _mask_select,
    "table_lookup": _table_lookup,
}


SORTED_TYPES = (F32, I32, U32)


def _flat(api: Issuer, call: Args, name: str, count: int, dtype: DType) -> Flat:
    return Flat(api.system(call[name], Shape(1, 1, 1, count), None, dtype))


def _sort_general(api: Issuer, call: Args) -> None:
    flags = call["flags"]
    length = call["length"]
    # The flags select the type. The sort may also move indices: either positions (`automatic`), or numbers in memory.
    k = call["k"]
    if not 0 <= flags < len(SORTED_TYPES):
        raise MachineError(call["name"], f"dtype_flags is {flags}", "give 0 (f32), 1 (i32) or 2 (u32)")
    if not 0 < k <= length:
        raise MachineError(call["name"], f"topk is {k} and len is {length}", "give a topk of 1..len")
    dtype = SORTED_TYPES[flags]
    operands: Operands = {"x": _flat(api, call, "src", length, dtype)}
    results: dict[str, Operand] = {"y": _flat(api, call, "output", k, dtype)}
    if call["indexed"]:
        results["index"] = _flat(api, call, "index", k, I32)
        if not call["automatic"]:
            operands["numbers"] = _flat(api, call, "numbers", length, I32)
    api.issue("hau_sort", operands, results, {"descending": bool(call["descends"])})


def _line_gather(api: Issuer, call: Args) -> None:
    start = call["start"]
    end = call["end"]
    lines = call["line_num"]
    if not 0 <= start <= end < lines:
        raise MachineError(call["name"], f"it gathers the lines {start}..{end} of {lines}", f"give 0..{lines - 1}")
    size = call["line_len"]
    count = call["index_len"]
    dtype = call["dtype"]
    y = _flat(api, call, "output", size * count, dtype)
    operands: Operands = {
        "x": _flat(api, call, "param", size * (end - start + 1), dtype),
        "index": _flat(api, call, "index", count, I32),
    }
    operands |= {"other": constant(call["C"], dtype)} if call["fill_const"] else {"kept": y}
    api.issue("hau_line_gather", operands, {"y": y}, {"base": start})


def _every_pair(shape: Shape, call: Args) -> Shape:
    return Shape(1, 1, 1, call["boxes"] ** 2)


def _row(parameter: str, length: str, dtype: DType | None = None) -> Place:
    return Place(parameter, dtype, row_of(length), flat=True)


SORTED: dict[str, Source] = {"y": _row("output", "k"), "x": _row("src", "length")}
INDICES = _row("index", "k", I32)
KEPT = _row("output", "keep", I32)
#: Functions by name, without the prefix tpu_hau_.
SORTING: Functions = {
    "sort": issue("hau_sort", **SORTED),
    "sort_natural_index": issue("hau_sort", **SORTED, index=INDICES),
    "sort_specific_index": issue("hau_sort", **SORTED, index=INDICES, numbers=_row("numbers", "length", I32)),
    "sort_general": _sort_general,
    "line_gather": _line_gather,
    "hard_nms": issue("hau_hard_nms", y=KEPT, x=Place("src", U8, _every_pair, flat=True)),
    "soft_nms": issue(
        "hau_soft_nms",
        y=KEPT,
        x=Place("overlaps", F32, _every_pair, flat=True),
        scores=_row("scores", "boxes", F32),
    ),
}


def _load(name: str) -> Run:
    def run(api: Issuer, call: Args) -> None:
        dtype = call.get("dtype", F32)
        if (name, dtype) not in OFFSETS:
            types = ", ".join(str(kind) for table, kind in OFFSETS if table == name)
            raise MachineError(call["name"], f"static memory has no such table of {dtype}", f"give {types}")
        offset, count = OFFSETS[name, dtype]
        api.begins(call["coeff"], "aligned")  # the vendor's model requires it even though y is compact
        y = api.local(call["coeff"], Shape(1, api.config.lanes, 1, count), None, dtype, layout.compact)
        x = Tensor.ddr(STATIC_BASE + offset, (1, 1, 1, count), dtype, api.config)
        api.issue("static_bcast", {"x": x}, {"y": y})

    return run


LOADED = ("log", "sin", "cos", "arcsin", "tan", "erf")
#: Functions by name, without the prefix tpu_bdc_.
LOADS: Functions = {f"load_{kind}_{name}_coeff": _load(name) for kind in ("fp32", "fp") for name in (*LOADED, "exp")}

#: Functions that only later chips have. The vendor's model refuses every call of these functions, whatever the
#: arguments.
REFUSED = frozenset(files(__package__).joinpath("later.txt").read_text(encoding="utf-8").split())
