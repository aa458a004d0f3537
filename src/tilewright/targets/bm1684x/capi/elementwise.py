"""Element by element: calls that differ in their operation only, as forms of their parameters.

`dst`, `src`, `src0`, `src1` are local addresses, with a stride and a type of that name (or `dtype`); `C` is a constant.
"""

from __future__ import annotations

STRIDES1, STRIDES2 = "dst_stride src_stride", "dst_stride src0_stride src1_stride"
BINARY = f"dst src0 src1 shape {STRIDES2} dtype"
CONSTANT = f"dst src C shape {STRIDES1} dtype"
UNARY = f"dst src shape {STRIDES1} dtype"
PLAIN = "dst src shape dtype"
INTEGER_TAIL = "shift mode saturate"

#: Parameters of each call, by its name without tpu_bdc_; and its name in CALLS, where that is another.
FORMS: dict[str, str] = {
    **dict.fromkeys(("fp_add", "fp_sub", "fp_mul", "fp_diff_abs", "max", "min", "and", "or", "xor"), BINARY),
    **dict.fromkeys(("fp_add_C", "fp_sub_C", "fp_C_sub", "fp_mul_C", "fp_diff_abs_C"), CONSTANT),
    **dict.fromkeys(("max_C", "min_C", "and_C", "or_C", "xor_C"), CONSTANT),
    **dict.fromkeys(("abs", "neg", "not", "cpy", "fp_floor", "fp_ceil"), UNARY),
    "fp_round": f"{UNARY} mode",
    "cast": f"dst src shape {STRIDES1} dst_dtype src_dtype mode",
    **{
        f"int_{name}": f"dst src0 src1 shape {STRIDES2} dst_dtype src0_dtype src1_dtype {INTEGER_TAIL}"
        for name in ("add", "sub", "mul")
    },
    **dict.fromkeys(("npu_bcast", "wc_trans", "cw_trans"), PLAIN),
    "fp32_div": f"dst src0 src1 shape {STRIDES2}",
    "fp32_mac": f"dst src0 src1 shape {STRIDES2}",
    "fp32_tunable_div": f"dst src0 src1 shape {STRIDES2} steps",
    "int8_mac": f"dst src0 src1 shape {STRIDES2} src0_dtype src1_dtype left right mode",
}
RENAMED = {"cpy": "copy", "fp32_div": "fp_div", "fp32_tunable_div": "fp_div"}
