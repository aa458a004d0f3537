"""What the machine refuses because of where operands lie, as sentences. Sources: the device API's description and, for
broadcasts and convolutions, assertions of the functional model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.targets.bm1684x.isa.operations.base import PlaceRule
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.spread import ConvWeights
from tilewright.targets.bm1684x.layouts.tensor import Tensor, storage_of

#: Bytes from one element of a row to the next that a transfer can step over; what operands of the cube begin at.
WIDEST_STEP, CUBE = 128, 64


def _local(place: Any) -> Tensor | None:
    """The tensor of local memory that an operand is or lies in."""
    tensor = storage_of(place)
    return tensor if tensor is not None and tensor.is_local else None


def one_start_lane(places: Mapping[str, Any]) -> str:
    """Operands of the compute engine."""
    lanes = {name: tensor.start_lane for name, place in places.items() if (tensor := _local(place))}
    if len(set(lanes.values())) > 1:
        shown = ", ".join(f"{name} in lane {lane}" for name, lane in lanes.items())
        return f"its operands begin in different lanes: {shown}; copy across lanes first"
    return ""


def in_lanes(places: Mapping[str, Any]) -> str:
    """Operands of the compute engine lie in local memory."""
    outside = [name for name, place in places.items() if isinstance(place, Tensor) and not place.is_local]
    return f"{outside[0]} is not in local memory; copy it there first" if outside else ""


def matrices(places: Mapping[str, Any]) -> str:
    """Factors and results of products."""
    for name in ("y", "L", "R"):
        if isinstance(places.get(name), Tensor):
            return f"{name} is a tensor of four axes; give its rows(), or tpu.matrix(..)"
    return ""


def within_lanes(places: Mapping[str, Any]) -> str:
    """A broadcast to channels does not wrap."""
    x, y = places.get("x"), _local(places["y"])
    if y is None or not isinstance(x, Tensor) or y.shape.c == x.shape.c:
        return ""
    if y.start_lane + y.shape.c > y.config.lanes:
        return f"{y.shape.c} channels from lane {y.start_lane} on go beyond {y.config.lanes} lanes; broadcast in parts"
    return ""


def short_steps(places: Mapping[str, Any]) -> str:
    """Elements of a row."""
    for name, place in places.items():
        if isinstance(place, Tensor) and place.shape.w > 1 and place.stride.w * place.dtype.bytes > WIDEST_STEP:
            step = place.stride.w * place.dtype.bytes
            return f"{name} steps {step} bytes along w, more than {WIDEST_STEP}; move w to another axis"
    return ""


def cube_aligned(places: Mapping[str, Any]) -> str:
    """Inputs of convolutions without strides of their own, and weights."""
    x, w = places.get("x"), places.get("w")
    if isinstance(w, Tensor):
        return "w is a tensor; weights have a layout of their own: give tpu.weights(..)"
    if isinstance(w, ConvWeights) and w.group > 1 and w.address % CUBE:
        return f"its weights begin at byte {w.address:#x}; give a multiple of {CUBE}"
    if not isinstance(x, Tensor) or x.stride != layout.aligned(x.shape, x.dtype, x.start_lane, x.config):
        return ""
    return f"x is aligned but begins at byte {x.address:#x}; give a multiple of {CUBE}" if x.address % CUBE else ""


COMPUTE = (in_lanes, one_start_lane)
#: By operation, where it is not COMPUTE.
PLACES: Mapping[str, tuple[PlaceRule, ...]] = {
    "dma_copy": (short_steps,),
    "dma_broadcast": (within_lanes,),
    "static_bcast": (),
    **dict.fromkeys(("npu_bcast", "cw_trans", "wc_trans"), (in_lanes,)),
    **dict.fromkeys(("fp_conv2d", "int8_sym_quant_conv2d", "int8_asym_quant_conv2d"), (*COMPUTE, cube_aligned)),
    **dict.fromkeys(("fp_mm", "int8_mm", "int8_zp_mm"), (*COMPUTE, matrices)),
}


def rules_of(operation: str, computes: bool) -> tuple[PlaceRule, ...]:
    """What holds for an operation."""
    return PLACES.get(operation, COMPUTE if computes else ())
