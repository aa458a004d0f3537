"""Where the tensors of a VTA launch lie in DRAM, found out from the functions that lay them out.

The layout itself is known to compiler/pack.py only. Here, elements (or bytes) are given their own numbers as values,
8 bits at a time, and laid out: where a number arrives is where the element lies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError
from tilewright.graph.ir import Graph
from tilewright.program.launch_image import LaunchImage
from tilewright.program.program import Launch
from tilewright.sim.walk import Placed
from tilewright.targets.vta.compiler.lowered import given_back, held_codes
from tilewright.targets.vta.compiler.pack import CARRIED, COMPUTED, TABLES, correction_at, gathered, pack
from tilewright.targets.vta.isa.fields import Memory
from tilewright.targets.vta.steps.moves import Moves

#: Bits of a number that one byte holds.
BITS = 8


class Tensors:
    """The tensors of one launch in DRAM: those that it reads, then the result of each layer that has one there."""

    def __init__(
        self, launch: Launch, graph: Graph, image: LaunchImage, values: Mapping[str, Array], moved: Moves
    ) -> None:
        self._launch, self._graph, self._image = launch, graph, image
        self._values, self._moved = values, moved
        self._known: dict[str, Placed] = {}
        self._inputs: dict[str, str] = {}  # the segment of each tensor that the launch reads
        self._results: dict[str, tuple[int, int]] = {}  # the form of each result, and its first byte in DRAM
        segments = {segment.name: segment.address for segment in image.segments}
        for index, form in enumerate(launch.meta["layers"]):
            read = [*zip(form["inputs"], form["tensors"], strict=True), *form["residual"]]
            self._inputs |= {tensor: segment for segment, tensor in read}
            first = self._first(index, form, segments)
            if first is not None:
                self._results[graph.site(graph.node(form["node"])).output.name] = index, first

    @property
    def names(self) -> list[str]:
        return [*self._inputs, *self._results]

    def placed(self, name: str) -> Placed:
        """Return where a tensor lies. Raises InputError, with the known names, if it is not in this launch's DRAM."""
        if name not in self._known:
            if name in self._results:
                self._known[name] = self._result(name, *self._results[name])
            elif name in self._inputs:
                self._known[name] = self._input(name, self._inputs[name])
            else:
                names = ", ".join(self.names)
                raise InputError(f"tensor '{name}'", f"is not in the DRAM of launch '{self._launch.name}'", names)
        return self._known[name]

    def codes(self, name: str, dram: Callable[[int, int], Array]) -> Array:
        """Return a tensor's codes from the bytes of DRAM; its bytes must be its codes."""
        placed, tensor = self.placed(name), self._graph.tensors[name]
        low = placed.byte[placed.byte >= 0].min(initial=1 << 40)
        data = dram(int(low), int(placed.byte.max()) - int(low) + 1)
        held = np.where(placed.byte[..., 0] >= 0, data[np.maximum(placed.byte[..., 0] - low, 0)].view(np.int8), 0)
        return given_back(held.astype(np.int8), tensor)

    def sums(self, name: str, dram: Callable[[int, int], Array]) -> tuple[Array, Array] | None:
        """Return a result's sums in DRAM and their offset (see sim.walk.Walk.sums)."""
        index, first = self._results.get(name, (-1, 0))
        form = self._launch.meta["layers"][index]
        arrays = [self._launch.arrays.get(f"{key}.{index}") for key in TABLES]
        if index < 0 or form["codes"] or any(part is None for part in arrays):
            return None
        site = self._graph.site(self._graph.node(form["node"]))
        size = form["planes"] * form["out_tiles"] * form["out_pixels"] * form["batch"] * form["block"]
        known = self._launch.arrays
        data = dram(first, size)[None]
        acc = gathered(site, form, data, known.get(f"{CARRIED}.{index}"), known.get(f"{COMPUTED}.{index}"))
        shape = site.output.shape
        offset = correction_at(*(part for part in arrays if part is not None))
        return acc.astype(np.int64).reshape(shape), np.broadcast_to(offset, acc.shape).reshape(shape).astype(np.int64)

    def _first(self, index: int, form: Mapping[str, Any], segments: Mapping[str, int]) -> int | None:
        """Return the address of the first byte of a layer's result; None if the result is not in DRAM."""
        forms = self._launch.meta["layers"]
        if form["result"] is not None:
            return segments[form["result"]] + int(form["first"]) * form["batch"] * form["block"]
        joined = f"computed with {form['node']}"
        if not form["codes"] or any(other["plan"] == joined for other in forms):
            return None  # a later node is computed with this one, so only that node's result is stored
        owner = form["plan"].removeprefix("computed with ")
        if owner != form["plan"]:  # of several such nodes, the last one's result is stored
            if any(other["plan"] == form["plan"] for other in forms[index + 1 :]):
                return None
            index = next(at for at, other in enumerate(forms) if other["node"] == owner)
        layer = np.zeros(len(self._moved.memory), np.int64) if self._image.layer is None else self._image.layer
        stores = (self._moved.memory == Memory.OUT) & self._moved.transfers & (layer == index)
        return int(self._moved.address[stores].min()) if stores.any() else None

    def _result(self, name: str, index: int, first: int) -> Placed:
        """Return where a result lies: its stored bytes are numbered, then gathered as the host does it."""
        form = self._launch.meta["layers"][index]
        site = self._graph.site(self._graph.node(form["node"]))
        size = form["out_tiles"] * form["out_pixels"] * form["batch"] * form["block"]
        number, found = np.arange(1, size + 1), np.zeros(site.output.shape, np.int64)
        computed = self._launch.arrays.get(f"{COMPUTED}.{index}")
        for shift in range(0, size.bit_length(), BITS):
            data = np.zeros((1, form["planes"] * size), np.uint8)
            data[0, :size] = number >> shift & 0xFF
            label = gathered(site, form, data, None, computed)[0].reshape(site.output.shape)
            found |= (label.astype(np.int64) & 0xFF) << shift
        planes = first + size * np.arange(form["planes"])
        byte = np.where(found[..., None] > 0, found[..., None] - 1 + planes, -1)
        return Placed(name, form["node"], byte, bool(form["codes"]))

    def _input(self, name: str, segment: str) -> Placed:
        """Return where an input lies: its elements are numbered, then laid out as the host does it."""
        tensor = self._graph.tensors[name]
        number = np.arange(1, tensor.size + 1).reshape(tensor.shape)
        empty, full = (self._packed(name, segment, np.full(tensor.shape, fill)) for fill in (0, 0xFF))
        found = np.zeros(empty.size, np.int64)
        for shift in range(0, tensor.size.bit_length(), BITS):
            found |= self._packed(name, segment, number >> shift & 0xFF).astype(np.int64) << shift
        held = np.flatnonzero(empty != full)  # the other bytes are padding
        byte = np.full(tensor.size, -1, np.int64)
        address = next(each.address for each in self._image.segments if each.name == segment)
        byte[found[held[::-1]] - 1] = address + held[::-1]  # of several places, the first
        return Placed(name, "", byte.reshape(*tensor.shape, 1), True)

    def _packed(self, name: str, segment: str, label: Array) -> Array:
        tensor = self._graph.tensors[name]
        codes = given_back(label.astype(np.uint8).view(np.int8), tensor)
        assert held_codes(codes).dtype == np.int8
        return pack(self._launch, self._graph, {**self._values, name: codes[None]})[segment][0]
