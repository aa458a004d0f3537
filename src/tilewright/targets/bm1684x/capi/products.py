"""Functions of the device API: matrix products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.errors import MachineError
from tilewright.targets.bm1684x.capi.forms import Functions, Given, Issuer, Operands, Run, attributes
from tilewright.targets.bm1684x.capi.names import constant
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape
from tilewright.targets.bm1684x.layouts.tensor import Rows
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I32, U32, DType

#: What a product of matrices stored by rows transposes, by the end of the function's name.
TURNS: Mapping[str, Mapping[str, Any]] = {
    "": {},
    "_R_trans": {"right_transposed": True},
    "_all_trans": {"both_transposed": True},
}
#: The factor that is a number C, by a part of the function's name.
NUMBERS = {"": "", "_L_const": "left", "_R_const": "right"}


def _by_rows(turns: Mapping[str, Any], integer: bool, number: str, zeros: bool) -> Run:
    """Return the function of a matrix product. Factors have a row per channel; `turns` says which are transposed.

    `number` is the factor that is a number C, if one is. With `zeros`, the zero points are a tensor.
    """
    swapped, turned = turns.get("both_transposed"), turns.get("right_transposed")

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
        operands: Operands = {}
        for own, side in (("L", "left"), ("R", "right")):
            if side == number:
                operands[own] = Constant(constant(given["C"], types[own]).bits, types[own])
            else:
                operands[own] = factor(own, side)
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
        length = {"depth": rows if swapped else depth} if number else {}
        api.issue("int8_zp_mm" if integer else "fp_mm", operands, {"y": y}, {**turns, **length})

    return run


def _factors(api: Issuer, given: Given, columns: int, transposed: bool) -> tuple[int, Operands, dict[str, Any]]:
    """Return the rows of the result, and the factors and attributes of a product of such matrices.

    left_rows and left_columns are the sizes of the left factor as stored, before any transposition. The factor is the
    number C if the call has one. `columns` is the columns of the right factor.
    """
    rows, depth = given["left_rows"], given["left_columns"]
    inner, height = (rows, depth) if transposed else (depth, rows)
    left, right = given.get("left_dtype", F32), given.get("right_dtype", F32)
    operands: Operands = {"R": api.matrix(given["right"], inner, columns, given["right_width"], right)}
    named = {"left_transposed": transposed}
    if "C" in given:
        return height, {"L": constant(given["C"], left), **operands}, {**named, "depth": depth}
    return height, {"L": api.matrix(given["left"], rows, depth, given["left_width"], left), **operands}, named


def _spread(integer: bool, transposed: bool) -> Run:
    """Return the function of a product of floats, or of 8-bit integers that are shifted and clamped."""

    def run(api: Issuer, given: Given) -> None:
        if integer and given["result_add"]:
            reason = "result_add is not supported: no golden vector shows how it shifts the old result"
            raise MachineError(given["name"], reason, "clear result_add, and add with a separate command")
        columns, width = given["right_columns"], given["right_width"]
        height, operands, named = _factors(api, given, columns, transposed)
        y = api.matrix(given["output"], height, columns, width, given.get("out_dtype", F32))
        if given["has_bias"]:
            operands["bias"] = api.matrix(given["bias"], 1, columns, width, given.get("bias_dtype", F32))
        if given["result_add"]:
            operands["acc"] = y
        api.issue("int8_mm" if integer else "fp_mm", operands, {"y": y}, {**attributes(given), **named})

    return run


def _whole(by_column: bool, transposed: bool) -> Run:
    """Return the function of a product of integers, in 32 bits.

    The shift is one number or, if `by_column`, a row with a number for each column of the result.
    """

    def run(api: Issuer, given: Given) -> None:
        width, left, right = given["right_width"], given["left_dtype"], given["right_dtype"]
        columns = -(-given["right_columns"] // width) * width  # the machine computes whole channels
        height, operands, named = _factors(api, given, columns, transposed)
        if left.bits == right.bits == I8.bits:  # it is not shifted
            y = api.matrix(given["output"], height, columns, width, I32)
            api.issue("int8_zp_mm", operands, {"y": y}, named)
            return
        if by_column:
            operands["shift"] = api.matrix(given["shift_addr"], 1, columns, width, I8)
        else:
            operands["shift"] = constant(given["shift"], I8)
        y = api.matrix(given["output"], height, columns, width, I32 if left.signed or right.signed else U32)
        api.issue("int_mm", operands, {"y": y}, {**named, "mode": given["mode"]})

    return run


#: Functions by name, without the prefix tpu_bdc_.
PRODUCTS: Functions = {
    **{
        f"{name}_mm{number}{turn}": _by_rows(TURNS[turn], name != "fp", NUMBERS[number], name == "int8_pc_zp")
        for name in ("fp", "int8_zp", "int8_pc_zp")
        for number in NUMBERS
        for turn in TURNS
        if (number, turn) != ("_R_const", "_R_trans")  # the machine does not have it
    },
    **{
        f"{name}{kind}": make(integer, kind == "_L_trans")
        for name, make, integer in (
            ("int_mm", _whole, False),
            ("int_pcs_mm", _whole, True),
            ("fp32_mm", _spread, False),
            ("int8_mm", _spread, True),
        )
        for kind in ("", "_L_trans", "_L_const")
    },
}
