"""A launch of a network: its inputs packed into DRAM, and its outputs unpacked."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Site
from tilewright.graph.ops import Add, Linear
from tilewright.graph.rounding import rounding_mode
from tilewright.program.launch_image import Contents, LaunchImage
from tilewright.program.program import Launch, Program
from tilewright.targets.gemmini.compiler.convolutions import Frame
from tilewright.targets.gemmini.compiler.layers import MOST_FRAME


def ends(program: Program, launch: Launch) -> tuple[Site, Site] | None:
    """Return the first and the last node of a launch; None if the program has no network."""
    if program.graph is None:
        return None
    first, last = (program.graph.site(program.graph.node(name)) for name in (launch.nodes[0], launch.nodes[-1]))
    return first, last


def pack(launch: Launch, image: LaunchImage, site: Site, values: Mapping[str, Array]) -> dict[str, Array]:
    """Return the inputs of a launch whose first node is `site`, {segment name: uint8 (S, bytes)}, for S samples.

    Raises ProgramError if the launch states a border that is not four widths of 0..MOST_FRAME.
    """
    packed = dict[str, Array]()
    for index, segment in enumerate(segment for segment in image.segments if segment.kind == "input"):
        codes = values[site.input(index).name]
        if "frame" in launch.meta:
            found = Contents(launch)
            top, bottom, left, right = frame = found.value(Frame, "frame")
            if min(frame) < 0 or max(frame) > MOST_FRAME:
                found.refuse(f"has a border of {frame} around its input; 0..{MOST_FRAME} on each side is supported")
            sides = (0, 0), (0, 0), (top, bottom), (left, right), (0, 0)
            codes = np.pad(codes, sides, constant_values=site.input(0).zero_point)
        data = np.ascontiguousarray(codes).reshape(codes.shape[0], -1).view(np.uint8)
        behind = segment.size - data.shape[1] if isinstance(site.node.op, Add) else 0  # whole blocks are read
        packed[segment.name] = np.pad(data, ((0, 0), (0, max(behind, 0))))
    samples = max((len(data) for data in packed.values()), default=1)  # a constant is there once
    return {name: np.broadcast_to(data, (samples, data.shape[1])) for name, data in packed.items()}


def unpack(first: Site, last: Site, left: Mapping[str, Array], rounding: str) -> dict[str, Array]:
    """Return the output codes of a launch, {tensor name: (S, *shape)}, from the codes or sums that it stored."""
    stored, out = np.ascontiguousarray(left["y"]), last.output
    if stored.shape[1] == out.size:
        return {out.name: stored.view(np.int8).reshape(-1, *out.shape)}
    op, sums = first.node.op, stored.view("<i4").reshape(-1, *out.shape)
    assert isinstance(op, Linear)
    return {out.name: op.finish(first, sums, rounding_mode(rounding))}
