"""The element-wise functions of the device API, as a table: they differ only in operation, parameters and operands."""

from __future__ import annotations

from tilewright.targets.bm1684x.capi.forms import Function, Given, Issuer, function
from tilewright.targets.bm1684x.capi.names import constant
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.values.dtypes import I8, I16, I32, U8, U16, U32, Rounding

BITS_OF = {dtype.bytes: dtype for dtype in (U8, U16, U32)}
SIGNED_OF = {dtype.bytes: dtype for dtype in (I8, I16, I32)}
S1, S2 = "dst_stride src_stride", "dst_stride src0_stride src1_stride"
TWO, ONE = "y=dst a=src0 b=src1", "y=dst a=src"
BINARY, CONSTANT = f"dst src0 src1 shape {S2}", f"dst src C shape {S1}"
UNARY, PLAIN = f"dst src shape {S1}", "dst src shape"
SHIFTED = "dst_dtype src_dtype shift_dtype mode"
QUANT = "dst_dtype src_dtype mode"
ARITHMETIC = ("fp_add", "fp_sub", "fp_mul", "fp_diff_abs", "and", "or", "xor")
LIMITS = ("max", "min")
SHIFTS = ("arithmetic", "logical")
SHIFT = f"dst src shift_tensor shape {S1} shift_tensor_stride"
RELATIONS = ("greater", "less", "equal", "greater_equal", "less_equal", "not_equal")
#: Relations that the machine computes as the negation of another one.
NEGATED = {"greater_equal": "less", "less_equal": "greater", "not_equal": "equal"}


def _each(names: tuple[str, ...], call: str, operation: str, parameters: str, operands: str) -> dict[str, Function]:
    """Return C functions by C name, one for each of `names`, which replaces {} in `call` (C name) and `operation`."""
    return {call.format(name): function(parameters, operation.format(name), operands) for name in names}


def _limit(name: str) -> Function:
    """Return the C function max or min. If only src1 has strides, the operands are exchanged, which NaN shows."""
    parameters = f"{BINARY} dtype"
    plain, exchanged = (function(parameters, name, operands) for operands in (TWO, "y=dst a=src1 b=src0"))

    def run(api: Issuer, given: Given) -> None:
        first = given["src0_stride"] is None and given["src1_stride"] is not None
        (exchanged if first else plain).run(api, given)

    return Function(parameters, run)


def _relation(relation: str, parameters: str, operands: str) -> Function:
    return function(parameters, relation, operands)


def _negated(relation: str, parameters: str, operands: str) -> Function:
    """Return the C function of a relation that is the negation of another: two commands.

    The first writes the true value where the other relation holds, else 0; the second exchanges both values.
    """
    other = function(parameters, NEGATED[relation], operands)

    def run(api: Issuer, given: Given) -> None:
        other.run(api, given)
        dtype = BITS_OF[given["dst_dtype"].bytes]
        stride = given["dst_stride"]
        y = api.local(given["dst"], given["shape"].shape, stride, dtype)
        api.issue("xor", {"a": y, "b": Constant(constant(given["true_val"], given["dst_dtype"]).bits, dtype)}, {"y": y})

    return Function(parameters, run)


def _prelu() -> Function:
    """Return the C function prelu: a product with the slope, and a selection of the source where it is positive."""
    parameters = "dst src alpha shape dtype"
    scaled = function(parameters, "fp_mul", f"{ONE} b=alpha")
    chosen = function(parameters, "greater_select", "y=dst a=src b=0 c=src d=dst")

    def run(api: Issuer, given: Given) -> None:
        scaled.run(api, given)
        chosen.run(api, given)

    return Function(parameters, run)


def _abs() -> Function:
    """Return the C function abs. Unsigned numbers are copied."""
    parameters = f"{UNARY} dtype"
    absolute, copied = (function(parameters, name, ONE) for name in ("abs", "copy"))

    def run(api: Issuer, given: Given) -> None:
        dtype = given["dtype"]
        (absolute if dtype.is_float or dtype.signed else copied).run(api, given)

    return Function(parameters, run)


def _neg() -> Function:
    """Return the C function neg: 0 minus the source."""
    parameters = f"{UNARY} dtype"
    real = function(parameters, "fp_sub", "y=dst a=0 b=src")
    whole = function(parameters, "int_sub", "y=dst a=0 b=src")

    def run(api: Issuer, given: Given) -> None:
        dtype = given["dtype"]
        if dtype.is_float:
            real.run(api, given)
        else:  # differences are signed
            whole.run(api, {**given, "dtype": SIGNED_OF[dtype.bytes]})

    return Function(parameters, run)


