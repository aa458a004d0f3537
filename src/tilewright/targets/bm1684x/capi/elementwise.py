"""The element-wise functions of the device API: tables from each function's name to its operation and operands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilewright.targets.bm1684x.capi.forms import (
    Args,
    Functions,
    Issue,
    Issuer,
    MatrixPlace,
    Place,
    Run,
    Source,
    channel,
    either,
    issue,
    one_channel,
    per_channel,
    sequence,
    transposed_cw,
)
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.isa.operations.conversions import WORDS
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I16, I32, U8, U16, U32, Rounding

SIGNED_OF = {dtype.bytes: dtype for dtype in (I8, I16, I32)}
#: The operands a and b of a command: two tensors, a tensor and a number, or a number and a tensor.
PAIR: dict[str, Source] = {"a": "src0", "b": "src1"}
WITH_NUMBER: dict[str, Source] = {"a": "src", "b": "C"}
FROM_NUMBER: dict[str, Source] = {"a": "C", "b": "src"}
ARITHMETIC = ("fp_add", "fp_sub", "fp_mul", "fp_diff_abs", "and", "or", "xor")
RELATIONS = ("greater", "less", "equal", "greater_equal", "less_equal", "not_equal")
#: For each relation that the machine does not have, the opposite relation, which the machine has.
NEGATED = {"greater_equal": "less", "less_equal": "greater", "not_equal": "equal"}
RESULT = Place("dst")
ACCUMULATED = Place("dst", I16)
TRANSPOSED = Place("src", shape=transposed_cw)


#: For each width in bytes, the unsigned type.
BITS_OF = {dtype.bytes: dtype for dtype in (U8, U16, U32)}


def related(name: str, y: Place, **operands: Source) -> Run:
    """Return a function that compares `operands` by the relation `name`, and writes to `y`. `name` may begin with vc_.

    The machine has three relations. The three negated relations need two commands. The first command writes the true
    value where the opposite relation is true, and 0 elsewhere. The second command is an exclusive or with the true
    value: it exchanges the true value and 0.
    """
    relation = name.removeprefix("vc_")
    operation = name.replace(relation, NEGATED.get(relation, relation))
    first = issue(operation, y=y, **operands, c=Place("true_val", "dst_dtype"))

    def negated(api: Issuer, call: Args) -> None:
        command = first(api, call)
        y = command.results["y"].storage
        true = command.operands["c"]
        assert isinstance(true, Constant)
        bits = BITS_OF[y.dtype.bytes]
        both = replace(y, dtype=bits)
        api.issue("xor", {"a": both, "b": Constant(true.bits, bits)}, {"y": both})

    return negated if relation in NEGATED else first


def to_dst(operation: str, **sources: Any) -> Issue:
    return issue(operation, y="dst", **sources)


def _exchanges(call: Args) -> bool:
    # The vendor's library swaps the operands if only src1 has strides.
    return call["src0_stride"] is None and call["src1_stride"] is not None


def is_signed(call: Args) -> bool:
    return call["dtype"].is_float or call["dtype"].signed


def _copies(call: Args) -> bool:
    # A conversion between equal types must be a copy, because a copy keeps subnormals.
    return call["dst_dtype"] is call["src_dtype"]


def _negative(api: Issuer, call: Args) -> None:
    dtype = call["dtype"]
    if not dtype.is_float:
        call = {**call, "dtype": SIGNED_OF[dtype.bytes]}
    to_dst("fp_sub" if dtype.is_float else "int_sub", a=0, b="src")(api, call)


def _integer(name: str) -> Functions:
    functions: Functions = {}
    # Functions with `pcs` in their name have one shift per channel, all others a single shift.
    for kind, shift in (("int_", Place("shift", I8)), ("int_pcs_", per_channel("shift_addr", I8))):
        functions[f"{kind}{name}"] = to_dst(f"int_{name}", **PAIR, shift=shift)
        functions[f"{kind}{name}_C"] = to_dst(f"int_{name}", **WITH_NUMBER, shift=shift)
        if name == "sub":
            functions[f"{kind}C_sub"] = to_dst("int_sub", **FROM_NUMBER, shift=shift)
    return functions


def _quantisation(operation: str, y: Source = "dst") -> Functions:
    named: dict[str, Source] = {}
    words: dict[str, Source] = {}
    for at, (operand, dtype) in enumerate(WORDS[operation].items()):
        # The first function has numbers as parameters; the second has a table with one word per parameter and channel.
        named[operand] = Place(operand, dtype)
        words[operand] = Place("quant_addr", I32 if dtype is I8 else dtype, channel, beside=4 * at)
    return {
        operation: issue(operation, y=y, x="src", **named),
        operation.replace("_", "_pc_"): issue(operation, y=y, x="src", **words),
    }


def _selected(name: str, compared: str, chosen: str, **results: Source) -> Run:
    kinds = (compared, compared, chosen, chosen)
    operands = {operand: Place(f"src{number}", kinds[number]) for number, operand in enumerate("abcd")}
    return issue(name, **results, **operands)


BIAS = per_channel("bias_addr")
SCALE = per_channel("scale_addr")
#: Functions by name, without the prefix tpu_bdc_.
ELEMENTWISE: Functions = {
    **{name: to_dst(name, **PAIR) for name in ARITHMETIC},
    **{f"{name}_C": to_dst(name, **WITH_NUMBER) for name in (*ARITHMETIC, "max", "min")},
    **{name: either(_exchanges, to_dst(name, a="src1", b="src0"), to_dst(name, **PAIR)) for name in ("max", "min")},
    **{f"int_{name}_C": to_dst(name, **WITH_NUMBER) for name in ("max", "min")},  # the machine ignores the shift
    "fp_C_sub": to_dst("fp_sub", **FROM_NUMBER),
    "abs": either(is_signed, to_dst("abs", a="src"), to_dst("copy", a="src")),
    "neg": _negative,
    "set_C": to_dst("copy", a="C"),
    "cpy": to_dst("copy", a="src"),
    "cpy_cross_npu": to_dst("npu_bcast", x="src"),
    "not": to_dst("xor", a="src", b=-1),
    "relu": to_dst("max", a="src", b=0),
    # First multiply by the slope, then restore the source where it is positive.
    "prelu": sequence(to_dst("fp_mul", a="src", b="alpha"), to_dst("greater_select", a="src", b=0, c="src", d="dst")),
    "fp_floor": to_dst("fp_round", x="src", mode=Rounding.DOWN),
    "fp_ceil": to_dst("fp_round", x="src", mode=Rounding.UP),
    "fp_round": to_dst("fp_round", x="src"),
    "cast": either(_copies, to_dst("copy", a="src"), to_dst("cast", x="src")),
    "npu_bcast": to_dst("npu_bcast", x=Place("src", shape=one_channel)),
    "wc_trans": to_dst("wc_trans", x=TRANSPOSED),
    "cw_trans": issue("cw_trans", y=Place("dst", layout=layout.line), x=TRANSPOSED),
    **{key: value for name in ("add", "sub", "mul") for key, value in _integer(name).items()},
    "int8_mac": issue("int8_mac", y=ACCUMULATED, **PAIR, acc=ACCUMULATED),
    "int8_mac_C": issue("int8_mac", y=ACCUMULATED, **WITH_NUMBER, acc=ACCUMULATED),
    "fp32_mac": to_dst("fp_mac", **PAIR, acc="dst"),
    "fp32_mac_C": to_dst("fp_mac", **WITH_NUMBER, acc="dst"),
    **{
        f"{kind}{name}": to_dst("fp_div", **operands)
        for kind in ("fp32_", "fp32_tunable_", "fp_", "fp_tunable_")
        for name, operands in (
            ("div", PAIR),
            ("div_C", WITH_NUMBER),
            ("C_div", FROM_NUMBER),
            ("reciprocal", {"a": 1.0, "b": "src"}),
        )
    },
    **{
        f"{name}_shift": to_dst(f"{name}_shift", a="src", shift=Place("shift_tensor", I8))
        for name in ("arithmetic", "logical")
    },
    **{f"{name}_shift_C": to_dst(f"{name}_shift", a="src", shift=Place("C", I8)) for name in ("arithmetic", "logical")},
    **{name: related(name, RESULT, **PAIR) for name in RELATIONS},
    **{f"{name}_C": related(name, RESULT, **WITH_NUMBER) for name in RELATIONS},
    **{
        f"{name}_select": _selected(f"{name}_select", "src0_src1_dtype", "dst_dtype", y=Place("dst", "dst_dtype"))
        for name in ("greater", "less", "equal")
    },
    **{
        name: _selected(name, "dst0_dtype", "dst1_dtype", y0=Place("dst0", "dst0_dtype"), y=Place("dst1", "dst1_dtype"))
        for name in ("maximum_greater_select", "minimum_less_select")
    },
    "fp_square": to_dst("fp_mul", a="src", b="src"),
    "int_square": to_dst("int_mul", a="src", b="src", shift=Place("shift", I8)),
    "fp_exponent_part": to_dst("fp_exponent", x="src"),
    "fp_bias": to_dst("fp_mac", a="src", b=1.0, acc=BIAS),
    "fp_scale": to_dst("fp_mac", a="src", b=SCALE, acc=0.0),
    "fp_scale_bias": to_dst("fp_mac", a="src", b=SCALE, acc=BIAS),
    "fp_scale_bias_C": to_dst("fp_mac", a="src", b="scale", acc="bias"),
    **{f"fp_{name}_C_sqr": to_dst(f"fp_{name}_square", **WITH_NUMBER) for name in ("add", "sub")},
    **{f"fp_{name}_bias_sqr": to_dst(f"fp_{name}_square", a="src", b=BIAS) for name in ("add", "sub")},
    **_quantisation("int_requant"),
    **_quantisation("fp32_requant"),
    **_quantisation("int_dequant"),
    **_quantisation("fp32_dequant", Place("dst", F32)),
}


def _columns(call: Args) -> int:
    length = call["src1_len"]
    width = call["src1_len_per_channel"]
    return -(-length // width) * width


A = MatrixPlace("src0", columns="src0_len", width="src0_len_per_channel")
B = MatrixPlace("src1", columns=_columns, width="src1_len_per_channel")
Y = MatrixPlace("dst", rows="src0_len", columns=_columns, width="src1_len_per_channel")


def _pairs(operation: str) -> Run:
    return issue(operation, y=Y, a=A, b=B)


#: Functions by name, without the prefix tpu_bdc_.
VECTORS: Functions = {
    **{f"{kind}_vc_{name}": _pairs(f"vc_{kind}_{name}") for kind in ("fp", "int") for name in ("add", "sub", "mul")},
    **{f"vc_{name}": _pairs(f"vc_{name}") for name in ("max", "min", "and", "or", "xor")},
    **{f"vc_{name}": related(f"vc_{name}", Y, a=A, b=B) for name in RELATIONS},
    "fp32_vc_div": _pairs("vc_fp_div"),
}
