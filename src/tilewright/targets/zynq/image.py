"""What a launch holds: a descriptor, and the constants that the PS keeps in DDR for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.graph.arithmetic import power_of_two
from tilewright.program.program import Launch
from tilewright.targets.zynq import walk
from tilewright.targets.zynq.config import GROUP, TAPS, Config
from tilewright.targets.zynq.isa import LAYOUT, Kind, decode
from tilewright.targets.zynq.layer import Layer

#: Largest objects, so that a damaged file allocates nothing absurd.
MAX_WORDS = 1 << 28
#: The arrays of a launch beside its descriptor, and their types. A bare launch may hold its data too.
ARRAYS = {"weight": np.uint8, "bias": np.int32, "factor": np.float64, "data": np.uint8}


@dataclass(frozen=True, eq=False)
class Image:
    """A layer; weights (oc, 9, ic) or (l, r) of the descriptor's type, bias int32 [channels], factor float64 [1 or
    channels]; data uint8 [inputs] of a bare launch, else None.
    """

    layer: Layer
    weight: Array
    bias: Array
    factor: Array
    data: Array | None = None

    @classmethod
    def of(cls, launch: Launch, config: Config) -> Image:
        """The image of a launch, which may come from a file: ProgramError says what does not fit."""
        where, insns = f"launch '{launch.name}'", launch.arrays.get("insns")
        if insns is None or insns.dtype != np.uint8 or insns.shape != (1, LAYOUT.nbytes):
            raise ProgramError(where, f"has no descriptor of {LAYOUT.nbytes} bytes", "compile it again")
        try:
            layer = Layer.of(decode(insns), 0, config)
        except ProgramError as error:
            raise ProgramError(where, error.reason, "compile it again") from None
        _check_layer(where, layer)
        found: dict[str, Array] = {}
        for name, shapes in _shapes(layer).items():
            array = launch.arrays.get(name)
            if array is None or array.dtype != ARRAYS[name] or array.shape not in shapes:
                wanted = " or ".join(str(list(shape)) for shape in shapes)
                raise ProgramError(where, f"lacks '{name}', {np.dtype(ARRAYS[name]).name} {wanted}", "compile it again")
            found[name] = array
        data = launch.arrays.get("data")
        if data is not None and (data.dtype != np.uint8 or data.ndim != 1 or data.size != layer.inputs):
            raise ProgramError(where, f"has data that are not uint8 [{layer.inputs}]")
        if not np.isfinite(found["factor"]).all() or (np.abs(found["factor"]) >= 2.0**30).any():
            raise ProgramError(where, "has a factor that is not finite or too large")
        if layer.rule == "pow2" and layer.channels:
            power_of_two(found["factor"], where)
        weight = found["weight"].view(np.int8 if layer["w_signed"] else np.uint8)
        shape = (layer["oc"], TAPS, layer["ic"]) if layer.conv else (layer.channels, layer["r"])
        return cls(layer, weight.reshape(shape), found["bias"], found["factor"], data)


def _shapes(layer: Layer) -> dict[str, tuple[tuple[int, ...], ...]]:
    count = layer.channels
    return {
        "weight": ((layer.kernel * count if count else 0,),),
        "bias": ((count,),),
        "factor": ((count,), (min(count, 1),)),
    }


def _check_layer(where: str, layer: Layer) -> None:
    """A descriptor that the engine can run."""
    sizes = ("r", "l") if layer.kind == Kind.FC else ("ic", "rows", "cols", *(["oc"] if layer.conv else []))
    empty = [name for name in sizes if not layer[name]]
    low, high = (-128, 127) if layer["y_signed"] else (0, 255)
    reason = walk.refusal(layer) if not empty else f"{empty[0]} is 0"
    if not reason and max(layer.inputs, layer.outputs, layer.kernel * max(1, layer.channels)) > MAX_WORDS:
        reason = f"has an operand of more than {MAX_WORDS} words"
    if not reason and not low <= layer["low"] <= layer["high"] <= high:
        reason = f"clips to {layer['low']}..{layer['high']}, which its words cannot hold"
    if not reason and layer.conv and (layer.kind == Kind.CONV_1_1) != (layer["ic"] < GROUP):
        reason = f"is {layer.kind.name.lower()} with {layer['ic']} input channels; conv_1_1 is for fewer than 16"
    if reason:
        raise ProgramError(where, reason)