def _cast() -> Function:
    """Return the C function cast. To the source's own type it is a copy, which keeps subnormals."""
    parameters = f"{UNARY} dst_dtype src_dtype mode"
    converted = function(parameters, "cast", "y=dst x=src")
    copied = function(parameters, "copy", ONE)

    def run(api: Issuer, given: Given) -> None:
        (copied if given["dst_dtype"] is given["src_dtype"] else converted).run(api, given)

    return Function(parameters, run)


def _integer(name: str) -> dict[str, Function]:
    """Return the C functions, by C name, that issue the operation int_`name` (int_add, int_sub or int_mul).

    The shift is one number, or, in functions with `pcs` in their name, one number per channel.
    """
    found, own = {}, f"int_{name}"
    for kind, before, after, shift in (("int_", "", "shift ", "shift"), ("int_pcs_", "shift_addr ", "", "shift_addr")):
        tail = f"{after}mode saturation"
        two = f"dst src0 src1 {before}shape {S2} dst_dtype src0_dtype src1_dtype {tail}"
        one = f"dst src {before}C shape {S1} dst_dtype src_dtype C_dtype {tail}"
        found[f"{kind}{name}"] = function(two, own, f"{TWO} shift={shift}:i8")
        found[f"{kind}{name}_C"] = function(one, own, f"{ONE} b=C shift={shift}:i8")
        if name == "sub":
            found[f"{kind}C_sub"] = function(one, own, f"y=dst a=C b=src shift={shift}:i8")
    return found


def _quantisation(kind: str, words: str, reals: str, tail: str, result: str) -> dict[str, Function]:
    """Return the C functions, by C name, of requantisation (`kind` is "re") or dequantisation ("de").

    Some scale by a multiplier and a shift (their parameters are `words`), others by a float (parameters `reals`). These
    parameters are numbers, or a table with an entry per channel.
    """
    integer, real = f"int_{kind}quant", f"fp32_{kind}quant"
    found = {}
    for own, typed, more, ends in ((integer, words, QUANT, "y=dst x=src"), (real, reals, tail, result)):
        pairs = [word.split(":") for word in typed.split()]
        numbers = " ".join(f"{name}={name}:{dtype}" for name, dtype in pairs)
        tables = " ".join(  # one word per parameter
            f"{name}=quant_addr+{4 * number}:{dtype.replace('i8', 'i32')}" for number, (name, dtype) in enumerate(pairs)
        )
        listed = " ".join(name for name, _ in pairs)
        found[own] = function(f"{PLAIN} {listed} {more}", own, f"{ends} {numbers}")
        found[own.replace("_", "_pc_")] = function(f"dst src quant_addr shape {more}", own, f"{ends} {tables}")
    return found


