"""For each function of the device API in golden vectors: its operation, the types of its operands, and its constants.

CALLS has one entry per function, without the prefix of the C name (tpu_bdc_, tpu_gdma_, tpu_hau_). A type is either
fixed, or the name of a parameter of the vector whose value is the type. `capi/` has the functions with their C
parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError
from tilewright.targets.bm1684x.capi.convolutions import TRANSPOSED
from tilewright.targets.bm1684x.capi.forms import ATTRIBUTES
from tilewright.targets.bm1684x.capi.moves import FROM, WAYS
from tilewright.targets.bm1684x.isa.operations import OPERATIONS, OPTIONAL, Operation
from tilewright.targets.bm1684x.values.dtypes import DTYPES, DType, dtype_of, rounding_of
from tilewright.targets.bm1684x.values.elementwise import RELATIONS

MODES = ("mode", "src_mode")
#: The names of attributes, by the names of the corresponding parameters in golden vectors.
NAMES = {**ATTRIBUTES, "pad_val": "pad", "ltrans": "left_transposed"}
#: Reshapes an array of a golden vector to the shape that the command needs, given the array and the result's shape.
Arrange = Callable[[Array, tuple[int, ...]], Array]


@dataclass(frozen=True)
class Call:
    """A function of the device API in golden vectors: its operation, and where the vector has operands and parameters.

    `types` maps an operand to its type, or to the vector's parameter with the type. The entry "" applies to all other
    operands of operations that allow several types. `constants` maps an operand that is a number to its bits, or to the
    vector's parameter with the number. `renamed` maps an operand of the operation to its name in the vector.
    `attributes` have fixed values. If command and vector have different shapes, `arranged` has functions that reshape
    operands or results.
    """

    operation: str
    types: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, str | int] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    arranged: Mapping[str, Arrange] = field(default_factory=dict)

    @property
    def described(self) -> Operation:
        return OPERATIONS[self.operation]

    def types_of(self, parameters: Mapping[str, Any], optional: tuple[str, ...] = ()) -> dict[str, DType]:
        """Return the type of each operand and result by name.

        `parameters` are the parameters of a golden vector, and `optional` lists the optional operands that are present.
        Raises InputError if a parameter for a type is missing.
        """
        operation = self.described
        names = [name for name in operation.inputs if name not in OPTIONAL or name in optional]
        return {name: self._type(name, parameters) for name in (*names, *operation.outputs)}

    def _type(self, name: str, parameters: Mapping[str, Any]) -> DType:
        if name not in self.types and (number := self.described.numbers.get(name)):
            return number
        key = self.types.get(name, self.types.get("", "dtype"))
        if key in DTYPES:
            return DTYPES[key]
        if key not in parameters:
            raise InputError(self.operation, f"the type of the operand {name} is missing", f"give the parameter {key}")
        return dtype_of(parameters[key])

    def constants_of(self, parameters: Mapping[str, Any]) -> dict[str, int]:
        numbers = {
            name: parameters.get(key, 0) if isinstance(key, str) else key for name, key in self.constants.items()
        }
        return {name: _bits(value, self._type(name, parameters)) for name, value in numbers.items()}

    def arrange(self, name: str, values: Array, shape: tuple[int, ...]) -> Array:
        """Reshape values to the shape that the command needs. `shape` is the shape of the vector's result."""
        return self.arranged[name](values, shape) if name in self.arranged else values

    def attributes_of(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        named = {NAMES.get(key, key): value for key, value in parameters.items() if key not in MODES}
        modes = {NAMES[key]: rounding_of(parameters[key]) for key in MODES if key in parameters}
        return {**named, **modes, **self.attributes}


def _bits(value: float, dtype: DType) -> int:
    # A float is an f32; an integer already is a bit pattern.
    if isinstance(value, float):
        return int(np.float32(value).view(np.uint32))
    return value & ((1 << dtype.bits) - 1)


def _in_rows(values: Array, shape: tuple[int, ...]) -> Array:
    return values.reshape(*values.shape[:2], 1, -1)


def _indices(*row: int) -> Arrange:
    return lambda values, shape: values.reshape(1, -1, 1, *row)


def _in_each_lane(values: Array, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(values.reshape(-1), (1, shape[1], 1, values.size))


ONE_F32 = 0x3F80_0000
from_to = {"": "src", "y": "dst"}
integer = {"a": "a_dtype", "b": "b_dtype", "y": "dst"}
eight = {"x": "xdt", "w": "wdt", "y": "odt", "acc": "odt"}
product = {"": "dtype", "y": "odt", "bias": "f32", "acc": "f32"}
wide_product = {"L": "ldt", "R": "rdt", "y": "i32"}
chosen = {"": "src", "c": "dst", "d": "dst", "y": "dst"}
b_C = {"b": "C_bits"}
pad = {"pad": "pad_bits"}
sorted_names = {"y": "value", "numbers": "index"}
indexed = {"index": "idt"}
by_rows = {"index": "u32"}
looked_up = {"x": "dst", "index": "src", "y": "dst"}
#: The attributes of a product of matrices stored by rows, by the suffix of the function's name.
BY_ROWS: Mapping[str, Mapping[str, Any]] = {
    "": {},
    **{end: {TRANSPOSED[end]: True} for end in ("_R_trans", "_all_trans")},
}
multiplied = {name: name for name in ("multiplier", "shift", "offset")}

#: For each kind of gather and scatter: the function's name, the types, and functions that reshape the operands of a
#: gather and of a scatter.
INDEXED: Mapping[str, tuple[str, Mapping[str, str], Mapping[str, Arrange], Mapping[str, Arrange]]] = {
    "w": ("w", indexed, {"index": _indices(1)}, {"index": _indices(1)}),
    "hw": ("hw", {"index": "u16"}, {"index": _indices(2), "y": _in_rows}, {"index": _indices(2), "x": _in_rows}),
    "pe": ("batch_bcast_w", indexed, {}, {}),
    "h": ("batch_bcast_h", indexed, {}, {}),
}
#: Functions whose operation has the same name, and whose operands all have one type.
PLAIN = """fp_add fp_sub fp_mul fp_diff_abs max min and or xor abs neg sign copy fp_round fp_div fp_rsqrt fp_sqrt fp_exp
    fp_sigmoid fp_log fp_depthwise2d cw_trans wc_trans npu_bcast"""
CALLS: dict[str, Call] = {
    **{name: Call(name) for name in PLAIN.split()},
    **{f"fp_{name}_C": Call(f"fp_{name}", constants=b_C) for name in ("add", "sub", "mul", "diff_abs", "div")},
    **{f"fp_C_{name}": Call(f"fp_{name}", {}, {"a": "C_bits"}, {"b": "a"}) for name in ("sub", "div")},
    **{f"{name}_C": Call(name, constants=b_C) for name in ("max", "min", "and", "or", "xor")},
    "not": Call("xor", constants={"b": -1}),
    "relu": Call("max", constants={"b": 0}),
    "prelu": Call("prelu", constants={"slope": "alpha_bits"}),
    "fp_square": Call("fp_mul", renamed={"a": "a", "b": "a"}),
    "fp_floor": Call("fp_round", renamed={"x": "a"}, attributes={"mode": rounding_of("down")}),
    "fp_ceil": Call("fp_round", renamed={"x": "a"}, attributes={"mode": rounding_of("up")}),
    "fp32_mac": Call("fp_mac", {"": "f32"}),
    "fp_reciprocal": Call("fp_div", {}, {"a": ONE_F32}, {"b": "a"}),
    "fp_taylor": Call("fp_taylor", renamed={"coefficients": "coef"}),
    "cast": Call("cast", from_to),
    **{f"int_{name}": Call(f"int_{name}", integer, {"shift": "shift"}) for name in ("add", "sub", "mul")},
    "int8_mac": Call("int8_mac", {"a": "a_dtype", "b": "b_dtype", "acc": "i16", "y": "i16"}),
    **{f"{name}_shift_C": Call(f"{name}_shift", from_to, {"shift": "shift"}) for name in ("arithmetic", "logical")},
    **{name: Call(name, chosen, {"c": "true_bits"}) for name in RELATIONS},
    **{f"{name}_select": Call(f"{name}_select", chosen) for name in ("greater", "less", "equal")},
    **{
        name: Call(name, {**chosen, "y0": "src"}, renamed={"y": "y1"})
        for name in ("maximum_greater_select", "minimum_less_select")
    },
    **{f"int_{name}quant": Call(f"int_{name}quant", from_to, multiplied) for name in ("re", "de")},
    "fp32_requant": Call("fp32_requant", from_to, {"scale": "scale", "offset": "offset"}),
    "fp32_dequant": Call("fp32_dequant", {**from_to, "y": "f32"}, {"scale": "scale", "offset": "offset"}),
    "fp_conv2d": Call("fp_conv2d", product),
    "int8_sym_quant_conv2d": Call("int8_sym_quant_conv2d", {**eight, "bias": "bias_dtype"}),
    "int8_asym_quant_conv2d": Call("int8_asym_quant_conv2d", eight, {"zero": "kzp"}),
    "int8_depthwise2d": Call("int8_depthwise2d", {**eight, "bias": "i32"}),
    "fp_avg_pool2d": Call("fp_avg_pool2d", constants={"scale": "scale_bits"}),
    "int8_avg_pool2d": Call("int8_avg_pool2d", {"y": "odt"}, {"scale": "scale"}),
    **{f"{name}_max_pool2d": Call("max_pool2d", constants=pad) for name in ("fp", "int8")},
    **{f"fp_mm{end}": Call("fp_mm", product, attributes=attributes) for end, attributes in BY_ROWS.items()},
    "fp32_mm": Call("fp_mm", {"": "f32"}),
    "int8_mm": Call("int8_mm", {"L": "ldt", "R": "rdt", "y": "odt", "bias": "i16"}),
    **{
        f"int8_zp_mm{end}": Call("int8_zp_mm", wide_product, {"zero": "zp"}, attributes=attributes)
        for end, attributes in BY_ROWS.items()
    },
    **{
        f"{name}_{way}": Call(f"{kind}_{way}", types, renamed={"x": "param"}, arranged=arranged[way == "scatter"])
        for kind, (name, types, *arranged) in INDEXED.items()
        for way in ("gather", "scatter")
    },
    "table_lookup": Call(
        "pe_gather",
        looked_up,
        renamed={"x": "table", "index": "x"},
        arranged={"x": _in_each_lane, "index": _in_rows, "y": _in_rows},
    ),
    **{f"gdma_h_gather_{way}": Call("dma_h_gather", by_rows, {"fill": "C_bits"}, {"x": "param"}) for way in WAYS},
    **{f"gdma_h_scatter_{way}": Call("dma_h_scatter", by_rows, renamed={"x": "param"}) for way in WAYS},
    **{f"gdma_mask_select_{way}": Call("dma_mask_select", {"mask": "mask_dtype", "count": "u32"}) for way in FROM},
    **{f"gdma_nonzero_{way}": Call("dma_nonzero", {"y": "u32", "count": "u32"}) for way in FROM},
    **{
        f"hau_sort{which}": Call("hau_sort", {"index": "i32", "numbers": "i32"}, renamed=sorted_names)
        for which in ("", "_natural_index", "_specific_index")
    },
}


def call_of(name: str) -> Call:
    """Return the Call of a function by its name in golden vectors. Raises InputError if the function is unknown."""
    if name not in CALLS:
        raise InputError("call", f"there is no call '{name}' in the supported part of the device API")
    return CALLS[name]
