"""Where the tensors of a VTA launch lie in DRAM, and their values there."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError
from tilewright.graph.ir import Graph
from tilewright.program.launch_image import LaunchImage
from tilewright.program.placement import NOWHERE, Placement
from tilewright.program.program import Launch
from tilewright.sim.walk import Placed
from tilewright.targets.vta.isa.fields import Memory
from tilewright.targets.vta.launch.codes import given_back
from tilewright.targets.vta.launch.layouts import NodeLayout
from tilewright.targets.vta.launch.pack import Result, filled, result_of
from tilewright.targets.vta.steps.moves import Moves


class Tensors:
    """The tensors of one launch in DRAM: those that it reads, then the result of each layer that has one there."""

    def __init__(self, launch: Launch, graph: Graph, image: LaunchImage, moved: Moves) -> None:
        self._launch, self._graph, self._image, self._moved = launch, graph, image, moved
        self._forms = NodeLayout.all_of(launch)
        segments = {segment.name: segment.address for segment in image.segments}
        self._inputs = {
            each.tensor: (each.place, segments[each.segment]) for each in filled(launch, graph) if each.kind == "input"
        }
        self._results: dict[str, tuple[Result, int]] = {}  # the second: its first byte in DRAM
        for index, form in enumerate(self._forms):
            first = self._first(index, form, segments)
            if first is not None:
                result = result_of(launch, graph, index, form)
                self._results[result.site.output.name] = result, first

    @property
    def names(self) -> list[str]:
        return [*self._inputs, *self._results]

    def placed(self, name: str) -> Placed:
        """Return where a tensor lies. Raises InputError, with the known names, if it is not in this launch's DRAM."""
        place, first = self._at(name)
        result, _ = self._results.get(name, (None, 0))
        where = place.where.reshape(*self._graph.tensors[name].shape, -1)
        byte = np.where(where == NOWHERE, NOWHERE, first + where)
        return Placed(name, result.form.node if result else "", byte, result is None or result.form.codes)

    def codes(self, name: str, dram: Callable[[int, int], Array]) -> Array:
        """Return a tensor's codes from the bytes of DRAM; its bytes must be its codes."""
        place, first = self._at(name)
        held = place.unpack(dram(first, place.nbytes)[None])[0]
        tensor = self._graph.tensors[name]
        return given_back(np.ascontiguousarray(held.reshape(tensor.shape)), tensor)

    def sums(self, name: str, dram: Callable[[int, int], Array]) -> tuple[Array, Array] | None:
        """Return a result's sums in DRAM and their offset (see sim.walk.Walk.sums)."""
        if name not in self._results:
            return None
        result, first = self._results[name]
        offset = result.correction
        if result.form.codes or offset is None:
            return None
        sums = result.read(dram(first, result.form.result_bytes)[None])[0]
        return sums.astype(np.int64), np.broadcast_to(offset, sums.shape).astype(np.int64)

    def _at(self, name: str) -> tuple[Placement, int]:
        """Return the placement of a tensor, and the address where it begins. Raises InputError as `placed` does."""
        if name in self._results:
            result, first = self._results[name]
            return result.place, first
        if name not in self._inputs:
            names = ", ".join(self.names)
            raise InputError(f"tensor '{name}'", f"is not in the DRAM of launch '{self._launch.name}'", names)
        return self._inputs[name]

    def _first(self, index: int, form: NodeLayout, segments: Mapping[str, int]) -> int | None:
        """Return the address of the first byte of a layer's result; None if the result is not in DRAM."""
        if form.result is not None:
            return segments[form.result] + form.first * form.tile_bytes
        if not form.codes or any(other.computed_with == form.node for other in self._forms):
            return None  # a later node is computed with this one, so only that node's result is stored
        if form.computed_with:  # of several such nodes, the last one's result is stored
            if any(other.computed_with == form.computed_with for other in self._forms[index + 1 :]):
                return None
            index = next(at for at, other in enumerate(self._forms) if other.node == form.computed_with)
        layer = np.zeros(len(self._moved.memory), np.int64) if self._image.layer is None else self._image.layer
        stores = (self._moved.memory == Memory.OUT) & self._moved.transfers & (layer == index)
        return int(self._moved.address[stores].min()) if stores.any() else None
