"""What the machine refuses, as sentences. Measured on the vendor's functional model, whose assertions they replace."""

from __future__ import annotations

from tilewright.targets.bm1684x.isa.operations.base import Rule, Signature
from tilewright.targets.bm1684x.values.dtypes import BF16, F16, F32, I16, I32, U16, DType, Rounding


def floats(*names: str) -> Rule:
    """The operands named have one float type."""

    def rule(found: Signature) -> str:
        types = {found.types[name] for name in names if name in found.types}
        if len(types) > 1 or not all(dtype.is_float for dtype in types):
            return f"{', '.join(names)} must have one float type, not {_listed(types)}"
        return ""

    return rule


def alike(*names: str) -> Rule:
    """The operands named have one type."""

    def rule(found: Signature) -> str:
        types = {found.types[name] for name in names if name in found.types}
        return f"{', '.join(names)} must have one type, not {_listed(types)}" if len(types) > 1 else ""

    return rule


def integers(*names: str) -> Rule:
    """The operands named are integers."""

    def rule(found: Signature) -> str:
        bad = {found.types[name] for name in names if name in found.types and found.types[name].is_float}
        return f"{', '.join(names)} must be integers, not {_listed(bad)}" if bad else ""

    return rule


def of(name: str, *allowed: DType) -> Rule:
    """An operand, where it is given, has one of these types."""

    def rule(found: Signature) -> str:
        dtype = found.types.get(name, allowed[0])
        return f"{name} is {dtype}; it must be {_listed(allowed)}" if dtype not in allowed else ""

    return rule


def iterates_in_f32(found: Signature) -> str:
    """Divisions and roots."""
    bad = {dtype for dtype in found.types.values() if dtype is not F32}
    return f"divisions and roots are computed in f32 only, not in {_listed(bad)}; cast before and after" if bad else ""


def signed_as_its_sources(*sources: str) -> Rule:
    """The result is signed if and only if a source is; behind a ReLU it is unsigned."""

    def rule(found: Signature) -> str:
        result = found.types["y"]
        signed = [name for name in sources if name in found.types and found.types[name].signed]
        if found.attributes.get("relu"):
            return f"the result of a ReLU is unsigned, not {result}" if result.signed else ""
        if result.signed != bool(signed):
            why = f"{' and '.join(signed)} {'is' if len(signed) == 1 else 'are'} signed" if signed else "no source is"
            return f"the result is {result}, but {why}; it must be {'signed' if signed else 'unsigned'}"
        return ""

    return rule


def signed_result(found: Signature) -> str:
    """Differences."""
    return "" if found.types["y"].signed else f"the result of a difference is signed, not {found.types['y']}"


def rounds_to_neighbours(found: Signature) -> str:
    """Conversions and float requantisation know the first five modes."""
    mode = found.attributes.get("mode", Rounding.HALF_TO_EVEN)
    if mode in (Rounding.HALF_UP, Rounding.HALF_DOWN):
        return f"rounding {mode.name.lower()} exists for integer shifts only; give one of the first five modes"
    return ""


def not_between_short_floats(found: Signature) -> str:
    """f16 and bf16."""
    pair = (found.types["x"], found.types["y"])
    return f"{pair[0]} is not converted to {pair[1]} directly; go through f32" if set(pair) == {F16, BF16} else ""


def wide_source(found: Signature) -> str:
    """Requantisation."""
    return of("x", I32, I16, U16)(found)


def wide_enough_choices(*compared: str) -> Rule:
    """Selections between c and d by a comparison: the chosen type is at least as wide."""

    def rule(found: Signature) -> str:
        widest, chosen = max(found.types[name].bits for name in compared), found.types["y"].bits
        if widest > chosen:
            return f"operands of {widest} bits are compared, results of {chosen} bits chosen; choose {widest} or more"
        return ""

    return rule


def _listed(types: object) -> str:
    return ", ".join(sorted(str(dtype) for dtype in types))  # type: ignore[attr-defined]
