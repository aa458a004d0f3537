"""Calls of the device API as the vectors describe them: which operand has which type, what is a constant.

One entry a call, without its prefix (tpu_bdc_, tpu_gdma_, tpu_hau_). Types are named by the vector's parameter that
gives them, or stand there themselves. The functions with their C parameters are in `capi/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.errors import InputError
from tilewright.targets.bm1684x.capi.names import ATTRIBUTES
from tilewright.targets.bm1684x.isa.operations import OPERATIONS, OPTIONAL, Operation
from tilewright.targets.bm1684x.values.dtypes import DTYPES, DType, dtype_of, rounding_of

MODES = ("mode", "src_mode")


@dataclass(frozen=True)
class Call:
    """One function of the device API. `types`: parameter (or type) by operand; others have the one of "".

    `constants`: operands that are numbers, as bits, given by a parameter or fixed; `renamed`: operands that the call
    names otherwise; `attributes`: fixed ones.
    """

    operation: str
    types: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, str | int] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def described(self) -> Operation:
        return OPERATIONS[self.operation]

    def types_of(self, parameters: Mapping[str, Any], optional: tuple[str, ...] = ()) -> dict[str, DType]:
        """Types by operand and result, optional operands as named. Raises InputError for a missing parameter."""
        operation = self.described
        given = [name for name in operation.inputs if name not in OPTIONAL or name in optional]
        return {name: self._type(name, parameters) for name in (*given, *operation.outputs)}

    def _type(self, name: str, parameters: Mapping[str, Any]) -> DType:
        key = self.types.get(name, self.types.get("", "dtype"))
        if key in DTYPES:
            return DTYPES[key]
        if key not in parameters:
            raise InputError(self.operation, f"the type of {name} is missing", f"give {key}")
        return dtype_of(parameters[key])

    def constants_of(self, parameters: Mapping[str, Any]) -> dict[str, int]:
        """The bits of constant operands."""
        found = {name: parameters.get(key, 0) if isinstance(key, str) else key for name, key in self.constants.items()}
        return {name: _bits(value, self._type(name, parameters)) for name, value in found.items()}

    def attributes_of(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The operation's attributes."""
        found = {ATTRIBUTES.get(key, key): value for key, value in parameters.items() if key not in MODES}
        modes = {ATTRIBUTES[key]: rounding_of(parameters[key]) for key in MODES if key in parameters}
        return {**found, **modes, **self.attributes}


def _bits(value: float, dtype: DType) -> int:
    """The bit pattern of a number; integers given for floats are patterns already."""
    if isinstance(value, float):
        return int(np.float32(value).view(np.uint32))
    return value & ((1 << dtype.bits) - 1)


ONE_F32 = 0x3F80_0000
by_name = {"": "dtype"}
from_to = {"": "src", "y": "dst"}
integer = {"a": "a_dtype", "b": "b_dtype", "shift": "i8", "y": "dst"}
eight = {"x": "xdt", "w": "wdt", "y": "odt", "zero": "i16", "acc": "odt"}
product = {"": "dtype", "y": "odt", "bias": "f32", "acc": "f32"}
chosen = {"": "src", "c": "dst", "d": "dst", "y": "dst"}
scaled = {"x": "src", "y": "dst", "multiplier": "i32", "shift": "i8", "offset": "i32", "scale": "f32"}
short = {"": "dtype", "scale": "u8", "y": "odt"}

