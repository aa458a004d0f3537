"""The contents of a launch: a layer's descriptor, and the constants in DDR. Example of the exact text form:

.launch "fc3"
fc r=4 l=2 relu=0 rule=float w_signed=1 ...
.array weight uint8 8
0102030405060708
.array bias int32 2
0000000001000000
.array factor float64 1
000000000000f03f

Arrays are little-endian bytes. Weights have the shape (oc, 3, 3, ic) or (l, r). A launch without a network may have
its input as `.array data uint8 ...`, (rows, cols, ic) or (r).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.graph.rounding import power_of_two
from tilewright.program.launch_image import Contents
from tilewright.program.listing import Directive, Grammar, Section, Text
from tilewright.program.program import Launch
from tilewright.program.words import NAME, QUOTED, choice, number
from tilewright.targets.zynq.config import GROUP, TAPS, Config
from tilewright.targets.zynq.isa.layer import DESCRIPTORS, LAYOUT, Kind, Layer
from tilewright.targets.zynq.timing import walk

#: The largest operand in words. The limit prevents huge allocations for a damaged file.
MAX_WORDS = 1 << 28
#: The arrays of a launch and their types. A launch without a network may also contain `data`, its input.
ARRAYS = {"weight": "uint8", "bias": "int32", "factor": "float64", "data": "uint8"}


@dataclass(frozen=True, eq=False)
class LayerImage:
    """The contents of a launch: a layer and its constants.

    The weights, (oc, 9, ic) or (l, r), are int8 or uint8. The bias is int32 [channels], and the factor is float64 [1 or
    channels]. `data` is the input of a launch without a network, uint8 [inputs], or None.
    """

    layer: Layer
    weight: Array
    bias: Array
    factor: Array
    data: Array | None = None

    @classmethod
    def of(cls, launch: Launch, config: Config) -> LayerImage:
        """Return the contents of a launch. Raises ProgramError if a part is missing or invalid."""
        contents = Contents(launch)
        insns = contents.array("insns", np.uint8, (1, LAYOUT.nbytes))
        try:
            layer = Layer.of(DESCRIPTORS.decode(insns), 0, config)
        except ProgramError as error:
            contents.refuse(f"{error.where}: {error.reason}")
        if reason := _refusal(layer):
            contents.refuse(reason)
        count = layer.channels
        weight = contents.array("weight", ARRAYS["weight"], (layer.kernel * count if count else 0,))
        bias = contents.array("bias", ARRAYS["bias"], (count,))
        factor = contents.array("factor", ARRAYS["factor"], (count,), (min(count, 1),))
        data = contents.array("data", np.uint8, (layer.inputs,)) if "data" in launch.arrays else None
        if not np.isfinite(factor).all() or (np.abs(factor) >= 2.0**30).any():
            contents.refuse("has a factor that is not finite, or is 2**30 or more")
        if layer.rule == "pow2" and layer.channels:
            power_of_two(factor, f"launch '{launch.name}'")
        weight = weight.view(np.int8 if layer["w_signed"] else np.uint8)
        shape = (layer["oc"], TAPS, layer["ic"]) if layer.conv else (layer.channels, layer["r"])
        return cls(layer, weight.reshape(shape), bias, factor, data)


def _refusal(layer: Layer) -> str:
    """Return the reason why the engine cannot run the layer of a descriptor, or ""."""
    sizes = ("r", "l") if layer.kind == Kind.FC else ("ic", "rows", "cols", *(["oc"] if layer.conv else []))
    empty = [name for name in sizes if not layer[name]]
    low, high = (-128, 127) if layer["y_signed"] else (0, 255)
    if empty:
        return f"{empty[0]} is 0; it must be at least 1"
    if reason := walk.refusal(layer):
        return reason
    if max(layer.inputs, layer.outputs, layer.kernel * max(1, layer.channels)) > MAX_WORDS:
        return f"has an operand of more than {MAX_WORDS} words"
    if not low <= layer["low"] <= layer["high"] <= high:
        return f"low={layer['low']} and high={layer['high']} must be a range within its codes, {low}..{high}"
    if layer.conv and (layer.kind == Kind.CONV_1_1) != (layer["ic"] < GROUP):
        return f"{layer.kind.name.lower()} has {layer['ic']} input channels; conv_1_1 is for fewer than 16"
    return ""


GRAMMAR = Grammar(
    {
        ".array": Directive(
            {"name": choice(ARRAYS), "dtype": NAME, "count": number(high=MAX_WORDS)},
            unique=True,
            data=lambda values: values["count"] * np.dtype(ARRAYS[values["name"]]).itemsize,
        ),
        ".layer": Directive(code=lambda words: (words[0], DESCRIPTORS.notation.read(words))),
    },
    opening=".layer",
    name=QUOTED,
    row=64,
    zeros=False,
)


def text_of(launch: Launch, config: Config) -> Text:
    """Return the text of a launch, which `launch_of` reads back exactly."""
    sections = [Section("", code=[DESCRIPTORS.notation.show(LayerImage.of(launch, config).layer.fields)])]
    for name, dtype in ARRAYS.items():
        array = launch.arrays.get(name)
        if array is not None and array.size:
            values = {"name": name, "dtype": dtype, "count": array.size}
            sections.append(Section(".array", values, array.astype(array.dtype.newbyteorder("<")).tobytes()))
    return Text(launch.name, sections=sections)


def launch_of(text: Text, config: Config) -> Launch:
    """Return the launch that a text describes. Raises ProgramError with the position of a mistake."""
    layers = text.code(".layer")
    if not layers:
        raise ProgramError(f"launch '{text.name}'", "has no layer", "add one: conv_1_1, conv_other, pool or fc")
    for word, _ in layers[1:]:
        word.refuse(".array or .launch, because a launch has only one layer")
    arrays: dict[str, Array] = {name: np.zeros(0, dtype) for name, dtype in ARRAYS.items() if name != "data"}
    arrays |= {section.values["name"]: _array(section) for section in text.of(".array")}
    launch = Launch(text.name, (), {}, {"insns": LAYOUT.encode_rows([row for _, row in layers]), **arrays})
    LayerImage.of(launch, config)
    return launch


def _array(section: Section) -> Array:
    name, written, count = section.values.values()
    dtype = np.dtype(ARRAYS[name])
    if written != dtype.name:
        section.words["dtype"].refuse(f"{dtype.name}, the type of {name}")
    if len(section.data) != count * dtype.itemsize:
        section.words["count"].refuse(f"the number of elements in the {len(section.data)} bytes that follow")
    return np.frombuffer(section.data, dtype.newbyteorder("<")).astype(dtype)
