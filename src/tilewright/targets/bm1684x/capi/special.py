"""Functions that read tables or are sequences, and those of the sorting engine."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.targets.bm1684x.capi.forms import Function, Given, Issuer, attributes
from tilewright.targets.bm1684x.capi.names import constant
from tilewright.targets.bm1684x.config import STATIC_BASE
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape, Stride
from tilewright.targets.bm1684x.layouts.tensor import Flat, Tensor
from tilewright.targets.bm1684x.runtime import functions
from tilewright.targets.bm1684x.runtime.kernel import Tpu
from tilewright.targets.bm1684x.values.dtypes import F32, I32, U8, DType
from tilewright.targets.bm1684x.values.iterate import TERMS

Sequence = Callable[[Tpu, Tensor, Tensor, Tensor, Tensor, Tensor], None]


def _table(api: Issuer, address: int, channels: int, length: int, dtype: DType) -> Tensor:
    """One row that every lane has."""
    row = api.local(address, Shape(1, min(channels, api.config.lanes), 1, length), None, dtype, layout.compact)
    return Tensor(row.address, Shape(1, channels, 1, length), Stride(0, 0, length, 1), dtype, api.config)


def _taylor(api: Issuer, given: Given) -> None:
    shape, dtype = given["shape"].shape, given["dtype"]
    y, a = (api.local(given[name], shape, None, dtype) for name in ("dst", "src"))
    table = _table(api, given["coefficients"], shape.c, given["number"], dtype)
    api.issue("fp_taylor", {"a": a, "coefficients": table}, {"y": y})


def _lookup(api: Issuer, given: Given) -> None:
    shape, dtype = given["shape"].shape, given["dst_dtype"]
    table = _table(api, given["table"], shape.c, given["length"], dtype)
    x, y = api.local(given["src"], shape, None, given["src_dtype"]), api.local(given["dst"], shape, None, dtype)
    api.issue("table_lookup", {"x": x, "table": table, "fill": constant(0, dtype)}, {"y": y})


def _gather(api: Issuer, given: Given) -> None:
    """Without `fill` numbers beyond the row give 0."""
    shape, dtype = given["shape"].shape, given["dtype"]
    source = Shape(1, shape.c, 1, given["param_w"])
    if given["is_param_repeated"]:
        x = _table(api, given["param"], shape.c, source.w, dtype)
    else:
        x = api.local(given["param"], source, None, dtype)
    index = api.local(given["index"], Shape(shape.n, shape.c, 1, shape.w), None, given["index_dtype"])
    fill = constant(given["C"] if given.get("fill_const") else 0, dtype)
    y = api.local(given["output"], shape, None, dtype)
    api.issue("pe_gather", {"x": x, "index": index, "fill": fill}, {"y": y})


def _from_static(api: Issuer, given: Given) -> None:
    length, dtype = given["length"], given["dtype"]
    x = Tensor.ddr(STATIC_BASE + given["src"], (1, 1, 1, length), dtype, api.config)
    y = api.local(given["dst"], Shape(1, given["lanes"], 1, length), None, dtype, layout.compact)
    api.issue("static_bcast", {"x": x}, {"y": y})


def _load_series(api: Issuer, given: Given) -> None:
    api.check("static_bcast")
    shape = Shape(1, api.config.lanes, 1, TERMS[F32])
    functions.load_exponential(api.tpu, api.local(given["coefficients"], shape, None, F32, layout.compact))


def _load_nothing(api: Issuer, given: Given) -> None:
    """The table of powers of the vendor's exponential: the sequence that is known here does without it."""


def _sequence(steps: Sequence) -> Function:
    def run(api: Issuer, given: Given) -> None:
        api.check(given["name"])
        places = (api.local(given[name], given["shape"].shape, None, F32) for name in ("dst", "src", "work0", "work1"))
        y, x, work0, work1 = places
        table = Shape(1, api.config.lanes, 1, TERMS[F32])
        steps(api.tpu, y, x, work0, work1, api.local(given["coefficients"], table, None, F32, layout.compact))

    return Function("dst src work0 work1 coefficients table shape", run)


def _flat(api: Issuer, address: int, length: int, dtype: DType) -> Flat:
    return Flat(api.system(address, Shape(1, 1, 1, length), None, dtype))


def _sort(api: Issuer, given: Given) -> None:
    """As many of the first as `k`; where they stood, or the numbers that came with them."""
    dtype, length = given["dtype"], given["length"]
    results = {"y": _flat(api, given["output"], given["k"], dtype)}
    if "index" in given:
        results["index"] = _flat(api, given["index"], given["k"], I32)
    operands = {"x": _flat(api, given["src"], length, dtype)}
    if "numbers" in given:
        operands["numbers"] = _flat(api, given["numbers"], length, I32)
    api.issue("hau_sort", operands, results, attributes(given))


def _hard_nms(api: Issuer, given: Given) -> None:
    boxes = given["boxes"]
    x, y = _flat(api, given["src"], boxes * boxes, U8), _flat(api, given["output"], given["keep"], I32)
    api.issue("hau_hard_nms", {"x": x}, {"y": y})


def _soft_nms(api: Issuer, given: Given) -> None:
    boxes = given["boxes"]
    operands = {
        "x": _flat(api, given["overlaps"], boxes * boxes, F32),
        "scores": _flat(api, given["scores"], boxes, F32),
    }
    y = _flat(api, given["output"], given["keep"], I32)
    api.issue("hau_soft_nms", operands, {"y": y}, {"threshold": given["threshold"]})


_W = "shape param_w dtype index_dtype is_param_repeated"
_K = "length k descended dtype"
#: By name without tpu_bdc_.
SPECIAL: dict[str, Function] = {
    "fp_taylor": Function("dst src coefficients shape number dtype", _taylor),
    "table_lookup": Function("dst src table shape length dst_dtype src_dtype", _lookup),
    "batch_bcast_w_gather": Function(f"output param index {_W}", _gather),
    "batch_bcast_w_gather_exception": Function(f"output param index C {_W} fill_const", _gather),
    "npu_bcast_from_static": Function("dst src lanes length dtype", _from_static),
    "load_fp32_exp_coeff": Function("coefficients", _load_series),
    "load_fp32_exp_table": Function("table", _load_nothing),
    "fp32_exp": _sequence(functions.exponential),
    "fp32_sigmoid": _sequence(functions.sigmoid),
}
#: By name without tpu_hau_.
HAU_CALLS: dict[str, Function] = {
    "sort": Function(f"output src {_K}", _sort),
    "sort_natural_index": Function(f"output index src {_K}", _sort),
    "sort_specific_index": Function(f"output index src numbers {_K}", _sort),
    "hard_nms": Function("output src boxes keep", _hard_nms),
    "soft_nms": Function("output overlaps scores threshold boxes keep", _soft_nms),
}
