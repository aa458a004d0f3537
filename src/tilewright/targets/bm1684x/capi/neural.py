"""Functions of the device API: matrix products, convolutions, pools, tables, command sequences and sorting."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tilewright.errors import MachineError
from tilewright.targets.bm1684x.capi.forms import Function, Given, Issuer, attributes, function
from tilewright.targets.bm1684x.capi.names import constant
from tilewright.targets.bm1684x.config import STATIC_BASE
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Operand, Shape
from tilewright.targets.bm1684x.layouts.tensor import Flat, Rows, Tensor
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I32, U32, DType

Operands = dict[str, Operand | Constant]


def _by_rows(turns: Mapping[str, Any], integer: bool, number: str = "", zeros: bool = False) -> Function:
    """Return the C function of a matrix product. Factors have a row per channel; `turns` says which are transposed.

    `number` is the factor ("left" or "right") that is a number C, or empty. With `zeros`, the zero points are a tensor.
    """
    swapped, turned = turns.get("both_transposed"), turns.get("right_transposed")
    types = "left_dtype right_dtype" if integer else "out_dtype dtype"
    adds = "" if turned else " result_add"
    named = "zero_addr " if zeros else "zero " * integer
    factors = "left right " if not number else f"{'right' if number == 'left' else 'left'} "
    factors += named if not number else f"{named}C " if zeros else f"C {named}"
    parameters = f"output {factors}left_rows left_columns right_size {types}{adds}"

    def run(api: Issuer, given: Given) -> None:
        rows, depth, size = given["left_rows"], given["left_columns"], given["right_size"]
        sizes = {"L": (rows, depth), "R": (depth, size), "y": (rows, size)}
        if turned:
            sizes["R"] = (size, depth)
        if swapped:
            sizes = {"L": (rows, depth), "R": (size, rows), "y": (size, depth)}
        left, right = (given.get(f"{side}_dtype", given.get("dtype")) for side in ("left", "right"))
        types: dict[str, DType] = {"y": given.get("out_dtype", I32), "L": left, "R": right}

        def factor(name: str, address: str) -> Rows:
            height, width = sizes[name]
            return Rows(api.local(given[address], Shape(1, height, 1, width), None, types[name]))

        y = factor("y", "output")
        operands: Operands = {
            own: Constant(constant(given["C"], types[own]).bits, types[own]) if side == number else factor(own, side)
            for own, side in (("L", "left"), ("R", "right"))
        }
        said = {**turns, "depth": rows if swapped else depth} if number else turns
        if zeros:
            count = sizes["y"][0 if swapped else 1]
            if swapped:
                form = Shape(1, count, 1, 1)
                operands["zeros"] = api.local(given["zero_addr"], form, None, types["R"], layout.compact)
            else:
                operands["zeros"] = api.row(given["zero_addr"], sizes["R"][0], count, types["R"])
        elif integer:
            operands["zero"] = constant(given["zero"], types["R"])
        if given.get("result_add"):
            operands["acc"] = y
        api.issue("int8_zp_mm" if integer else "fp_mm", operands, {"y": y}, said)

    return Function(parameters, run)


def _spread(integer: bool, transposed: bool, number: bool = False) -> Function:
    """Return the C function of a product of matrices whose columns are spread over lanes.

    The parameters left_rows and left_columns are the sizes of the left factor as stored, before any transposition. With
    `number`, all its elements are the number C.
    """
    types = "out_dtype left_dtype right_dtype bias_dtype lshift rshift " * integer
    sizes = f"left_rows left_columns right_columns {'' if number else 'left_width '}right_width"
    factors = "right bias C" if number else "left right bias"
    parameters = f"output {factors} {sizes} {types}has_bias result_add{' result_relu' * integer}"

    def run(api: Issuer, given: Given) -> None:
        rows, depth, columns = given["left_rows"], given["left_columns"], given["right_columns"]
        if integer and given["result_add"]:
            reason = "result_add is not supported: no golden vector shows how it shifts the old result"
            raise MachineError(given["name"], reason, "clear result_add, and add with a separate command")

        width, (inner, height) = given["right_width"], (rows, depth) if transposed else (depth, rows)
        y = api.matrix(given["output"], height, columns, width, given.get("out_dtype", F32))
        left = given.get("left_dtype", F32)
        operands: Operands = {
            "L": constant(given["C"], left)
            if number
            else api.matrix(given["left"], rows, depth, given["left_width"], left),
            "R": api.matrix(given["right"], inner, columns, width, given.get("right_dtype", F32)),
        }
        if given["has_bias"]:
            operands["bias"] = api.matrix(given["bias"], 1, columns, width, given.get("bias_dtype", F32))
        if given["result_add"]:
            operands["acc"] = y
        said = {"left_transposed": transposed, **attributes(given), **({"depth": depth} if number else {})}
        api.issue("int8_mm" if integer else "fp_mm", operands, {"y": y}, said)

    return Function(parameters, run)


def _whole(by_column: bool, transposed: bool, number: bool) -> Function:
    """Return the C function of a product of integer matrices whose columns are spread over lanes.

    The shift is one number or, if `by_column`, a row with a number for each column of the result.
    """
    sizes = f"left_rows left_columns right_columns {'' if number else 'left_width '}right_width"
    ends = "output right" if number else "output left right"
    ends += " shift_addr" * by_column + " C" * number
    parameters = f"{ends} {sizes} left_dtype right_dtype{' shift' * (not by_column)} mode"

    def run(api: Issuer, given: Given) -> None:
        rows, depth, columns = given["left_rows"], given["left_columns"], given["right_columns"]
        width, (inner, height) = given["right_width"], (rows, depth) if transposed else (depth, rows)
        columns = -(-columns // width) * width  # the machine computes whole channels
        left, right = given["left_dtype"], given["right_dtype"]
        operands: Operands = {
            "L": constant(given["C"], left)
            if number
            else api.matrix(given["left"], rows, depth, given["left_width"], left),
            "R": api.matrix(given["right"], inner, columns, width, right),
            "shift": api.matrix(given["shift_addr"], 1, columns, width, I8)
            if by_column
            else constant(given["shift"], I8),
        }
        said = {"left_transposed": transposed, **({"depth": depth} if number else {})}
        if left.bits == right.bits == I8.bits:  # it is not shifted
            del operands["shift"]
            y = api.matrix(given["output"], height, columns, width, I32)
            api.issue("int8_zp_mm", operands, {"y": y}, said)
            return
        y = api.matrix(given["output"], height, columns, width, I32 if left.signed or right.signed else U32)
        api.issue("int_mm", operands, {"y": y}, {**said, "mode": given["mode"]})

    return Function(parameters, run)


#: What a product of matrices stored by rows transposes, by the end of the function's name.
TURNS: Mapping[str, Mapping[str, Any]] = {
    "": {},
    "_R_trans": {"right_transposed": True},
    "_all_trans": {"both_transposed": True},
}
#: Functions by name, without the prefix tpu_bdc_.
NEURAL: dict[str, Function] = {
    **{
        f"{name}_mm{which}": _by_rows(turns, name == "int8_zp")
        for name in ("fp", "int8_zp")
        for which, turns in TURNS.items()
    },
    **{
        f"{name}_mm_{side[0].upper()}_const{which}": _by_rows(TURNS[which], name == "int8_zp", side)
        for name in ("fp", "int8_zp")
        for side, whiches in (("left", tuple(TURNS)), ("right", ("", "_all_trans")))
        for which in whiches
    },
    **{
        f"int8_pc_zp_mm{which}": _by_rows(turns, True, side, zeros=True)
        for side, which, turns in (
            *(("", which, turns) for which, turns in TURNS.items()),
            *(("left", f"_L_const{which}", turns) for which, turns in TURNS.items()),
            *(("right", f"_R_const{which}", TURNS[which]) for which in ("", "_all_trans")),
        )
    },
    **{
        f"{name}{which}": make(which == "_L_trans", which == "_L_const")
        for name, make in (
            ("int_mm", partial(_whole, False)),
            ("int_pcs_mm", partial(_whole, True)),
            ("fp32_mm", partial(_spread, False)),
            ("int8_mm", partial(_spread, True)),
        )
        for which in ("", "_L_trans", "_L_const")
    },
}


def _from_static(api: Issuer, given: Given) -> None:
    length, dtype = given["length"], given["dtype"]
    x = Tensor.ddr(STATIC_BASE + given["src"], (1, 1, 1, length), dtype, api.config)
    y = api.local(given["dst"], Shape(1, given["lanes"], 1, length), None, dtype, layout.compact)
    api.issue("static_bcast", {"x": x}, {"y": y})


_K, _SORTED = "length k descended dtype", "y=output/k@F x=src/length@F"
#: Functions by name, without the prefix tpu_bdc_.
SPECIAL: dict[str, Function] = {
    "fp_taylor": function(
        "dst src coefficients shape number dtype", "fp_taylor", "y=dst a=src coefficients=coefficients/number@R"
    ),
    "npu_bcast_from_static": Function("dst src lanes length dtype", _from_static),
    # It loads nothing: the exponential of this machine needs no table.
    "load_fp32_exp_table": Function("table", lambda api, given: None),
}
SORTED_TYPES = (F32, I32, U32)


def _sort_general(api: Issuer, given: Given) -> None:
    """Issue a sort whose flags say the type, and whether there are indices, which are positions or come from memory."""
    flags, length, k = given["flags"], given["length"], given["k"]
    if not 0 <= flags < len(SORTED_TYPES):
        raise MachineError(given["name"], f"dtype_flags is {flags}", "give 0 (f32), 1 (i32) or 2 (u32)")
    if not 0 < k <= length:
        raise MachineError(given["name"], f"topk is {k} and len is {length}", "give a topk of 1..len")
    dtype = SORTED_TYPES[flags]

    def flat(name: str, count: int, kind: DType) -> Flat:
        return Flat(api.system(given[name], Shape(1, 1, 1, count), None, kind))

    operands: Operands = {"x": flat("src", length, dtype)}
    results: dict[str, Operand] = {"y": flat("output", k, dtype)}
    if given["indexed"]:
        results["index"] = flat("index", k, I32)
        if not given["automatic"]:
            operands["numbers"] = flat("numbers", length, I32)
    api.issue("hau_sort", operands, results, {"descending": bool(given["descends"])})


def _line_gather(api: Issuer, given: Given) -> None:
    """Issue a gather of lines. The first line at `param` has the number `start`."""
    start, end, lines = given["start"], given["end"], given["line_num"]
    if not 0 <= start <= end < lines:
        raise MachineError(given["name"], f"it gathers the lines {start}..{end} of {lines}", f"give 0..{lines - 1}")
    size, count, dtype = given["line_len"], given["index_len"], given["dtype"]

    def flat(name: str, length: int, kind: DType) -> Flat:
        return Flat(api.system(given[name], Shape(1, 1, 1, length), None, kind))

    y = flat("output", size * count, dtype)
    operands: Operands = {"x": flat("param", size * (end - start + 1), dtype), "index": flat("index", count, I32)}
    operands |= {"other": constant(given["C"], dtype)} if given["fill_const"] else {"kept": y}
    api.issue("hau_line_gather", operands, {"y": y}, {"base": start})


#: Functions by name, without the prefix tpu_hau_.
HAU_CALLS: dict[str, Function] = {
    "sort": function(f"output src {_K}", "hau_sort", _SORTED),
    "sort_natural_index": function(f"output index src {_K}", "hau_sort", f"{_SORTED} index=index/k@F:i32"),
    "sort_specific_index": function(
        f"output index src numbers {_K}", "hau_sort", f"{_SORTED} index=index/k@F:i32 numbers=numbers/length@F:i32"
    ),
    "sort_general": Function("src numbers output index flags length descends indexed automatic k", _sort_general),
    "line_gather": Function(
        "output param index C line_num line_len index_len start end dtype fill_const", _line_gather
    ),
    "hard_nms": function("output src boxes keep", "hau_hard_nms", "y=output/keep@F:i32 x=src/square@F:u8"),
    "soft_nms": function(
        "output overlaps scores threshold boxes keep",
        "hau_soft_nms",
        "y=output/keep@F:i32 x=overlaps/square@F:f32 scores=scores/boxes@F:f32",
    ),
}