SELECTS, CHOICES = "src0 src1 src2 src3 shape", "a=src0:{0} b=src1:{0} c=src2:{1} d=src3:{1}"
SELECTED = "y=dst:dst_dtype " + CHOICES.format("src0_src1_dtype", "dst_dtype")
BOTH_SELECTED = "y0=dst0:dst0_dtype y=dst1:dst1_dtype " + CHOICES.format("dst0_dtype", "dst1_dtype")
EXTREMES = ("maximum_greater_select", "minimum_less_select")
#: Functions by name, without the prefix tpu_bdc_.
ELEMENTWISE: dict[str, Function] = {
    **_each(ARITHMETIC, "{}", "{}", f"{BINARY} dtype", TWO),
    **_each((*ARITHMETIC, *LIMITS), "{}_C", "{}", f"{CONSTANT} dtype", f"{ONE} b=C"),
    **{name: _limit(name) for name in LIMITS},
    # the machine ignores the shift
    **_each(LIMITS, "int_{}_C", "{}", f"{CONSTANT} dtype shift mode", f"{ONE} b=C"),
    "fp_C_sub": function(f"{CONSTANT} dtype", "fp_sub", "y=dst a=C b=src"),
    "abs": _abs(),
    "neg": _neg(),
    "set_C": function("dst C shape dst_stride dtype", "copy", "y=dst a=C"),
    "cpy": function(f"{UNARY} dtype", "copy", ONE),
    "cpy_cross_npu": function(f"{PLAIN} dtype", "npu_bcast", "y=dst x=src"),
    "not": function(f"{UNARY} dtype", "xor", f"{ONE} b=-1"),
    "relu": function(f"{UNARY} dtype", "max", f"{ONE} b=0"),
    "prelu": _prelu(),
    "fp_floor": function(f"{UNARY} dtype", "fp_round", "y=dst x=src", {"mode": Rounding.DOWN}),
    "fp_ceil": function(f"{UNARY} dtype", "fp_round", "y=dst x=src", {"mode": Rounding.UP}),
    "fp_round": function(f"{UNARY} dtype mode", "fp_round", "y=dst x=src"),
    "cast": _cast(),
    "npu_bcast": function(f"{PLAIN} dtype", "npu_bcast", "y=dst x=src/c1"),
    "wc_trans": function(f"{PLAIN} dtype", "wc_trans", "y=dst x=src/cw"),
    "cw_trans": function(f"{PLAIN} dtype", "cw_trans", "y=dst@T x=src/cw"),
    **{key: value for name in ("add", "sub", "mul") for key, value in _integer(name).items()},
    "int8_mac": function(
        f"{BINARY} src0_dtype src1_dtype lshift rshift mode", "int8_mac", "y=dst:i16 a=src0 b=src1 acc=dst:i16"
    ),
    "int8_mac_C": function(
        f"{CONSTANT} src_dtype C_dtype lshift rshift mode", "int8_mac", "y=dst:i16 a=src b=C acc=dst:i16"
    ),
    "fp32_mac": function(BINARY, "fp_mac", f"{TWO} acc=dst"),
    "fp32_mac_C": function(CONSTANT, "fp_mac", f"{ONE} b=C acc=dst"),
    **{
        f"{kind}_{tuned}{name}": function(parameters + typed + tail, "fp_div", operands)
        for kind, typed in (("fp32", ""), ("fp", " dtype"))
        for tuned, tail in (("", ""), ("tunable_", " num_iter"))
        for name, parameters, operands in (
            ("div", BINARY, TWO),
            ("div_C", CONSTANT, f"{ONE} b=C"),
            ("C_div", CONSTANT, "y=dst a=C b=src"),
            ("reciprocal", UNARY, "y=dst a=1.0 b=src"),
        )
    },
    **_each(SHIFTS, "{}_shift", "{}_shift", f"{SHIFT} {SHIFTED}", f"{ONE} shift=shift_tensor:i8"),
    **_each(SHIFTS, "{}_shift_C", "{}_shift", f"{CONSTANT} {QUANT}", f"{ONE} shift=C:i8"),
    **{
        name.format(relation): function_of(relation, parameters, operands)
        for name, parameters, operands in (
            ("{}", f"dst src0 src1 true_val shape {S2} dst_dtype src_dtype", f"{TWO} c=true_val"),
            ("{}_C", f"dst src C true_val shape {S1} dst_dtype src_dtype", f"{ONE} b=C c=true_val"),
        )
        for relation in RELATIONS
        for function_of in (_negated if relation in NEGATED else _relation,)
    },
    **_each(RELATIONS[:3], "{}_select", "{}_select", f"dst {SELECTS} src0_src1_dtype dst_dtype", SELECTED),
    **_each(EXTREMES, "{}", "{}", f"dst0 dst1 {SELECTS} dst0_dtype dst1_dtype", BOTH_SELECTED),
    "fp_square": function(f"{UNARY} dtype", "fp_mul", "y=dst a=src b=src"),
    "int_square": function(
        f"{UNARY} dst_dtype src_dtype shift mode saturation", "int_mul", "y=dst a=src b=src shift=shift:i8"
    ),
    **{
        f"fp_{name}_{kind}_sqr": function(
            f"dst src {parameter} shape dtype", f"fp_{name}_square", f"{ONE} b={parameter}"
        )
        for name in ("add", "sub")
        for kind, parameter in (("C", "C"), ("bias", "bias_addr"))
    },
    "fp_exponent_part": function(f"{PLAIN} dst_dtype src_dtype", "fp_exponent", "y=dst x=src"),
    "fp_bias": function("dst src bias_addr shape dtype", "fp_mac", f"{ONE} b=1.0 acc=bias_addr"),
    "fp_scale": function("dst src scale_addr shape dtype", "fp_mac", f"{ONE} b=scale_addr acc=0.0"),
    "fp_scale_bias": function(
        "dst src scale_addr bias_addr shape dtype", "fp_mac", f"{ONE} b=scale_addr acc=bias_addr"
    ),
    "fp_scale_bias_C": function("dst src scale bias shape dtype", "fp_mac", f"{ONE} b=scale acc=bias"),
    **_quantisation(
        *("re", "multiplier:i32 shift:i8 offset:i32", "scale:f32 offset:f32", f"{QUANT} src_mode", "y=dst x=src")
    ),
    **_quantisation(
        *("de", "offset:i32 multiplier:i32 shift:i8", "offset:i32 scale:f32", "src_dtype mode", "y=dst:f32 x=src")
    ),
}
