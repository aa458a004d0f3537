"""The C prototypes of the device API, made from the tables of `capi`, and the bytes of a recorded call.

The name of a parameter decides its C type. A parameter with an unknown name is a local address, as most are.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from tilewright.targets.bm1684x.capi.tpu import FUNCTIONS

LOCAL, SYSTEM, EITHER, STATIC = "local_addr_t", "system_addr_t", "addr_t", "static_addr_t"
SCALAR, VARIABLE = "scalar_t", "const variable_t *"
#: The C type of a parameter, by a pattern of its name. The first pattern that matches the whole name counts.
PATTERNS: tuple[tuple[str, str], ...] = (
    (r"(\w+_)?dtype", "data_type_t"),
    (r"(\w+_)?mode", "rounding_mode_t"),
    (r"row_stride", "int"),
    (r"stride|kernel|dilation|insert|ins", "const dim2 *"),
    (r"(\w+_)?shape|\w+_stride", "const dim4 *"),
    (r"padding", "const padding_t *"),
    (r"(has|is|do|result)_\w+|\w+_is_const|\w+_is_local|fill_const|descended|saturation", "bool"),
    (r"lshift|rshift", "unsigned char"),
    (r"shift", "char"),
    (r"count|base", "unsigned int"),
    (r"(\w+_)?(rows|columns|cols|width|size|length|len|num|number|iter|lanes|boxes|c|h|w)", "int"),
    (r"\w+_per_channel|k|K|keep|multiplier", "int"),
    (r"start|step|end|axis|\w+_num|num_\w+", "int"),
    (r"index|mask", EITHER),
    (r"C|zero|\w*pad|true_val|alpha|scale|between|offset|\w+_val", SCALAR),
    (r"threshold|beta|scope", "float"),
)
#: Parameters whose type differs in some functions: (pattern of the function, pattern of the parameter, type).
SPECIAL: tuple[tuple[str, str, str], ...] = (
    (r"tpu_bdc_\w+_select", r"src\d", VARIABLE),
    (r"tpu_bdc_fp_scale_bias_C", r"bias", SCALAR),
    (r"tpu_bdc_\w*shift_C", r"C", "char"),
    (r"tpu_bdc_fp32_\w*(div|mac|pow|mm)\w*", r"C", "float"),
    (r"tpu_bdc_fp\d*_(elu|hsigmoid)", r"alpha", "float"),
    (r"tpu_bdc_fp\d*_\w+", r"x", "float"),
    (r"tpu_bdc_fp32_(\w+_)?(re|de)quant", r"scale", "float"),
    (r"tpu_bdc_fp32_requant|tpu_bdc_fp\d*_hsigmoid", r"offset", "float"),
    (r"tpu_bdc_int8_(ins_)?avg_pool2d", r"scale", "unsigned char"),
    (r"tpu_gdma_mask_select_\w+", r"mask_is_local", "int"),
    (r"tpu_bdc_npu_\w+_from_static", r"src", STATIC),
    (r"tpu_bdc_\w+", r"index|mask|count_addr", LOCAL),
    (r"tpu_hau_sort_general", r"flags|descends|indexed|automatic", "int"),
    (r"tpu_hau_\w+", r"(output|input|src|dst)(_\w+)?|index|numbers|overlaps|iou|scores?|param", SYSTEM),
    (r"tpu_gdma_(set_C_system|system_\w+)", r"dst|src", SYSTEM),
    (r"tpu_gdma_\w+_S2[LS]", r"src|param", SYSTEM),
    (r"tpu_gdma_\w+_[LS]2S", r"dst|output", SYSTEM),
)
#: The bytes of a recorded argument, by C type: a format of the module struct. A pointer starts with a flag: 0 is NULL.
FORMATS: Mapping[str, str] = {
    **dict.fromkeys((LOCAL, STATIC, "unsigned int", SCALAR), "I"),
    **dict.fromkeys((SYSTEM, EITHER), "Q"),
    **dict.fromkeys(("int", "data_type_t", "rounding_mode_t"), "i"),
    "bool": "?",
    "char": "b",
    "unsigned char": "B",
    "float": "f",
    "const dim4 *": "?4i",
    "const dim2 *": "?2i",
    "const padding_t *": "?4i",
    VARIABLE: "?iI",
}


class Prototype(NamedTuple):
    """A C function: its number in recorded calls, its name, and the pairs (C type, name) of its parameters."""

    number: int
    name: str
    parameters: tuple[tuple[str, str], ...]

    @property
    def declaration(self) -> str:
        """The C declaration, without the semicolon."""
        listed = (f"{kind}{name}" if kind.endswith("*") else f"{kind} {name}" for kind, name in self.parameters)
        return f"void {self.name}({', '.join(listed)})"

    @property
    def format(self) -> str:
        """The bytes of the recorded arguments, as a format of the module struct."""
        return "<" + "".join(FORMATS[kind] for kind, _ in self.parameters)

    @property
    def size(self) -> int:
        """The number of bytes of the recorded arguments."""
        return struct.calcsize(self.format)


def ctype(function: str, parameter: str) -> str:
    """Return the C type of a parameter of a function of the device API."""
    for of, name, kind in SPECIAL:
        if re.fullmatch(name, parameter) and re.fullmatch(of, function):
            return kind
    return known(parameter) or LOCAL


def known(parameter: str) -> str | None:
    """Return the C type that a parameter's name implies in every function, or None if it implies none."""
    return next((kind for pattern, kind in PATTERNS if re.fullmatch(pattern, parameter)), None)


@cache
def prototypes() -> tuple[Prototype, ...]:
    """Return the prototypes of all functions in the tables, sorted by name."""
    made = []
    for number, name in enumerate(sorted(FUNCTIONS)):
        words = FUNCTIONS[name].parameters.split()
        made.append(Prototype(number, name, tuple((ctype(name, word), word) for word in words)))
    return tuple(made)
