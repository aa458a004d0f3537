"""What a launch holds for the machine: code and DRAM segments, one behind the other from address 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.program.instruction import Column
from tilewright.program.program import Launch
from tilewright.sim.dram import Dram, Segment

from .isa import LAYOUT, decode

KINDS = ("const", "input", "output")
MAX_BYTES = 1 << 29


class Place(NamedTuple):
    """A segment of DRAM: constants are shared, inputs and outputs are one a sample."""

    name: str
    kind: str
    size: int


@dataclass(frozen=True, eq=False)
class Image:
    """Decoded instructions (int64 [n] by field), segments, and the bytes of the constant ones."""

    columns: Mapping[str, Column]
    places: tuple[Place, ...]
    data: Mapping[str, Array]

    @classmethod
    def of(cls, launch: Launch) -> Image:
        """The image of a launch, which may come from a file: ProgramError says what does not fit."""
        where, insns = f"launch '{launch.name}'", launch.arrays.get("insns")
        if (
            insns is None
            or insns.dtype != np.uint8
            or insns.ndim != 2
            or insns.shape[1] != LAYOUT.nbytes
            or not len(insns)
        ):
            raise ProgramError(where, f"has no instructions of {LAYOUT.nbytes} bytes", "compile it again")
        try:
            places = tuple(Place(str(name), str(kind), int(size)) for name, kind, size in launch.meta["segments"])
        except (KeyError, TypeError, ValueError):
            raise ProgramError(where, "has no list of segments (name, kind, size)", "compile it again") from None
        if any(place.kind not in KINDS or place.size < 0 for place in places) or _total(places) > MAX_BYTES:
            raise ProgramError(where, f"needs segments of {', '.join(KINDS)}, {MAX_BYTES} bytes at most in all")
        data = {}
        for place in places:
            if place.kind == "const":
                content = launch.arrays.get(f"dram.{place.name}")
                if content is None or content.dtype != np.uint8 or content.shape != (place.size,):
                    raise ProgramError(where, f"segment '{place.name}' lacks its {place.size} bytes")
                data[place.name] = content
        return cls(decode(insns), places, data)

    def dram(self, inputs: Mapping[str, Array], samples: int) -> Dram:
        """The memory before the launch; `inputs` uint8 (samples, size) by segment, zeros where one is not given."""
        segments, address = [], 0
        for place in self.places:
            if place.kind == "const":
                content = self.data[place.name].reshape(1, place.size)
            else:
                content = np.zeros((samples, place.size), np.uint8)
                if place.name in inputs:
                    content[:] = inputs[place.name]
            filled, shared = place.kind != "output", place.kind == "const"
            segments.append(Segment(place.name, address, content, filled, shared))
            address += place.size
        return Dram(segments)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(place.name for place in self.places if place.kind == "output")


def _total(places: tuple[Place, ...]) -> int:
    return sum(place.size for place in places)
