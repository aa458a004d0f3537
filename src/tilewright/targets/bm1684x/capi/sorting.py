"""Functions of the device API for the sorting engine: sorts, gathers of lines, and suppression of boxes."""

from __future__ import annotations

from tilewright.errors import MachineError
from tilewright.targets.bm1684x.capi.forms import Functions, Given, Issuer, Operands, Place, Source, issue, row_of
from tilewright.targets.bm1684x.capi.names import constant
from tilewright.targets.bm1684x.layouts.layout import Operand, Shape
from tilewright.targets.bm1684x.layouts.tensor import Flat
from tilewright.targets.bm1684x.values.dtypes import F32, I32, U8, U32, DType

SORTED_TYPES = (F32, I32, U32)


def _flat(api: Issuer, given: Given, name: str, count: int, dtype: DType) -> Flat:
    return Flat(api.system(given[name], Shape(1, 1, 1, count), None, dtype))


def _sort_general(api: Issuer, given: Given) -> None:
    """Issue a sort whose flags say the type, and whether there are indices, which are positions or come from memory."""
    flags, length, k = given["flags"], given["length"], given["k"]
    if not 0 <= flags < len(SORTED_TYPES):
        raise MachineError(given["name"], f"dtype_flags is {flags}", "give 0 (f32), 1 (i32) or 2 (u32)")
    if not 0 < k <= length:
        raise MachineError(given["name"], f"topk is {k} and len is {length}", "give a topk of 1..len")
    dtype = SORTED_TYPES[flags]
    operands: Operands = {"x": _flat(api, given, "src", length, dtype)}
    results: dict[str, Operand] = {"y": _flat(api, given, "output", k, dtype)}
    if given["indexed"]:
        results["index"] = _flat(api, given, "index", k, I32)
        if not given["automatic"]:
            operands["numbers"] = _flat(api, given, "numbers", length, I32)
    api.issue("hau_sort", operands, results, {"descending": bool(given["descends"])})


def _line_gather(api: Issuer, given: Given) -> None:
    """Issue a gather of lines. The first line at `param` has the number `start`."""
    start, end, lines = given["start"], given["end"], given["line_num"]
    if not 0 <= start <= end < lines:
        raise MachineError(given["name"], f"it gathers the lines {start}..{end} of {lines}", f"give 0..{lines - 1}")
    size, count, dtype = given["line_len"], given["index_len"], given["dtype"]
    y = _flat(api, given, "output", size * count, dtype)
    operands: Operands = {
        "x": _flat(api, given, "param", size * (end - start + 1), dtype),
        "index": _flat(api, given, "index", count, I32),
    }
    operands |= {"other": constant(given["C"], dtype)} if given["fill_const"] else {"kept": y}
    api.issue("hau_line_gather", operands, {"y": y}, {"base": start})


def _every_pair(shape: Shape, given: Given) -> Shape:
    return Shape(1, 1, 1, given["boxes"] ** 2)


def _row(parameter: str, length: str, dtype: DType | None = None) -> Place:
    """Return the flat operand whose length is given by the parameter `length`."""
    return Place(parameter, dtype, row_of(length), flat=True)


SORTED: dict[str, Source] = {"y": _row("output", "k"), "x": _row("src", "length")}
INDICES, KEPT = _row("index", "k", I32), _row("output", "keep", I32)
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
