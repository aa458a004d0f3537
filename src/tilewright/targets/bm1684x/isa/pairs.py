"""Encodings of operations on all pairs of elements of two vectors: the format VC."""

from __future__ import annotations

from typing import Any

from tilewright.targets.bm1684x.isa.arithmetic import STEPS
from tilewright.targets.bm1684x.isa.parts import FLOAT, INTEGER, Instruction, Number, Part, Type
from tilewright.targets.bm1684x.isa.products import Spread
from tilewright.targets.bm1684x.isa.stream import Encoded

FIRST_TYPE, SECOND_TYPE = Type("opd0_prec", "opd0_sign", of_floats=1), Type("opd1_prec", "opd1_sign", of_floats=1)
#: Results that are signed if an operand is, that are always signed, and that are bits.
EITHER, SIGNED, BITS = Type("res0_prec", ("opd0_sign", "opd1_sign")), Type("res0_prec", 1), Type("res0_prec", 0)


def _rows(encoded: Encoded) -> int:
    return encoded["opd0_w"] * (encoded["opd0_c"] - 1) + encoded["opd1_w"]


def _columns(encoded: Encoded) -> int:
    return encoded["res0_c"] * encoded["res0_w"]


A = Spread("a", "opd0", FIRST_TYPE, lambda c: (1, _rows(c)), "opd0_w", "1 opd0_c 1 opd0_w", "opd1_w")
B = Spread("b", "opd1", SECOND_TYPE, lambda c: (1, _columns(c)), "res0_w")


def _result(of: Type) -> Spread:
    return Spread("y", "res0", of, lambda c: (_rows(c), _columns(c)), "res0_w", "1 res0_c 1 res0_w")


def _pairs(function: int, name: str, of: str = "", result: Type = EITHER, *parts: Part, **more: Any) -> Instruction:
    given = {"tsk_eu_typ": function}
    return Instruction("VC", f"vc_{name}", (A, B, *parts, _result(result)), given, of, **more)


TRUE = Number("c", "opd2_addr", "", BITS)
INTEGERS = (
    ((0, "mul", EITHER), (2, "add", EITHER), (3, "sub", SIGNED)),
    ((20, "mul", EITHER), (15, "add", EITHER), (16, "sub", SIGNED)),
)
INSTRUCTIONS = (
    *(_pairs(function, f"fp_{name}", FLOAT) for function, name in ((0, "mul"), (2, "add"), (3, "sub"))),
    *(
        _pairs(function, f"int_{name}", INTEGER, result, fixed={"saturate": bool(clamps)})
        for clamps, functions in enumerate(INTEGERS)
        for function, name, result in functions
    ),
    *(_pairs(function, name) for function, name in ((4, "max"), (5, "min"))),
    *(_pairs(function, name, INTEGER) for function, name in ((7, "and"), (8, "or"), (9, "xor"))),
    *(_pairs(function, name, "", BITS, TRUE) for function, name in ((10, "greater"), (11, "equal"), (13, "less"))),
    _pairs(12, "fp_div", FLOAT, EITHER, STEPS),
)
