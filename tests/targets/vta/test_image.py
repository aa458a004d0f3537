"""Kinds of DRAM segments: what the launch carries, what is there before it, and what it gives back."""

from __future__ import annotations

import numpy as np

from tilewright.program.launch_image import KINDS
from tilewright.program.program import Launch
from tilewright.targets.vta.isa.fields import REGIONS
from tilewright.targets.vta.isa.stream import image_of


def test_kinds() -> None:
    segments = [{"name": kind, "address": 16 * at, "size": 16, "kind": kind} for at, kind in enumerate(KINDS)]
    data = {f"dram.{kind}": np.full(16, 7, np.uint8) for kind in ("const", "inout")}
    meta = {"bases": dict.fromkeys(REGIONS, 0), "segments": segments}
    image = image_of(Launch("x", (), meta, {"insns": np.zeros((1, 16), np.uint8), **data}))
    assert set(image.data) == {"const", "inout"}
    assert image.outputs == ("output", "inout")
    found = {segment.name: segment for segment in image.dram({"input": np.full((2, 16), 3, np.uint8)}, 2).segments}
    assert {name for name, segment in found.items() if segment.initialised} == {"const", "input", "inout"}
    assert {name for name, segment in found.items() if segment.shared} == {"const", "input", "inout"}
    assert [len(found[kind].data) for kind in KINDS] == [1 if kind in ("const", "inout") else 2 for kind in KINDS]
