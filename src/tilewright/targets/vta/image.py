"""What a launch holds for the machine: instructions, control registers and DRAM, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.program.program import Launch
from tilewright.sim.dram import Dram, Segment
from tilewright.targets.vta.isa.fields import INSN_BYTES
from tilewright.targets.vta.registers import REGIONS

KINDS = ("const", "input", "output", "scratch", "inout")
#: The kinds whose bytes the launch carries, and those that it gives back.
CARRIED, RETURNED = ("const", "inout"), ("output", "inout")
MAX_BYTES = 1 << 32  # addresses have 32 bits
MAX_DATA = 1 << 30


@dataclass(frozen=True)
class Place:
    """A segment of DRAM, bytes: constants are shared, the others are one a sample; `scratch` is not given back.

    `inout` is a constant at first, and given back.
    """

    name: str
    address: int
    size: int
    kind: str


@dataclass(frozen=True, eq=False)
class Image:
    """`insns` uint8 [n, 16]; `bases` the byte address in each control register; `data` of the constants.

    `layer`: which of the launch's layers each instruction belongs to, int64 [n]; None for one of no more than a layer.
    """

    insns: Array
    bases: Mapping[str, int]
    places: tuple[Place, ...]
    data: Mapping[str, Array]
    layer: Array | None = None

    @classmethod
    def of(cls, launch: Launch) -> Image:
        """The image of a launch. Raises ProgramError naming what is missing or does not fit."""
        where, meta = f"launch '{launch.name}'", launch.meta
        insns = launch.arrays.get("insns")
        if (
            insns is None
            or insns.dtype != np.uint8
            or insns.ndim != 2
            or insns.shape[1] != INSN_BYTES
            or not len(insns)
        ):
            raise ProgramError(where, f"has no instructions of {INSN_BYTES} bytes")
        bases, segments = meta.get("bases"), meta.get("segments")
        if not isinstance(bases, Mapping) or set(bases) != set(REGIONS) or not all(map(_address, bases.values())):
            raise ProgramError(where, f"needs the addresses of {', '.join(REGIONS)} as 'bases'", "compile it again")
        if not isinstance(segments, list | tuple):
            raise ProgramError(where, "has no list of 'segments'", "compile it again")
        places = tuple(_place(where, item) for item in segments)
        if sum(place.size for place in places) > MAX_DATA:
            raise ProgramError(where, f"has more than {MAX_DATA >> 20} MiB of segments", "split it")
        data = {}
        for place in places:
            if place.kind in CARRIED:
                content = launch.arrays.get(f"dram.{place.name}")
                if content is None or content.dtype != np.uint8 or content.size != place.size:
                    raise ProgramError(
                        where, f"segment '{place.name}' lacks its {place.size} bytes", "compile it again"
                    )
                data[place.name] = content
        layer = launch.arrays.get("layer")
        if layer is not None and not _numbers(layer, len(insns), len(launch.nodes)):
            reason = f"does not say which of its {len(launch.nodes)} layers each instruction belongs to"
            raise ProgramError(where, reason, "compile it again")
        return cls(insns, bases, places, data, layer)

    def dram(self, inputs: Mapping[str, Array], samples: int) -> Dram:
        """The memory before the launch; `inputs` uint8 (samples, size) by segment, zeros where one is not given."""
        segments = []
        for place in self.places:
            if place.kind in CARRIED:
                content = self.data[place.name].reshape(1, place.size)
            elif place.name in inputs:
                content = np.ascontiguousarray(inputs[place.name]).reshape(samples, place.size)
            else:
                content = np.zeros((samples, place.size), np.uint8)
            filled, shared = place.kind in (*CARRIED, "input"), place.kind in CARRIED
            segments.append(Segment(place.name, place.address, content, filled, shared))
        return Dram(segments)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(place.name for place in self.places if place.kind in RETURNED)


def _numbers(layer: Array, instructions: int, layers: int) -> bool:
    if layer.dtype != np.int64 or layer.shape != (instructions,):
        return False
    return bool(layer.min() >= 0 and layer.max() < layers)


def _address(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value <= MAX_BYTES


def _place(where: str, item: Any) -> Place:
    if not isinstance(item, Mapping) or set(item) != {"name", "address", "size", "kind"}:
        raise ProgramError(where, "has a segment that is not name, address, size and kind", "compile it again")
    place = Place(item["name"], item["address"], item["size"], item["kind"])
    if not isinstance(place.name, str) or not _address(place.address) or not _address(place.size) or not place.size:
        raise ProgramError(where, f"segment {place.name!r} has no legal address or size", "compile it again")
    if place.kind not in KINDS:
        raise ProgramError(where, f"segment '{place.name}' is of the kind {place.kind!r}, not {', '.join(KINDS)}")
    return place
