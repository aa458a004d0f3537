"""The text of a launch image: base registers and DRAM segments with their bytes. A target adds its directives of code.

    .base inp=0x1000 out=0x2000
    .segment wgt address=0x1000 size=0x100 kind=const
    0102030405060708
    .segment x address=0x2000 size=0x200 kind=input

Bytes of a const or inout segment follow it. What is missing at its end is zero, and without `size` it is as long as its
bytes. Base registers that are left out are 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from tilewright.program.instruction import Raw
from tilewright.program.launch_image import CARRIED, KINDS, MAX_ADDRESS, DramSegment, LaunchImage
from tilewright.program.listing import Directive, Section, Text
from tilewright.program.words import NAME, choice, number

ADDRESS = number("#x", high=MAX_ADDRESS - 1)
SEGMENT = Directive(
    {"name": NAME},
    {"address": ADDRESS, "size": number("#x"), "kind": choice(KINDS)},
    required=("address", "kind"),
    unique=True,
    data=lambda values: values.get("size") if values["kind"] in CARRIED else 0,
)


def directives(bases: Sequence[str] = ()) -> dict[str, Directive]:
    """The directives of a machine with these base registers."""
    known = {".base": Directive(named=dict.fromkeys(bases, ADDRESS))} if bases else {}
    return {**known, ".segment": SEGMENT}


def sections(image: LaunchImage) -> Iterator[Section]:
    """The base registers, where one is not 0, and the segments."""
    if any(image.bases.values()):
        yield Section(".base", image.bases)
    for segment in image.segments:
        data = image.data[segment.name].tobytes() if segment.name in image.data else b""
        yield Section(".segment", vars(segment), data)


def image(text: Text, insns: Raw, bases: Sequence[str] = ()) -> LaunchImage:
    """The image that a text describes, with these instructions. Raises ProgramError with line and column."""
    found = {section.values["name"]: section for section in text.of(".segment")}
    segments = tuple(_segment(section) for section in found.values())
    for one, other in pairwise(sorted(segments, key=lambda segment: segment.address)):
        if (end := one.address + one.size) > other.address:
            taken = f"'{one.name}' {one.address:#x}..{end:#x}"
            found[other.name].words["address"].refuse(f"an address that is not in {taken}")
    carried = [segment for segment in segments if segment.kind in CARRIED]
    data = {one.name: np.frombuffer(found[one.name].data.ljust(one.size, b"\0"), np.uint8) for one in carried}
    addresses = dict.fromkeys(bases, 0)
    for section in text.of(".base"):
        addresses |= section.values
    return LaunchImage(insns, segments, data, addresses)


def _segment(section: Section) -> DramSegment:
    values = {"size": len(section.data), **section.values}
    if values["kind"] not in CARRIED and "size" not in section.values:
        section.words[""].refuse("size= after it, as it has no bytes here")
    return DramSegment(**values)
