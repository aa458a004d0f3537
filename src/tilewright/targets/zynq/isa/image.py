"""What a launch holds: a descriptor, and the constants that the PS keeps in DDR for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.graph.rounding import power_of_two
from tilewright.program.launch_image import Contents, Shape
from tilewright.program.program import Launch
from tilewright.targets.zynq.config import GROUP, TAPS, Config
from tilewright.targets.zynq.isa.descriptor import DESCRIPTORS, LAYOUT, Kind
from tilewright.targets.zynq.isa.layer import Layer
from tilewright.targets.zynq.timing import walk

#: Largest objects, so that a damaged file allocates nothing absurd.
MAX_WORDS = 1 << 28
#: The arrays of a launch beside its descriptor, and their types. A bare launch may hold its data too.
ARRAYS = {"weight": np.uint8, "bias": np.int32, "factor": np.float64, "data": np.uint8}


@dataclass(frozen=True, eq=False)
class LayerImage:
    """A layer; weights (oc, 9, ic) or (l, r) of the descriptor's type, bias int32 [channels], factor float64 [1 or
    channels]; data uint8 [inputs] of a bare launch, else None.
    """

    layer: Layer
    weight: Array
    bias: Array
    factor: Array
    data: Array | None = None

    @classmethod
    def of(cls, launch: Launch, config: Config) -> LayerImage:
        """The image of a launch, which may come from a file: ProgramError says what does not fit."""
        contents = Contents(launch)
        insns = contents.array("insns", np.uint8, (1, LAYOUT.nbytes))
        try:
            layer = Layer.of(DESCRIPTORS.decode(insns), 0, config)
        except ProgramError as error:
            contents.refuse(f"{error.where}: {error.reason}")
        if reason := _refusal(layer):
            contents.refuse(reason)
        found = {name: contents.array(name, ARRAYS[name], *shapes) for name, shapes in _shapes(layer).items()}
        data = contents.array("data", np.uint8, (layer.inputs,)) if "data" in launch.arrays else None
        if not np.isfinite(found["factor"]).all() or (np.abs(found["factor"]) >= 2.0**30).any():
            contents.refuse("has a factor that is not finite or too large")
        if layer.rule == "pow2" and layer.channels:
            power_of_two(found["factor"], f"launch '{launch.name}'")
        weight = found["weight"].view(np.int8 if layer["w_signed"] else np.uint8)
        shape = (layer["oc"], TAPS, layer["ic"]) if layer.conv else (layer.channels, layer["r"])
        return cls(layer, weight.reshape(shape), found["bias"], found["factor"], data)


def _shapes(layer: Layer) -> dict[str, tuple[Shape, ...]]:
    count = layer.channels
    return {
        "weight": ((layer.kernel * count if count else 0,),),
        "bias": ((count,),),
        "factor": ((count,), (min(count, 1),)),
    }


def _refusal(layer: Layer) -> str:
    """Why the engine cannot run a descriptor; empty where it can."""
    sizes = ("r", "l") if layer.kind == Kind.FC else ("ic", "rows", "cols", *(["oc"] if layer.conv else []))
    empty = [name for name in sizes if not layer[name]]
    low, high = (-128, 127) if layer["y_signed"] else (0, 255)
    if empty:
        return f"{empty[0]} is 0"
    if reason := walk.refusal(layer):
        return reason
    if max(layer.inputs, layer.outputs, layer.kernel * max(1, layer.channels)) > MAX_WORDS:
        return f"has an operand of more than {MAX_WORDS} words"
    if not low <= layer["low"] <= layer["high"] <= high:
        return f"clips to {layer['low']}..{layer['high']}, which its words cannot hold"
    if layer.conv and (layer.kind == Kind.CONV_1_1) != (layer["ic"] < GROUP):
        return f"is {layer.kind.name.lower()} with {layer['ic']} input channels; conv_1_1 is for fewer than 16"
    return ""
