"""The text form of launches, exact in both directions (tilewright/program/listing.py).

.launch "fc3"
fc r=4 l=2 relu=0 rule=float w_signed=1 ...
.array weight uint8 8
0102030405060708
.array bias int32 2
0000000001000000
.array factor float64 1
000000000000f03f

Arrays are bytes, little-endian: weights (oc, 3, 3, ic) or (l, r); `.array data uint8 ...`, (rows, cols, ic) or (r), is
what a bare launch reads.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.program.listing import Directive, Grammar, Section, Text
from tilewright.program.program import Launch, Program
from tilewright.program.words import NAME, QUOTED, choice, number
from tilewright.targets.zynq.config import Config
from tilewright.targets.zynq.isa.descriptor import DESCRIPTORS, LAYOUT
from tilewright.targets.zynq.isa.image import ARRAYS, MAX_WORDS, LayerImage

TYPES = {name: np.dtype(dtype).name for name, dtype in ARRAYS.items()}
GRAMMAR = Grammar(
    {
        ".array": Directive(
            {"name": choice(TYPES), "dtype": NAME, "count": number(high=MAX_WORDS)},
            unique=True,
            data=lambda values: values["count"] * np.dtype(TYPES[values["name"]]).itemsize,
        ),
        ".layer": Directive(code=lambda words: (words[0], DESCRIPTORS.notation.read(words))),
    },
    opening=".layer",
    name=QUOTED,
    row=64,
    zeros=False,
)


def disassemble(program: Program, config: Config) -> str:
    """The text of a program's launches."""
    return "".join(GRAMMAR.write(Text(one.name, sections=list(_sections(one, config)))) for one in program.launches)


def _sections(launch: Launch, config: Config) -> Iterator[Section]:
    layer = LayerImage.of(launch, config).layer
    yield Section("", code=[DESCRIPTORS.notation.show(layer.fields)])
    for name, dtype in TYPES.items():
        array = launch.arrays.get(name)
        if array is not None and array.size:
            values = {"name": name, "dtype": dtype, "count": array.size}
            yield Section(".array", values, array.astype(array.dtype.newbyteorder("<")).tobytes())


def assemble(text: str, config: Config) -> tuple[Launch, ...]:
    """The launches of a text. Raises ProgramError with the line, the column and what was expected there."""
    launches = tuple(_launch(part) for part in GRAMMAR.read(text))
    for launch in launches:
        LayerImage.of(launch, config)
    return launches


def _launch(text: Text) -> Launch:
    layers = text.code(".layer")
    if not layers:
        raise ProgramError(f"launch '{text.name}'", "has no layer", "give one: conv_1_1, conv_other, pool or fc")
    for word, _ in layers[1:]:
        word.refuse(".array or .launch: a launch has one layer")
    arrays: dict[str, Array] = {name: np.zeros(0, dtype) for name, dtype in TYPES.items() if name != "data"}
    for section in text.of(".array"):
        arrays[section.values["name"]] = _array(section)
    return Launch(text.name, (), {}, {"insns": LAYOUT.encode_rows([row for _, row in layers]), **arrays})


def _array(section: Section) -> Array:
    name, written, count = section.values.values()
    dtype = np.dtype(TYPES[name])
    if written != dtype.name:
        section.words["dtype"].refuse(f"{dtype.name}, the type of {name}")
    if len(section.data) != count * dtype.itemsize:
        section.words["count"].refuse(f"{count} elements after it, which are not {len(section.data)} bytes")
    return np.frombuffer(section.data, dtype.newbyteorder("<")).astype(dtype)
