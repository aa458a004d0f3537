"""Operations on all pairs of elements of two vectors: their meaning, and their encoding in the format VC."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from tilewright.array import Array
from tilewright.targets.bm1684x.isa import rules
from tilewright.targets.bm1684x.isa.operation import TIU, Flow, Values, define
from tilewright.targets.bm1684x.isa.operations.conversions import divided, in_f32
from tilewright.targets.bm1684x.isa.operations.elementwise import (
    MACHINE_RELATIONS,
    STEPS,
    alike,
    as_sources,
    bitwise,
    compare,
    compared,
    extreme,
    float_binary,
    integer_binary,
    integers,
    selected,
)
from tilewright.targets.bm1684x.isa.operations.products import Spread
from tilewright.targets.bm1684x.isa.parts import (
    FLOAT,
    INTEGER,
    Instruction,
    Number,
    Part,
    Type,
)
from tilewright.targets.bm1684x.isa.stream import Encoded
from tilewright.targets.bm1684x.values import elementwise as e


def _outer(meaning: Callable[[Values], Array]) -> Callable[[Values], Array]:
    """Return a function that computes an operation on all pairs of elements of a (a row) and b (a column)."""

    def all_pairs(v: Values) -> Array:
        pairs = {"a": v["a"].reshape(-1, 1), "b": v["b"].reshape(1, -1)}
        return meaning(replace(v, data={**v.data, **pairs}))

    return all_pairs


pairs = partial(define, TIU, flow=Flow.PAIRS)
for name, signs in (("add", as_sources), ("sub", rules.signed_result), ("mul", as_sources)):
    pairs(f"vc_fp_{name}", "a b", _outer(partial(float_binary, name)), rules.floats("a", "b", "y"))
    pairs(f"vc_int_{name}", "a b", _outer(partial(integer_binary, name)), integers("a", "b", "y"), signs)
pairs("vc_fp_div", "a b", _outer(divided), in_f32)
for name in ("max", "min"):
    pairs(f"vc_{name}", "a b", _outer(partial(extreme, name)), alike("a", "b", "y"))
for name, two in e.BITWISE.items():
    pairs(f"vc_{name}", "a b", _outer(bitwise(two)), integers("a", "b"), alike("a", "b", "y"))
for name in MACHINE_RELATIONS:
    pairs(f"vc_{name}", "a b c", _outer(partial(compare, name)), *compared, **selected)


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