CALLS: dict[str, Call] = {
    **{f"fp_{name}": Call(f"fp_{name}", by_name) for name in ("add", "sub", "mul", "diff_abs")},
    **{
        f"fp_{name}_C": Call(f"fp_{name}", by_name, {"b": "C_bits"})
        for name in ("add", "sub", "mul", "diff_abs", "div")
    },
    **{f"fp_C_{name}": Call(f"fp_{name}", by_name, {"a": "C_bits"}, {"b": "a"}) for name in ("sub", "div")},
    **{name: Call(name, by_name) for name in ("max", "min", "and", "or", "xor", "abs", "neg", "sign", "copy")},
    **{f"{name}_C": Call(name, by_name, {"b": "C_bits"}) for name in ("max", "min", "and", "or", "xor")},
    "not": Call("xor", by_name, {"b": -1}),
    "relu": Call("max", by_name, {"b": 0}),
    "prelu": Call("prelu", by_name, {"slope": "alpha_bits"}),
    "fp_square": Call("fp_mul", by_name, renamed={"a": "a", "b": "a"}),
    "fp_floor": Call("fp_round", by_name, renamed={"x": "a"}, attributes={"mode": rounding_of("down")}),
    "fp_ceil": Call("fp_round", by_name, renamed={"x": "a"}, attributes={"mode": rounding_of("up")}),
    "fp_round": Call("fp_round", by_name),
    "fp32_mac": Call("fp_mac", {"": "f32"}),
    "fp_div": Call("fp_div", by_name),
    "fp_reciprocal": Call("fp_div", by_name, {"a": ONE_F32}, {"b": "a"}),
    **{name: Call(name, by_name) for name in ("fp_rsqrt", "fp_sqrt", "fp_exp", "fp_sigmoid", "fp_log")},
    "fp_taylor": Call("fp_taylor", by_name, renamed={"coefficients": "coef"}),
    "cast": Call("cast", from_to),
    **{f"int_{name}": Call(f"int_{name}", integer, {"shift": "shift"}) for name in ("add", "sub", "mul")},
    "int8_mac": Call("int8_mac", {"a": "a_dtype", "b": "b_dtype", "acc": "i16", "y": "i16"}),
    **{
        f"{name}_shift_C": Call(f"{name}_shift", {"a": "src", "y": "dst", "shift": "i8"}, {"shift": "shift"})
        for name in ("arithmetic", "logical")
    },
    **{
        name: Call(name, chosen, {"c": "true_bits"})
        for name in ("greater", "less", "equal", "greater_equal", "less_equal", "not_equal")
    },
    **{f"{name}_select": Call(f"{name}_select", chosen) for name in ("greater", "less", "equal")},
    **{
        name: Call(name, {**chosen, "y0": "src"}, renamed={"y": "y1"})
        for name in ("maximum_greater_select", "minimum_less_select")
    },
    **{
        f"int_{name}quant": Call(
            f"int_{name}quant", scaled, {"multiplier": "multiplier", "shift": "shift", "offset": "offset"}
        )
        for name in ("re", "de")
    },
    "fp32_requant": Call("fp32_requant", {**scaled, "offset": "f32"}, {"scale": "scale", "offset": "offset"}),
    "fp32_dequant": Call("fp32_dequant", {**scaled, "y": "f32"}, {"scale": "scale", "offset": "offset"}),
    "fp_conv2d": Call("fp_conv2d", product),
    "int8_sym_quant_conv2d": Call("int8_sym_quant_conv2d", {**eight, "bias": "bias_dtype"}),
    "int8_asym_quant_conv2d": Call("int8_asym_quant_conv2d", eight, {"zero": "kzp"}, attributes={}),
    "fp_depthwise2d": Call("fp_depthwise2d", by_name),
    "int8_depthwise2d": Call("int8_depthwise2d", {**eight, "bias": "i32"}),
    "fp_avg_pool2d": Call("fp_avg_pool2d", by_name, {"scale": "scale_bits"}),
    "int8_avg_pool2d": Call("int8_avg_pool2d", short, {"scale": "scale"}),
    "fp_max_pool2d": Call("max_pool2d", by_name, {"pad": "pad_bits"}),
    "int8_max_pool2d": Call("max_pool2d", by_name, {"pad": "pad_bits"}),
    "fp_mm": Call("fp_mm", product),
    "fp_mm_R_trans": Call("fp_mm", product, attributes={"right_transposed": True}),
    "fp_mm_all_trans": Call("fp_mm", product, attributes={"both_transposed": True}),
    "fp32_mm": Call("fp_mm", {"": "f32"}),
    "int8_mm": Call("int8_mm", {"L": "ldt", "R": "rdt", "y": "odt", "bias": "i16"}),
    "int8_zp_mm": Call("int8_zp_mm", {"L": "ldt", "R": "rdt", "y": "i32", "zero": "i16"}, {"zero": "zp"}),
    "int8_zp_mm_R_trans": Call(
        "int8_zp_mm",
        {"L": "ldt", "R": "rdt", "y": "i32", "zero": "i16"},
        {"zero": "zp"},
        attributes={"right_transposed": True},
    ),
    "int8_zp_mm_all_trans": Call(
        "int8_zp_mm",
        {"L": "ldt", "R": "rdt", "y": "i32", "zero": "i16"},
        {"zero": "zp"},
        attributes={"both_transposed": True},
    ),
    **{name: Call(name, by_name) for name in ("cw_trans", "wc_trans", "npu_bcast")},
    "gdma_h_gather_S2S": Call("dma_h_gather", {"": "dtype", "index": "u32"}, {"fill": "C_bits"}, {"x": "param"}),
    "gdma_h_scatter_S2S": Call("dma_h_scatter", {"": "dtype", "index": "u32"}, renamed={"x": "param"}),
    "gdma_mask_select_S2S": Call("dma_mask_select", {"": "dtype", "mask": "mask_dtype", "count": "u32"}),
    "gdma_nonzero_S2S": Call("dma_nonzero", {"": "dtype", "y": "u32", "count": "u32"}),
    **{
        f"hau_sort{which}": Call(
            "hau_sort", {"": "dtype", "index": "i32", "numbers": "i32"}, renamed={"y": "value", "numbers": "index"}
        )
        for which in ("", "_natural_index", "_specific_index")
    },
}


def call_of(name: str) -> Call:
    """The call of that name. Raises InputError."""
    if name not in CALLS:
        raise InputError("call", f"there is no call '{name}' of the device API here")
    return CALLS[name]
