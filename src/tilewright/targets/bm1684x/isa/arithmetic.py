"""Arithmetic, quantisation and special functions: what their encoded commands do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilewright.targets.bm1684x.command import Command, Constant
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.dtypes import F32, I8, I16, I32, DType, Rounding, from_fields
from tilewright.targets.bm1684x.isa.operands import ALIGNED, COMPACT, STRIDED, local, place, res0_shape, result, unknown
from tilewright.targets.bm1684x.isa.stream import Encoded
from tilewright.targets.bm1684x.layout import Stride
from tilewright.targets.bm1684x.operations import OPERATIONS
from tilewright.targets.bm1684x.tensor import Operand, Tensor

#: Functions of AR with two operands: operation on floats, on integers, whether integers clamp.
BINARY = {
    0: ("fp_mul", "int_mul", False),
    2: ("fp_add", "int_add", False),
    3: ("fp_sub", "int_sub", False),
    4: ("max", "max", False),
    5: ("min", "min", False),
    7: ("", "and", False),
    8: ("", "or", False),
    9: ("", "xor", False),
    12: ("fp_div", "", False),
    15: ("", "int_add", True),
    16: ("", "int_sub", True),
    20: ("", "int_mul", True),
    27: ("fp_diff_abs", "", False),
}
SHIFTS = {6: "logical_shift", 21: "arithmetic_shift"}
SELECT = {10: "greater", 11: "equal", 13: "less"}
NOT, DIVIDE, CAST, COPY, ABSOLUTE, COPY_TO_ALL = 1, 12, 14, 19, 26, 28
COMPARISONS = {
    22: "maximum_greater_select",
    23: "greater_select",
    24: "equal_select",
    25: "minimum_less_select",
    26: "less_select",
}
DIFFERENCES = (3, 16)  # of unsigned integers too
TAYLOR, RSQRT = (12, 13), 17
Operands = dict[str, Operand | Constant]


def arithmetic(command: Encoded, config: Config) -> Command:
    """AR. Raises ProgramError for a function that is not modelled."""
    function = command["tsk_eu_typ"]
    shape = res0_shape(command)
    first = from_fields(command["opd0_prec"], command["opd0_sign"])
    a = place(command, "opd0", shape, first, config)
    mode = Rounding(command["opd2_n_str"]) if function != DIVIDE else Rounding.HALF_TO_EVEN
    if function == CAST:
        y = result(command, from_fields(command["res0_prec"], command["opd2_sign"]), config)
        same = y.dtype == first and first.is_float
        return Command(OPERATIONS["fp_round" if same else "cast"], {"x": a}, {"y": y}, {"mode": mode})
    sign = command["opd0_sign"] or command["opd1_sign"] or function in DIFFERENCES
    y = result(command, from_fields(command["res0_prec"], sign), config)
    if function in (COPY, ABSOLUTE, COPY_TO_ALL):
        y = result(command, from_fields(command["res0_prec"], command["opd0_sign"]), config)
        if function == COPY_TO_ALL:  # the first of n to all
            a = place(command, "opd0", (1, *shape[1:]), first, config)
        return Command(OPERATIONS["abs" if function == ABSOLUTE else "copy"], {"a": a}, {"y": y})
    if function == NOT:
        return Command(OPERATIONS["xor"], {"a": a, "b": Constant((1 << first.bits) - 1, first)}, {"y": y})
    if function in SHIFTS:
        count = place(command, "opd1", shape, I8, config)
        return Command(OPERATIONS[SHIFTS[function]], {"a": a, "shift": count}, {"y": y}, {"mode": mode})
    b = place(command, "opd1", shape, from_fields(command["opd1_prec"], command["opd1_sign"]), config)
    if function in SELECT:
        chosen = from_fields(command["res0_prec"], command["opd2_sign"])
        true = place(command, "opd2", (1, shape[1], 1, 1), chosen, config, COMPACT)
        return Command(
            OPERATIONS[SELECT[function]], {"a": a, "b": b, "c": true}, {"y": result(command, chosen, config)}
        )
    on_floats, on_integers, saturate = BINARY.get(function, ("", "", False))
    name = on_floats if first.is_float else on_integers
    if not name:
        raise unknown(command)
    operands: Operands = {"a": _as_float(a, y.dtype), "b": _as_float(b, y.dtype)}
    codes = {"a": command["opd0_str"], "b": command["opd1_str"]}
    strided = [own for own, code in codes.items() if code == STRIDED and not isinstance(operands[own], Constant)]
    attributes: dict[str, Any] = {"mode": mode, "saturate": saturate, "strided": strided}
    if function == DIVIDE:
        attributes["steps"] = command["opd2_n_str"] + 1
    elif command["tsk_opd_num"] == 3:
        operands["shift"] = place(command, "opd2", (1, shape[1], 1, 1), I8, config, COMPACT)
    return Command(OPERATIONS[name], operands, {"y": y}, attributes)


def _as_float(operand: Tensor | Constant, dtype: DType) -> Tensor | Constant:
    """Integer bits that a float operation reads as floats: how a power of two made of its exponent is multiplied."""
    if dtype.is_float and not operand.dtype.is_float and operand.dtype.bytes == dtype.bytes:
        return replace(operand, dtype=dtype)
    return operand


def quantisation(command: Encoded, config: Config) -> Command:
    """RQ&DQ: parameters are constants, or lie side by side for each channel."""
    function = command["tsk_eu_typ"]
    x = place(command, "opd0", res0_shape(command), from_fields(command["opd0_prec"], command["opd0_sign"]), config)
    y = result(command, from_fields(command["res0_prec"], command["opd2_sign"]), config)
    names: dict[int, tuple[str, tuple[tuple[str, DType], ...]]] = {
        0: ("fp32_requant", (("scale", F32), ("offset", F32))),
        1: ("int_requant", (("multiplier", I32), ("shift", I32), ("offset", I32))),
        3: ("fp32_dequant", (("offset", I32), ("scale", F32))),
        4: ("int_dequant", (("offset", I32), ("multiplier", I32), ("shift", I32))),
    }
    if function not in names:
        raise unknown(command)
    name, parameters = names[function]
    first, second = command["opd1_addr"], command["opd2_addr"]
    operands: Operands = {"x": x}
    if not command["opd1_const"]:
        for number, (parameter, dtype) in enumerate(parameters):
            shape = (1, command["res0_c"], 1, 1)
            operands[parameter] = local(first + 4 * number, shape, ALIGNED, dtype, config)
    elif function == 1:
        operands |= {"multiplier": Constant(first, I32), "shift": Constant(second & 0xFF, I8)}
        operands["offset"] = Constant(second >> 8 & 0xFFFF, I16)
    elif function == 4:
        operands |= {"multiplier": Constant(second, I32), "shift": Constant(first >> 16, I16)}
        operands["offset"] = Constant(first & 0xFFFF, I16)
    else:
        values = dict(zip((own for own, _ in parameters), (first, second), strict=True))
        operands |= {own: Constant(values[own], dtype) for own, dtype in parameters}
    return Command(OPERATIONS[name], operands, {"y": y}, {"mode": Rounding(command["opd2_n_str"])})


def special(command: Encoded, config: Config) -> Command:
    """SFU: polynomials whose coefficients every lane holds, inverse roots."""
    function = command["tsk_eu_typ"]
    dtype = from_fields(command["opd0_prec"], 1)
    a = place(command, "opd0", res0_shape(command), dtype, config)
    y = result(command, from_fields(command["res0_prec"], 1), config)
    if function == RSQRT:
        return Command(OPERATIONS["fp_rsqrt"], {"a": a}, {"y": y}, {"steps": command["opd2_n_str"] + 1})
    if function not in TAYLOR:
        raise unknown(command)
    channels, count = command["res0_c"], command["opd1_n"]
    table = local(command["opd1_addr"], (1, channels, 1, count), STRIDED, dtype, config, Stride(0, 0, count, 1))
    return Command(OPERATIONS["fp_taylor"], {"a": a, "coefficients": table}, {"y": y})


def comparison(command: Encoded, config: Config) -> Command:
    """CMP: selects c or d by a comparison of a and b; with the extreme of a and b, or without."""
    name = COMPARISONS.get(command["tsk_eu_typ"])
    if name is None:
        raise unknown(command)
    compared = from_fields(command["opd0_prec"], command["opd0_sign"])
    chosen = from_fields(command["opd2_prec"], 0)
    types = {"opd0": compared, "opd1": compared, "opd2": chosen, "opd3": chosen}
    a, b, c, d = (place(command, own, res0_shape(command), dtype, config) for own, dtype in types.items())
    second = local(command["res1_addr"], res0_shape(command), ALIGNED, chosen, config)
    results: dict[str, Operand] = {"y": result(command, chosen, config)}
    if "y0" in OPERATIONS[name].outputs:
        results = {"y0": result(command, compared, config), "y": second}
    return Command(OPERATIONS[name], {"a": a, "b": b, "c": c, "d": d}, results)


def linear(command: Encoded, config: Config) -> Command:
    """LIN: x * scale + offset by channel."""
    if command["tsk_eu_typ"] != 1:
        raise unknown(command)
    dtype = from_fields(command["res0_prec"], 1)
    a = place(command, "opd0", res0_shape(command), dtype, config)
    channels = (1, command["res0_c"], 1, 1)
    b, offset = (place(command, own, channels, dtype, config, COMPACT) for own in ("opd1", "opd2"))
    return Command(OPERATIONS["fp_mac"], {"a": a, "b": b, "acc": offset}, {"y": result(command, dtype, config)})
