"""The parameters of the device API's functions: the C types, and the parameters that several functions have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tilewright.errors import MachineError
from tilewright.targets.bm1684x.capi.names import dim2, dim4, padding_t
from tilewright.targets.bm1684x.values.dtypes import DType


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function. With `optional`, the Python form of a call may give None for it (in C: NULL)."""

    name: str
    type: CType
    optional: bool = False

    def check(self, function: str, value: Any) -> None:
        """Check an argument of the Python form. Raises MachineError if it is not of the parameter's type."""
        kind = PYTHON.get(self.type)
        if kind is None or isinstance(value, kind) or (self.optional and value is None):
            return
        raise MachineError(function, f"{self.name} is {value!r}", f"give a {kind.__name__}")


class CType(StrEnum):
    """The C types of parameters, as a declaration writes them."""

    LOCAL = "local_addr_t"
    SYSTEM = "system_addr_t"
    EITHER = "addr_t"  # a second parameter says which of both memories
    STATIC = "static_addr_t"
    SCALAR = "scalar_t"
    VARIABLE = "const variable_t *"
    DTYPE = "data_type_t"
    MODE = "rounding_mode_t"
    DIM4 = "const dim4 *"
    DIM2 = "const dim2 *"
    PADDING = "const padding_t *"
    BOOL = "bool"
    CHAR = "char"
    BYTE = "unsigned char"
    INT = "int"
    UNSIGNED = "unsigned int"
    FLOAT = "float"

    def __call__(self, name: str) -> Parameter:
        return Parameter(name, self)

    def each(self, *names: str, optional: bool = False) -> tuple[Parameter, ...]:
        """Return parameters of this type."""
        return tuple(Parameter(name, self, optional) for name in names)


#: The types of arguments in Python, where they are checked.
PYTHON: Mapping[CType, type] = {
    CType.DTYPE: DType,
    CType.DIM4: dim4,
    CType.DIM2: dim2,
    CType.PADDING: padding_t,
}
#: The bytes of a recorded argument: a format of the module struct. A pointer starts with a flag: 0 is NULL.
FORMATS: Mapping[str, str] = {
    **dict.fromkeys((CType.LOCAL, CType.STATIC, CType.UNSIGNED, CType.SCALAR), "I"),
    **dict.fromkeys((CType.SYSTEM, CType.EITHER), "Q"),
    **dict.fromkeys((CType.INT, CType.DTYPE, CType.MODE), "i"),
    CType.BOOL: "?",
    CType.CHAR: "b",
    CType.BYTE: "B",
    CType.FLOAT: "f",
    CType.DIM4: "?4i",
    CType.DIM2: "?2i",
    CType.PADDING: "?4i",
    CType.VARIABLE: "?iI",
}

DST, DST0, DST1 = CType.LOCAL.each("dst", "dst0", "dst1")
SRC, SRC0, SRC1 = CType.LOCAL.each("src", "src0", "src1")
OUTPUT, INPUT, WEIGHT, BIAS, PARAM, INDEX = CType.LOCAL.each("output", "input", "weight", "bias", "param", "index")
WORK, WORK0, WORK1, WORK2, WORK3 = CType.LOCAL.each("work", "work0", "work1", "work2", "work3")
COEFF, EXP_COEFF, LOG_COEFF, LN_COEFF, ERF_COEFF = CType.LOCAL.each(
    "coeff", "exp_coeff", "log_coeff", "ln_coeff", "erf_coeff"
)
TABLE, EXP_TABLE, COUNT_ADDR = CType.LOCAL.each("table", "exp_table", "count_addr")

SHAPE = CType.DIM4("shape")
DST_STRIDE, SRC_STRIDE, SRC0_STRIDE, SRC1_STRIDE, INPUT_STRIDE = CType.DIM4.each(
    "dst_stride", "src_stride", "src0_stride", "src1_stride", "input_stride", optional=True
)

DTYPE, DST_DTYPE, SRC_DTYPE, SRC0_DTYPE, SRC1_DTYPE, C_DTYPE = CType.DTYPE.each(
    "dtype", "dst_dtype", "src_dtype", "src0_dtype", "src1_dtype", "C_dtype"
)
INPUT_DTYPE, WEIGHT_DTYPE, BIAS_DTYPE, OUTPUT_DTYPE, OUT_DTYPE = CType.DTYPE.each(
    "input_dtype", "weight_dtype", "bias_dtype", "output_dtype", "out_dtype"
)
LEFT_DTYPE, RIGHT_DTYPE, INDEX_DTYPE, MASK_DTYPE = CType.DTYPE.each(
    "left_dtype", "right_dtype", "index_dtype", "mask_dtype"
)
MODE, SRC_MODE = CType.MODE.each("mode", "src_mode")

C, TRUE_VAL, SCALE, PAD, ZERO = CType.SCALAR.each("C", "true_val", "scale", "pad", "zero")
SHIFT = CType.CHAR("shift")
LSHIFT, RSHIFT = CType.BYTE.each("lshift", "rshift")
SATURATION, HAS_BIAS, RESULT_ADD, RESULT_RELU, FILL_CONST = CType.BOOL.each(
    "saturation", "has_bias", "result_add", "result_relu", "fill_const"
)
NUM_ITER, LENGTH, LANES, PARAM_H, PARAM_W = CType.INT.each("num_iter", "length", "lanes", "param_h", "param_w")
START, STEP, NUM = CType.INT.each("start", "step", "num")
COUNT = CType.UNSIGNED("count")

KERNEL, STRIDE, DILATION, INSERT = CType.DIM2.each("kernel", "stride", "dilation", "insert")
PADDING = CType.PADDING("padding")
