"""Rules that refuse a command: either its types and attributes, or where its operands lie in memory.

A rule is a function of a command's signature, or of its operands. It returns "" to accept the command, or the reason to
refuse it. The reason tells what the rule requires. The rules on types were measured on the vendor's functional model,
and replace the assertions of that model. The rules on places come from the device API's description and, for broadcasts
and convolutions, from assertions of the functional model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tilewright.targets.bm1684x.isa.operation import Rule, Signature
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.tensor import ConvWeights, Rows, Tensor
from tilewright.targets.bm1684x.values.dtypes import BF16, F16, F32, I8, I16, I32, U8, U16, U32, DType, Rounding

#: The largest stride along w in a transfer, and the alignment of the cube's operands, both in bytes.
WIDEST_STEP = 128
CUBE = 64


def same_type(*names: str, floats: bool = False) -> Rule:
    """Return a rule that requires the same type (with `floats`: the same float type) for the named operands."""

    def rule(signature: Signature) -> str:
        types = {signature.types[name] for name in names if name in signature.types}
        if len(types) > 1 or (floats and not all(dtype.is_float for dtype in types)):
            return f"{', '.join(names)} must have the same {'float ' * floats}type, not {_listed(types)}"
        return ""

    return rule


def floats(*names: str) -> Rule:
    return same_type(*names, floats=True)


def _all(description: str, fits: Callable[[DType], bool]) -> Callable[..., Rule]:
    def of_names(*names: str) -> Rule:
        def rule(signature: Signature) -> str:
            bad = {
                signature.types[name] for name in names if name in signature.types and not fits(signature.types[name])
            }
            return f"{', '.join(names)} must be {description}, not {_listed(bad)}" if bad else ""

        return rule

    return of_names


integers = _all("integers", lambda dtype: not dtype.is_float)
unsigned = _all("unsigned", lambda dtype: not dtype.signed)


def of(name: str, *allowed: DType) -> Rule:
    """Return a rule that requires one of the `allowed` types for the operand `name`, if the command has it."""

    def rule(signature: Signature) -> str:
        dtype = signature.types.get(name, allowed[0])
        return f"{name} is {dtype}; it must be {_listed(allowed)}" if dtype not in allowed else ""

    return rule


def iterates_in_f32(signature: Signature) -> str:
    bad = {dtype for dtype in signature.types.values() if dtype is not F32}
    return f"divisions and roots are computed in f32 only, not in {_listed(bad)}; cast before and after" if bad else ""


def signed_as_its_sources(*sources: str) -> Rule:
    """Return a rule that requires a signed result if an operand in `sources` is signed, unless there is a ReLU."""

    def rule(signature: Signature) -> str:
        result = signature.types["y"]
        signed = [name for name in sources if name in signature.types and signature.types[name].signed]
        if signature.attributes.get("relu"):
            return f"the result of a ReLU is unsigned, not {result}" if result.signed else ""
        if result.signed != bool(signed):
            why = f"{' and '.join(signed)} {'is' if len(signed) == 1 else 'are'} signed" if signed else "no source is"
            return f"the result is {result}, but {why}; it must be {'signed' if signed else 'unsigned'}"
        return ""

    return rule


def signed_result(signature: Signature) -> str:
    return "" if signature.types["y"].signed else f"the result of a difference is signed, not {signature.types['y']}"


def rounds_to_neighbours(signature: Signature) -> str:
    mode = signature.attributes.get("mode", Rounding.HALF_TO_EVEN)
    if mode in (Rounding.HALF_UP, Rounding.HALF_DOWN):
        return f"rounding {mode.name.lower()} exists for integer shifts only; give one of the first five modes"
    return ""


def not_between_short_floats(signature: Signature) -> str:
    """Refuse a direct conversion between f16 and bf16: programs must convert to f32 first."""
    pair = (signature.types["x"], signature.types["y"])
    return f"{pair[0]} is not converted to {pair[1]} directly; go through f32" if set(pair) == {F16, BF16} else ""


def shifted_alike(signature: Signature) -> str:
    a = signature.types["a"]
    y = signature.types["y"]
    return "" if a.signed == y.signed else f"{a} is shifted to {y}; both must be signed, or both unsigned"


#: The types of a requantisation's source and result, and of a dequantisation's source.
wide_source = of("x", I32, U32, I16, U16)
narrow_result = of("y", I8, U8, I16, U16)
narrow_source = of("x", I8, U8, I16, U16)


def wide_enough_choices(signature: Signature) -> str:
    widest = max(signature.types[name].bits for name in ("a", "b"))
    chosen = signature.types["y"].bits
    if widest > chosen:
        return f"it compares {widest}-bit operands but selects {chosen}-bit operands; select {widest} bits or more"
    if widest < chosen and signature.types["a"].is_float:
        return f"it compares {signature.types['a']} but selects {chosen}-bit operands; select {widest} bits"
    return ""


def equally_wide_choices(signature: Signature) -> str:
    both = [signature.types[name] for name in ("y0", "y")]
    return f"its results are {both[0]} and {both[1]}; they must be equally wide" if both[0].bits != both[1].bits else ""


def narrow_enough_result(signature: Signature) -> str:
    compared = signature.types["a"].bits
    result = signature.types["y"].bits
    if result > compared:
        return f"it compares {compared}-bit operands, but its result has {result} bits; give {compared} bits or fewer"
    return ""


def accumulates_wide(signature: Signature) -> str:
    """Refuse an accumulated result that does not have the accumulator's type: f32, or a 32-bit integer."""
    # L is the left factor of a product; x is the input of a convolution
    wide = F32 if signature.types.get("x", signature.types.get("L", F32)).is_float else I32
    result = signature.types["y"]
    allowed = {F32} if wide is F32 else {I32, U32}
    if "acc" in signature.types and not {signature.types["acc"], result} <= allowed:
        return f"an accumulated result must be {wide}, not {result}"
    return ""


