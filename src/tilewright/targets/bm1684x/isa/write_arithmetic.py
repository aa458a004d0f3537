"""Arithmetic, quantisation and special functions as fields: the inverse of `arithmetic.py`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from tilewright.targets.bm1684x.command import Command, Constant
from tilewright.targets.bm1684x.dtypes import DType, Rounding
from tilewright.targets.bm1684x.isa import arithmetic
from tilewright.targets.bm1684x.isa.formats import TIU_TYPES
from tilewright.targets.bm1684x.isa.written import Fields, Writer, Written, placed, refused, shaped, tensor, typed

TYPES = {name: number for number, name in TIU_TYPES.items()}
TYPES["MM2"] = TYPES["MM"]  # told apart by the function


def written(name: str, function: int, fields: Mapping[str, int]) -> Written:
    """A short command of the compute engine."""
    return Written(name, {"cmd_short": 1, "tsk_typ": TYPES[name], "tsk_eu_typ": function, **fields})


def _signed(name: str, dtype: DType) -> Fields:
    """The type of an operand; in these formats floats count as signed."""
    return typed(name, dtype) | {f"{name}_sign": int(dtype.signed)}


def _head(command: Command) -> Fields:
    """The result and the rounding mode of AR."""
    fields = shaped("res0", command.results["y"].shape) | placed(command, "y", "res0", strides=True)
    mode = command.attributes.get("mode", Rounding.HALF_TO_EVEN)
    return fields | _signed("res0", command.types["y"]) | {"opd2_n_str": int(mode)}


def _operand(command: Command, own: str, name: str) -> Fields:
    strides = not isinstance(command.operands[own], Constant)
    return _signed(name, command.types[own]) | placed(command, own, name, strides)


def _binary(function: int, wrapping: int, command: Command) -> Written:
    """Two operands and perhaps a shift; `function` where the result is clamped."""
    saturates = command.attributes.get("saturate", False)
    fields = _head(command) | _operand(command, "a", "opd0") | _operand(command, "b", "opd1")
    if "shift" in command.operands:
        fields |= typed("opd2", command.types["shift"]) | placed(command, "shift", "opd2")
    fields["tsk_opd_num"] = 2 + ("shift" in command.operands)
    return written("AR", function if saturates else wrapping, fields)


def _shift(function: int, command: Command) -> Written:
    fields = _head(command) | _operand(command, "a", "opd0") | _operand(command, "shift", "opd1")
    return written("AR", function, fields | {"tsk_opd_num": 2})


def _divide(command: Command) -> Written:
    fields = _head(command) | _operand(command, "a", "opd0") | _operand(command, "b", "opd1")
    steps = command.attributes.get("steps", 3)
    return written("AR", arithmetic.DIVIDE, fields | {"tsk_opd_num": 2, "opd2_n_str": steps - 1})


def _compare(function: int, command: Command) -> Written:
    fields = _head(command) | _operand(command, "a", "opd0") | _operand(command, "b", "opd1")
    return written("AR", function, fields | typed("opd2", command.types["c"]) | placed(command, "c", "opd2"))


def _unary(function: int, own: str, command: Command) -> Written:
    fields = _head(command) | _operand(command, own, "opd0")
    if function == arithmetic.CAST:
        fields["opd2_sign"] = fields["res0_sign"]
    return written("AR", function, fields | {"tsk_opd_num": 1})


def _select(function: int, command: Command) -> Written:
    chosen = command.results["y"]
    fields = shaped("res0", chosen.shape) | typed("opd0", command.types["a"])
    fields |= {"opd2_prec": chosen.dtype.precision}
    for own, name in (("a", "opd0"), ("b", "opd1")):
        fields |= placed(command, own, name)
    for own, name in (("c", "opd2"), ("d", "opd3")):
        fields |= placed(command, own, name)
    both = "y0" in command.results
    fields |= placed(command, "y0" if both else "y", "res0") | (placed(command, "y", "res1") if both else {})
    return written("CMP", function, fields)


def _quantise(function: int, parameters: tuple[str, ...], command: Command) -> Written:
    fields = shaped("res0", command.results["y"].shape) | placed(command, "y", "res0") | placed(command, "x", "opd0")
    fields |= _signed("res0", command.types["y"]) | _signed("opd0", command.types["x"])
    fields["opd2_sign"] = fields["res0_sign"]
    fields["opd2_n_str"] = int(command.attributes.get("mode", Rounding.HALF_TO_EVEN))
    given = [command.operands[name] for name in parameters]
    constants = [operand for operand in given if isinstance(operand, Constant)]
    numbers = [constant.bits if constant.dtype.is_float else int(constant.value) for constant in constants]
    if len(numbers) == len(given):
        if function == 1:
            first, second = numbers[0], numbers[1] & 0xFF | (numbers[2] & 0xFFFF) << 8
        elif function == 4:
            first, second = numbers[0] & 0xFFFF | (numbers[2] & 0xFFFF) << 16, numbers[1]
        else:
            first, second = numbers
        first, second = first & 0xFFFF_FFFF, second & 0xFFFF_FFFF
        return written("RQ&DQ", function, fields | {"opd1_const": 1, "opd1_addr": first, "opd2_addr": second})
    if numbers:
        raise refused(command, "some of its parameters are constants", "give all as tensors, or all as numbers")
    return written("RQ&DQ", function, fields | placed(command, parameters[0], "opd1"))


def _taylor(command: Command) -> Written:
    table = tensor(command, "coefficients")
    fields = shaped("res0", command.results["y"].shape) | placed(command, "y", "res0") | placed(command, "a", "opd0")
    fields |= typed("res0", command.types["y"]) | typed("opd0", command.types["a"])
    fields |= placed(command, "coefficients", "opd1") | {"opd1_n": table.shape.w}
    return written("SFU", arithmetic.TAYLOR[1], fields)


def _inverse_root(command: Command) -> Written:
    fields = shaped("res0", command.results["y"].shape) | placed(command, "y", "res0") | placed(command, "a", "opd0")
    fields |= typed("res0", command.types["y"]) | typed("opd0", command.types["a"])
    return written("SFU", arithmetic.RSQRT, fields | {"opd2_n_str": command.attributes.get("steps", 3) - 1})


def _linear(command: Command) -> Written:
    fields = shaped("res0", command.results["y"].shape) | typed("res0", command.types["y"])
    for own, name in (("y", "res0"), ("a", "opd0"), ("b", "opd1"), ("acc", "opd2")):
        fields |= placed(command, own, name)
    return written("LIN", 1, fields)


def _binaries() -> dict[str, Writer]:
    """By operation: the functions that clamp, and that do not."""
    functions: dict[str, dict[bool, int]] = {}
    for function, (on_floats, on_integers, saturates) in arithmetic.BINARY.items():
        for name in {on_floats, on_integers} - {"", "fp_div"}:
            functions.setdefault(name, {})[saturates] = function
    return {name: partial(_binary, by.get(True, by[False]), by[False]) for name, by in functions.items()}


WRITERS: dict[str, Writer] = {
    **_binaries(),
    **{name: partial(_shift, function) for function, name in arithmetic.SHIFTS.items()},
    **{name: partial(_compare, function) for function, name in arithmetic.SELECT.items()},
    **{name: partial(_select, function) for function, name in arithmetic.COMPARISONS.items()},
    "fp_div": _divide,
    "cast": partial(_unary, arithmetic.CAST, "x"),
    "fp_round": partial(_unary, arithmetic.CAST, "x"),
    "copy": partial(_unary, arithmetic.COPY, "a"),
    "abs": partial(_unary, arithmetic.ABSOLUTE, "a"),
    "fp32_requant": partial(_quantise, 0, ("scale", "offset")),
    "int_requant": partial(_quantise, 1, ("multiplier", "shift", "offset")),
    "fp32_dequant": partial(_quantise, 3, ("offset", "scale")),
    "int_dequant": partial(_quantise, 4, ("offset", "multiplier", "shift")),
    "fp_taylor": _taylor,
    "fp_rsqrt": _inverse_root,
    "fp_mac": _linear,
}
