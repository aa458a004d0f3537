"""Operations on all pairs of elements of two vectors: their meaning, and their encoding in the format VC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.array import Array
from tilewright.targets.bm1684x.isa.operation import OPERATIONS, TIU, Flow, Meaning, Values, define
from tilewright.targets.bm1684x.isa.operations import conversions, elementwise
from tilewright.targets.bm1684x.isa.operations.products import Spread
from tilewright.targets.bm1684x.isa.parts import Instruction, Local, Number, Part, Type
from tilewright.targets.bm1684x.isa.stream import Encoded


def _outer(meaning: Meaning) -> Meaning:
    """Return a function that computes an operation on all pairs of elements of a (a row) and b (a column)."""

    def all_pairs(v: Values) -> Array | Mapping[str, Array]:
        pairs = {"a": v["a"].reshape(-1, 1), "b": v["b"].reshape(1, -1)}
        return meaning(replace(v, data={**v.data, **pairs}))

    return all_pairs


def _rows(encoded: Encoded) -> int:
    return encoded["opd0_w"] * (encoded["opd0_c"] - 1) + encoded["opd1_w"]


def _columns(encoded: Encoded) -> int:
    return encoded["res0_c"] * encoded["res0_w"]


FIRST_TYPE, SECOND_TYPE = (Type(f"{own}_prec", f"{own}_sign", of_floats=1) for own in ("opd0", "opd1"))
A = Spread("a", "opd0", FIRST_TYPE, lambda c: (1, _rows(c)), "opd0_w", "1 opd0_c 1 opd0_w", "opd1_w")
B = Spread("b", "opd1", SECOND_TYPE, lambda c: (1, _columns(c)), "res0_w")
BITS = Type("res0_prec", 0)
TRUE = Number("c", "opd2_addr", "", BITS)
#: The element-wise operations that the machine has for pairs too. The function of a pair has the same number.
PAIRED = (
    *(f"{kind}_{name}" for kind in ("fp", "int") for name in ("add", "sub", "mul")),
    *("max", "min", "and", "or", "xor", "greater", "equal", "less", "fp_div"),
)


def _paired(single: Instruction) -> Instruction:
    """Return the instruction of pairs for that of an element-wise operation."""
    parts: tuple[Part, ...] = (elementwise.STEPS,) if elementwise.STEPS in single.parts else ()
    last = single.parts[-1]
    assert isinstance(last, Local)
    result = last.type
    if single.operation_name in elementwise.MACHINE_RELATIONS:
        parts, result = (TRUE,), BITS
    y = Spread("y", "res0", result, lambda c: (_rows(c), _columns(c)), "res0_w", "1 res0_c 1 res0_w")
    return Instruction(
        "VC", f"vc_{single.operation_name}", (A, B, *parts, y), single.chosen, single.of, fixed=single.fixed
    )


for name in PAIRED:
    single = OPERATIONS[name]
    inputs = "a b c" if "c" in single.inputs else "a b"
    meaning = _outer(single.meaning)
    define(TIU, f"vc_{name}", inputs, meaning, *single.rules, flow=Flow.PAIRS, numbers=single.numbers)
INSTRUCTIONS = tuple(
    _paired(instruction)
    for instruction in (*elementwise.INSTRUCTIONS, *conversions.INSTRUCTIONS)
    if instruction.operation_name in PAIRED and instruction.chosen != elementwise.NOT
)