def float_result(signature: Signature) -> str:
    source = signature.types.get("x", signature.types.get("L", F32))
    if signature.types["y"] not in (F32, source):
        return f"the result is {signature.types['y']}; it must be f32 or {source}"
    return ""


def eight_bits(*names: str) -> tuple[Rule, ...]:
    return tuple(of(name, I8, U8) for name in names)


def _listed(types: Iterable[DType]) -> str:
    return ", ".join(sorted(map(str, types)))


def _local(place: Any) -> Tensor | None:
    tensor: Tensor | None = getattr(place, "storage", None)
    return tensor if tensor is not None and tensor.is_local else None


def _start_lanes(places: Mapping[str, Any]) -> dict[str, int]:
    return {name: tensor.start_lane for name, place in places.items() if (tensor := _local(place))}


def one_start_lane(places: Mapping[str, Any]) -> str:
    lanes = _start_lanes(places)
    if len(set(lanes.values())) > 1:
        shown = ", ".join(f"{name} in lane {lane}" for name, lane in lanes.items())
        return f"its operands begin in different lanes: {shown}; copy across lanes first"
    return ""


def first_lane(places: Mapping[str, Any]) -> str:
    bad = next(((name, lane) for name, lane in _start_lanes(places).items() if lane), None)
    return f"{bad[0]} begins in lane {bad[1]}; this command needs lane 0" if bad else ""


def several_terms(places: Mapping[str, Any]) -> str:
    return "" if places["coefficients"].shape[-1] > 1 else "a polynomial has two coefficients or more, not 1"


def short_factors(places: Mapping[str, Any]) -> str:
    factors = [places[name] for name in ("L", "R")]
    by_rows = all(isinstance(factor, Rows) for factor in factors)
    if isinstance(places["y"], Rows) and factors[0].dtype is F32 and not by_rows:
        return "a matrix of f32 that is stored by rows is not multiplied by a number; use fp_mul"
    return ""


def in_lanes(places: Mapping[str, Any]) -> str:
    outside = [name for name, place in places.items() if isinstance(place, Tensor) and not place.is_local]
    return f"{outside[0]} is not in local memory; copy it there first" if outside else ""


def shared_index(places: Mapping[str, Any]) -> str:
    index = _local(places.get("index"))
    if index is not None and index.start_lane:
        return f"its index begins in lane {index.start_lane}; indices that all channels share begin in lane 0"
    return ""


def matrices(places: Mapping[str, Any]) -> str:
    for name in ("y", "L", "R"):
        if isinstance(places.get(name), Tensor):
            return f"{name} is a tensor of four axes; give its rows(), or tpu.matrix(..)"
    return ""


def within_lanes(places: Mapping[str, Any]) -> str:
    x, y = places.get("x"), _local(places["y"])
    if y is None or not isinstance(x, Tensor) or y.shape.c == x.shape.c:
        return ""
    # A broadcast to lanes writes only one slot, so channels cannot continue in the next slot of lane 0 (an assertion of
    # the vendor's model).
    if y.start_lane + y.shape.c > y.config.lanes:
        return f"{y.shape.c} channels from lane {y.start_lane} on exceed the {y.config.lanes} lanes; broadcast in parts"
    return ""


def packed_rows(places: Mapping[str, Any]) -> str:
    x, y = places["x"], places["y"]
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        for name, place in (("x", x), ("y", y)):
            if place.stride.w != 1:
                return f"{name} has a stride of {place.stride.w} along w; a broadcast takes 1 only"
    return ""


def short_steps(places: Mapping[str, Any]) -> str:
    for name, place in places.items():
        if isinstance(place, Tensor) and place.shape.w > 1 and place.stride.w * place.dtype.bytes > WIDEST_STEP:
            step = place.stride.w * place.dtype.bytes
            return f"{name} has a stride of {step} bytes along w; the largest is {WIDEST_STEP}: move w to another axis"
    return ""


def cube_aligned(places: Mapping[str, Any]) -> str:
    """Refuse a convolution unless grouped w and aligned x begin at multiples of CUBE."""
    x = places.get("x")
    w = places.get("w")
    if isinstance(w, Tensor):
        return "w is a tensor; weights have a layout of their own: give tpu.weights(..)"
    # The cube reads 64 bytes at a time, and an assertion in the vendor's model refuses unaligned addresses. f32 weights
    # have groups of one channel, and may begin anywhere.
    if isinstance(w, ConvWeights) and w.group > 1 and w.address % CUBE:
        return f"its weights w begin at address {w.address:#x}; give a multiple of {CUBE}"
    if not isinstance(x, Tensor) or x.stride != layout.aligned(x.shape, x.dtype, x.start_lane, x.config):
        return ""
    return f"x is aligned but begins at address {x.address:#x}; give a multiple of {CUBE}" if x.address % CUBE else ""


def first_of_lanes(places: Mapping[str, Any]) -> str:
    return first_lane({"y": places["y"]})


#: The default rules on places for commands of the compute engine.
COMPUTE = (in_lanes, one_start_lane)
