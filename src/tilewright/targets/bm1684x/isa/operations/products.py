"""Matrix products (section 6.3 of the specification), and operations on all pairs of elements of two vectors.

The module defines their meaning, and their encoding in the formats MM, MM2 and VC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.isa import rules
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.operation import (
    OPERATIONS,
    TIU,
    Flow,
    Meaning,
    Signature,
    Values,
    attribute,
    define,
)
from tilewright.targets.bm1684x.isa.operations import conversions, convolutions, elementwise
from tilewright.targets.bm1684x.isa.parts import (
    FLOAT,
    INTEGER,
    Fields,
    Instruction,
    Local,
    Number,
    OptionalPart,
    Part,
    SharedOperand,
    Sizes,
    Type,
    located,
    of_kind,
    one_byte,
    one_field,
)
from tilewright.targets.bm1684x.isa.stream import EncodedCommand
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape, Stride
from tilewright.targets.bm1684x.layouts.tensor import Matrix
from tilewright.targets.bm1684x.values import conv
from tilewright.targets.bm1684x.values.dtypes import DTYPES, F32, I8, I32, U32, DType, Rounding
from tilewright.targets.bm1684x.values.floats import narrow, saturate, shift, wrap


def _sides(v: Values) -> tuple[Array, Array]:
    left, right = _factor(v, "L"), _factor(v, "R")
    if "zeros" in v.data:
        right = right.astype(np.int32) - _zeros(v)
    elif "zero" in v.data:
        right = right.astype(np.int32) - v["zero"]
    return sides(left, right, v.attributes)


def _zeros(v: Values) -> Array:
    # `zeros` has one zero point per row of R, or one per column. In the second case, each lane has a copy of all N zero
    # points.
    zeros = v["zeros"].astype(np.int32)  # (1, rows of R, 1, N), or (1, N, 1, 1)
    if v.attribute("both_transposed"):
        return zeros.reshape(-1, 1)
    # Row i of R lies in lane i. With a transposed R, row i belongs to column i of the product, so lane i uses zero
    # point i of its own copy: the diagonal.
    return np.diagonal(zeros[0, :, 0])[:, None] if v.attribute("right_transposed") else zeros[0, :, 0]


def _factor(v: Values, name: str) -> Array:
    factor = v[name]
    if factor.ndim:
        return factor
    # A number is broadcast. The attribute `depth` gives K, the number of terms per sum.
    rows, columns = v.shapes["y"]
    depth = v.attribute("depth")
    if v.attribute("both_transposed"):
        return np.broadcast_to(factor, (depth, columns) if name == "L" else (rows, depth))
    if name == "L":
        return np.broadcast_to(factor, (rows, depth))
    return np.broadcast_to(factor, (columns, depth) if v.attribute("right_transposed") else (depth, columns))


def sides(left: Array, right: Array, attributes: Mapping[str, Any]) -> tuple[Array, Array]:
    """Return the two factors of a matrix product, (M, K) and (K, N), from the operands L (left) and R (right).

    With `both_transposed`, the operands change places: y (N, M) = R (N, K) times L (K, M).
    """
    if attributes.get("both_transposed"):
        return right, left
    if attributes.get("left_transposed"):
        left = left.T
    return left, (right.T if attributes.get("right_transposed") else right)


def float_matmul(v: Values) -> Array:
    """Return the matrix product of L (M, K) and R (K, N), plus optional f32 bias (1, N) and acc."""
    left, right = _sides(v)
    m, k = left.shape
    n = right.shape[1]
    dtype = v.types["L"]
    # The machine adds 16-bit float products in groups of 32, so zeros extend the factors to whole groups. It adds f32
    # products one by one.
    length = k if dtype is F32 else min(k, conv.GROUP)
    spare = -k % length
    rows = np.pad(left, ((0, 0), (0, spare))).reshape(m, -1, length)
    columns = np.pad(right, ((0, spare), (0, 0))).reshape(-1, length, n)
    terms = [np.broadcast_to(term, (m, n)) for term in convolutions.first_terms(v)]
    return narrow(conv.dot(rows, columns, dtype, terms), v.types["y"])


def integer_matmul(v: Values) -> Array:
    """Return `round_half_up((product + bias) >> right)`, clamped. `product` is L times R, and `bias` has 16 bits."""
    total = conv.integer_matmul(*_sides(v)).astype(np.int64)
    return conv.scaled(convolutions.plus(total, v, "bias"), v.types["y"], v.attribute("right"))


def wide_matmul(v: Values) -> Array:
    """Return the matrix product of L and `R - zero` (or `R - zeros`), plus acc, in 32-bit integers."""
    return wrap(convolutions.plus(conv.integer_matmul(*_sides(v)).astype(np.int64), v, "acc"), v.types["y"])


def shifted_matmul(v: Values) -> Array:
    """Return the matrix product of the integers L and R, in 32-bit integers.

    The sums for 32-bit factors have 64 bits, and are then shifted by `shift` bits and clamped. The sums for shorter
    factors have 32 bits, and are not shifted.
    """
    left, right = _sides(v)
    signed = v.types["y"].signed
    kind = np.int64 if signed else np.uint64  # an unsigned sum may use bit 63
    total = left.astype(kind) @ right.astype(kind)
    if v.types["R"].bytes < v.types["y"].bytes:
        return wrap(total, v.types["y"])
    return saturate(shift(total, v["shift"], v.mode), v.types["y"])


def _equal_widths(signature: Signature) -> str:
    left, right = signature.types["L"], signature.types["R"]
    return "" if left.bits == right.bits else f"L is {left} and R is {right}; give factors of the same width"


factors = rules.eight_bits("L", "R")
signed = rules.signed_as_its_sources
product = partial(define, TIU, flow=Flow.PRODUCT, factor="L")
matrices: Mapping[str, Any] = {"places": (*rules.COMPUTE, rules.matrices)}
by_rows = (*rules.COMPUTE, rules.matrices, rules.short_factors)
product("fp_mm", "L R bias acc", float_matmul, rules.floats("L", "R"), *convolutions.accumulates, places=by_rows)
product(
    "int8_mm",
    "L R bias",
    integer_matmul,
    *factors,
    convolutions.bias16,
    convolutions.short,
    signed("L", "R", "bias"),
    **matrices,
)
product("int8_zp_mm", "L R zero zeros acc", wide_matmul, *factors, *convolutions.wide, **convolutions.zero, **matrices)
whole = (rules.integers("L", "R"), _equal_widths, rules.of("shift", I8), rules.of("y", I32, U32), signed("L", "R"))
product("int_mm", "L R shift", shifted_matmul, *whole, numbers={"shift": I8}, **matrices)


@dataclass(frozen=True)
class SpreadMatrix:
    """The encoding of a matrix with columns spread over lanes.

    `shape` returns (rows, columns) of an encoded command. The field `width` gives the number of columns per channel,
    and the field `last` gives the number of columns of the last channel. The fields `noted` give the sizes of the
    tensor that stores the matrix.
    """

    operand: str
    prefix: str
    type: Type
    shape: Callable[[EncodedCommand], tuple[int, int]]
    width: str
    noted: str = "1 1 1 1"
    last: str = ""

    def read(self, encoded: EncodedCommand, config: Config) -> Mapping[str, Any]:
        dtype = self.type.read(encoded)
        width = encoded[self.width]
        if not width:  # the command does not have this operand
            return {}
        rows, columns = self.shape(encoded)
        stored = located(encoded[f"{self.prefix}_addr"], Shape(rows, -(-columns // width), 1, width), dtype, config)
        return {self.operand: Matrix(stored, columns)}

    def write(self, command: Command) -> Fields:
        reason = f"{self.operand} is not a matrix with columns spread over lanes"
        matrix = of_kind(
            command, self.operand, Matrix, reason, "give tpu.matrix(..), or rows() of all factors and the result"
        )
        stored = matrix.storage
        fields = {f"{self.prefix}_addr": stored.address - LOCAL_BASE} | self.type.write(matrix.dtype)
        if self.last:
            fields[self.last] = matrix.columns - stored.shape.w * (stored.shape.c - 1)
        return fields | Sizes(self.noted).write(stored.shape)


@dataclass(frozen=True)
class NumberForLeft:
    """The encoding of a number in the place of the left factor, and of the number of terms per sum (`depth`)."""

    operand = "L"
    type = convolutions.SOURCE

    def read(self, encoded: EncodedCommand, config: Config) -> Mapping[str, Any]:
        return {**NUMBER_LEFT.read(encoded, config), "depth": _left(encoded)[1]}

    def write(self, command: Command) -> Fields:
        depth = attribute(command.attributes, "depth")
        # A number is not a stored matrix, but the command still encodes the number of terms as channels and columns of
        # a matrix. Any number of columns per channel would be correct. The engine reads `width` columns per cycle.
        width = max(1, command.results["y"].config.eu_bytes // command.types["L"].bytes)
        channels = -(-depth // width)
        sizes = {"opd0_n": command.results["y"].shape[0], "opd0_c": channels, "opd0_w": width}
        return sizes | {"opd1_w": depth - width * (channels - 1)} | NUMBER_LEFT.write(command)


NUMBER_LEFT = Number("L", "opd0_addr", "opd0_const", convolutions.SOURCE)


def _columns(encoded: EncodedCommand) -> int:
    return encoded["res0_c"] * encoded["res0_w"]


def _length(encoded: EncodedCommand) -> int:
    return encoded["opd0_w"] * (encoded["opd0_c"] - 1) + encoded["opd1_w"]


def _left(encoded: EncodedCommand) -> tuple[int, int]:
    return encoded["opd0_n"], _length(encoded)


def _rows_and_depth(encoded: EncodedCommand) -> tuple[int, int]:
    stored = _left(encoded)
    return stored[::-1] if encoded["left_tran"] else stored


def _one_row(operand: str, of: Type) -> SpreadMatrix:
    return SpreadMatrix(operand, "opd2", of, lambda c: (1, _columns(c)), "res0_w")


def _given(encoded: EncodedCommand) -> bool:
    return not encoded["opd2_const"]


#: The types of results. WIDE is always signed, and UNSIGNED never. ANY_SIGNED is signed if a factor or the bias is
#: signed, and BY_FACTORS is signed if a factor is signed.
WIDE = Type("res0_prec", 1)
ANY_SIGNED = Type("res0_prec", ("opd0_sign", "opd1_sign", "opd2_sign"))
BY_FACTORS = Type("res0_prec", ("opd0_sign", "opd1_sign"))
UNSIGNED = Type("res0_prec", ())
LEFT = SpreadMatrix("L", "opd0", convolutions.SOURCE, _left, "opd0_w", "opd0_n opd0_c 1 opd0_w", "opd1_w")
RIGHT_SIDE = SpreadMatrix("R", "opd1", convolutions.WEIGHT, lambda c: (_rows_and_depth(c)[1], _columns(c)), "res0_w")
BIAS = OptionalPart(_one_row("bias", Type(0, always=F32)), convolutions.NOTHING, is_present=_given)
SHORT_BIAS = OptionalPart(_one_row("bias", Type(3, "opd2_sign")), convolutions.NOTHING, is_present=_given)
#: The shift of 32-bit sums: one shift per column, or a single number.
SHIFTS = _one_row("shift", Type(0, always=I8))
SHIFT_FORMS: tuple[Part, ...] = (SHIFTS, Number("shift", "opd2_addr", "opd2_const", SHIFTS.type))


RIGHT = one_byte("right", "opd3_addr", 1)
MODE = one_field("mode", "opd2_n_str", Rounding)
#: Functions of the format MM: plain products, 8-bit products that are shifted and clamped, and the same with a ReLU.
PLAIN = 1
SHIFTED = 2
SHIFTED_RELU = 3


def _product(function: int, operation: str, of: str, result: Type, *parts: Part, **more: Any) -> Iterator[Instruction]:
    y = SpreadMatrix("y", "res0", result, lambda c: (_rows_and_depth(c)[0], _columns(c)), "res0_w", "1 res0_c 1 res0_w")
    sums = (SharedOperand("acc", y, "res_add"),) if operation in ("fp_mm", "int8_zp_mm") else ()
    chosen = {"tsk_eu_typ": function, **more.pop("chosen", {})}
    fixed = more.pop("fixed", {})
    transposed = one_field("left_transposed", "left_tran", bool)
    matrix = (RIGHT_SIDE, LEFT, transposed, *parts, *sums, y)
    yield Instruction("MM", operation, matrix, {**chosen, "opd0_const": 0}, of, fixed=fixed, **more)
    number = (RIGHT_SIDE, NumberForLeft(), *parts, *sums, y)
    chosen |= {"opd0_const": 1, "left_tran": 0}
    yield Instruction("MM", operation, number, chosen, of, fixed={**fixed, "left_transposed": False}, **more)


#: The codes of integer types that are wider than 8 bits.
WIDER = sorted({dtype.precision for dtype in DTYPES.values() if not dtype.is_float and dtype.bits > I8.bits})
PRODUCTS = (
    *_product(PLAIN, "fp_mm", FLOAT, WIDE, BIAS),
    *_product(PLAIN, "int8_zp_mm", INTEGER, WIDE, chosen={"opd0_prec": I8.precision}, written={"opd2_const": 1}),
    *(
        instruction
        for code in WIDER
        for is_number, shift in enumerate(SHIFT_FORMS)
        for instruction in _product(
            *(PLAIN, "int_mm", INTEGER, BY_FACTORS, shift, MODE),
            chosen={"opd0_prec": code, "opd2_const": is_number},
            written={"opd2_sign": 1},
            takes=lambda command, code=code: command.types["L"].precision == code,
        )
    ),
    *_product(SHIFTED, "int8_mm", INTEGER, ANY_SIGNED, SHORT_BIAS, RIGHT, fixed={"relu": False}),
    *_product(SHIFTED_RELU, "int8_mm", INTEGER, UNSIGNED, SHORT_BIAS, RIGHT, fixed={"relu": True}),
)

#: The functions of the format MM2, and for each function the fields with the sizes of L. The first letter is for L and
#: the second for R: N means plain, T means transposed. TT computes R times L.
NN = 4
NT = 5
TT = 6
LEFTS = {NN: "1 res0_c 1 opd1_c", NT: "1 res0_c 1 opd1_w", TT: "1 opd1_w 1 res0_w"}
#: For each function, the field with the number of terms per sum.
DEPTHS = {NN: "opd1_c", NT: "opd1_w", TT: "opd1_w"}


def _each_lane(shape: Shape, dtype: DType, start: int, config: Config) -> Stride:
    return Stride(0, 0, shape.w, 1)


def _by_rows(function: int, operation: str, of: str, constant: str = "", zeros: bool = False) -> Instruction:
    rows = partial(Local, layout=layout.aligned, by_rows=True)
    left: Part = rows("L", "opd0", convolutions.SOURCE, Sizes(LEFTS[function]))
    right: Part = rows("R", "opd1", convolutions.WEIGHT, Sizes("1 opd1_c 1 opd1_w"))
    y = rows("y", "res0", WIDE, Sizes("1 res0_c 1 res0_w"))
    factors: tuple[Part, ...] = (left, right)
    if constant:
        number = NUMBER_LEFT if constant == "L" else Number("R", "opd1_addr", "opd1_const", convolutions.WEIGHT)
        factors = (number, right if constant == "L" else left, one_field("depth", DEPTHS[function]))
    # The machine needs the size of R even if R is a number. The decoder of this model ignores the size.
    written: dict[str, Any] = {}
    if constant == "R" and not (zeros and function == NT):  # zero points have R's size
        across = 0 if function == TT else 1
        written["opd1_w" if function == NN else "opd1_c"] = lambda command: command.results["y"].shape[across]
    parts: tuple[Part, ...] = (*factors, SharedOperand("acc", y, "res_add"))
    chosen = {"tsk_eu_typ": function, "opd0_const": int(constant == "L"), "opd1_const": int(constant == "R")}
    fixed = {"left_transposed": False, "right_transposed": function == NT, "both_transposed": function == TT}
    more: dict[str, Any] = {"fixed": fixed, "written": written, "takes": partial(_has, constant, zeros)}
    if of == INTEGER:
        chosen["opd2_const"] = int(not zeros)
        row, column = (Sizes("1 opd1_c 1 res0_w"), _each_lane), (Sizes("1 res0_c 1 1"), layout.compact)
        table = Local("zeros", "opd2", convolutions.WEIGHT, *(column if function == TT else row))
        parts += (
            table
            if zeros
            else OptionalPart(Number("zero", "opd2_addr", "opd2_const", convolutions.WEIGHT), convolutions.NOTHING),
        )
    return Instruction("MM2", operation, (*parts, y), chosen, of, **more)


def _has(constant: str, zeros: bool, command: Command) -> bool:
    # Only the factor `constant` may be a number ("": no factor).
    numbers = "".join(name for name in "LR" if isinstance(command.operands.get(name), Constant))
    return numbers == constant and ("zeros" in command.operands) == zeros


BY_ROWS = tuple(
    _by_rows(function, operation, of, constant, zeros)
    for function in (NN, NT, TT)
    for operation, of, zeros in (
        ("fp_mm", FLOAT, False),
        ("int8_zp_mm", INTEGER, True),
        ("int8_zp_mm", INTEGER, False),
    )
    for constant in ("", "L", "R")
)


def _outer(meaning: Meaning) -> Meaning:
    def all_pairs(v: Values) -> Array | Mapping[str, Array]:
        pairs = {"a": v["a"].reshape(-1, 1), "b": v["b"].reshape(1, -1)}
        return meaning(replace(v, data={**v.data, **pairs}))

    return all_pairs


A = SpreadMatrix("a", "opd0", elementwise.X.type, lambda c: (1, _length(c)), "opd0_w", "1 opd0_c 1 opd0_w", "opd1_w")
B = SpreadMatrix("b", "opd1", elementwise.COMPARED.type, lambda c: (1, _columns(c)), "res0_w")
CHOSEN = Type("res0_prec", 0)
TRUE = Number("c", "opd2_addr", "", CHOSEN)
#: The element-wise operations that also exist for pairs, with the same function numbers.
PAIRED = (
    *(f"{kind}_{name}" for kind in ("fp", "int") for name in ("add", "sub", "mul")),
    *("max", "min", "and", "or", "xor", "greater", "equal", "less", "fp_div"),
)


def _paired(single: Instruction) -> Instruction:
    parts: tuple[Part, ...] = (elementwise.STEPS,) if elementwise.STEPS in single.parts else ()
    last = single.parts[-1]
    assert isinstance(last, Local)
    result = last.type
    if single.operation_name in elementwise.MACHINE_RELATIONS:
        parts = (TRUE,)
        result = CHOSEN
    y = SpreadMatrix("y", "res0", result, lambda c: (_length(c), _columns(c)), "res0_w", "1 res0_c 1 res0_w")
    return Instruction(
        "VC", f"vc_{single.operation_name}", (A, B, *parts, y), single.chosen, single.of, fixed=single.fixed
    )


for name in PAIRED:
    single = OPERATIONS[name]
    inputs = "a b c" if "c" in single.inputs else "a b"
    meaning = _outer(single.meaning)
    define(TIU, f"vc_{name}", inputs, meaning, *single.rules, flow=Flow.PAIRS, numbers=single.numbers)
PAIRS = tuple(
    _paired(instruction)
    for instruction in (*elementwise.INSTRUCTIONS, *conversions.INSTRUCTIONS)
    if instruction.operation_name in PAIRED and instruction.chosen != elementwise.NOT
)
INSTRUCTIONS = (*PRODUCTS, *BY_ROWS, *PAIRS)
