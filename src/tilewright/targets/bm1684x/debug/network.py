"""A launch of a compiled network for the debugger (see sim/walk.py). It uses the same machine as `launch/run.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from tilewright.array import Array, one_thread
from tilewright.errors import MachineError
from tilewright.graph.ir import Tensor
from tilewright.sim.findings import Finding
from tilewright.sim.passes import RunOptions
from tilewright.sim.steps import Trace
from tilewright.sim.walk import PlacedTensor, Range, State, numbers
from tilewright.targets.bm1684x.config import DDR_BASE, LOCAL_BASE
from tilewright.targets.bm1684x.debug.commands import CommandState, CommandWalk, Located, bytes_of, layout_of, where
from tilewright.targets.bm1684x.isa.elaborate import UNITS
from tilewright.targets.bm1684x.isa.operations import TIU
from tilewright.targets.bm1684x.isa.stream import EncodedCommand, decode
from tilewright.targets.bm1684x.launch.image import MemoryTensor, QueueImage
from tilewright.targets.bm1684x.launch.listing import line
from tilewright.targets.bm1684x.launch.run import Bm1684xLaunch, Machine
from tilewright.targets.bm1684x.layouts.samples import SampleFormat


class TensorPlace(NamedTuple):
    """A tensor of the graph in memory, computed by the layer with index `layer` (-1: an input).

    If `computed` is not 0, the place contains only some rows, from `row` on, and they are complete after `computed`
    compute commands.
    """

    placed_tensor: MemoryTensor
    tensor: Tensor
    layer: int
    row: int = 0
    computed: int = 0

    @property
    def form(self) -> SampleFormat:
        return self.placed_tensor.form


class NetworkState(CommandState):
    """The memories of one launch after some commands of a network (see sim.walk.State)."""

    walk: NetworkWalk
    machine: Machine

    def execute(self, steps: Array) -> None:
        with one_thread():
            self.machine.execute(self.walk.steps[row] for row in steps.tolist())

    def copy(self) -> Self:
        duplicate = copy(self)
        duplicate.machine = self.machine.copy()
        return duplicate

    def local(self) -> Array:
        return self.machine.local()[0]

    def dram(self, address: int, size: int) -> Array:
        """Return the bytes at a bus address. Raises MachineError for an address outside of all memories."""
        if address >= DDR_BASE:
            return super().dram(address, size)
        low = address - LOCAL_BASE
        if not 0 <= low <= low + size <= self.walk.config.local_bytes:
            raise MachineError("local memory", f"{address:#x}..{address + size:#x} is not inside")
        return self.local().reshape(-1)[low : low + size]

    @property
    def nbytes(self) -> int:
        return self.machine.nbytes


class NetworkWalk(CommandWalk):
    """One launch of a compiled network, with the values of its inputs (see sim.walk.Walk)."""

    def __init__(self, launched: Bm1684xLaunch, values: Mapping[str, Array]) -> None:
        prepared = launched.prepared
        launch = launched.launch
        config = launched.config
        super().__init__(launch.name, launch.nodes, prepared.program, config)
        self._prepared = prepared
        self.image = prepared.image
        self._graph = launched.program.graph
        self._launched = launched
        self._values = values
        if self._graph:
            self.layer = prepared.layers
        self.segments = tuple(_segments(prepared.image))
        # The first space of the step table is DDR, and each further space is a range of lanes. `_edges` has the first
        # lane of each range, then the number of lanes.
        self._edges = np.cumsum([0, *(space.size // config.lane_bytes for space in self.table.spaces[1:])])

    @cached_property
    def findings(self) -> Sequence[Finding]:
        return self._prepared.findings(RunOptions(timing=self._prepared.timing, values=False))

    @cached_property
    def trace(self) -> Trace | None:
        return self._prepared.passes.trace

    @cached_property
    def _encoded(self) -> Mapping[tuple[str, int], EncodedCommand]:
        commands = (command for unit in UNITS for command in decode(unit, self.image.queues[unit]))
        return {(command.engine, command.id): command for command in commands}

    def details(self, step: int) -> Sequence[str]:
        queued = self.steps[step]
        return [f"  {line(self._encoded[queued.engine, queued.id], self.config, step)}", *super().details(step)]

    def start(self) -> NetworkState:
        """Return the state before the first command. All samples of the batch are equal to the given sample."""
        names = [segment.name for segment in self.image.inputs] if self._graph else []
        inputs = {name: np.repeat(self._values[name][:1], self.image.batch, axis=0) for name in names}
        return NetworkState(self, Machine(self.image, self.config, self._launched.pack(inputs), 1))

    def located(self, addresses: Array) -> Iterator[Located]:
        if not addresses.size:
            return
        if int(addresses[0]) >= DDR_BASE:
            yield 0, slice(None), addresses - DDR_BASE
            return
        lane, byte = np.divmod(addresses - LOCAL_BASE, self.config.lane_bytes)
        part = np.searchsorted(self._edges, lane, "right") - 1
        low = self._edges[part]
        # As in launch/image.py, byte b in lane l of a range has the number b * (lanes of the range) + l.
        element = byte * (self._edges[part + 1] - low) + lane - low
        for number in np.unique(part).tolist():
            selected = part == number
            yield number + 1, selected, element[selected]

    def shown(self, space: int, element: int) -> str:
        if space == 0:
            return super().shown(space, element)
        low = int(self._edges[space - 1])
        width = int(self._edges[space] - self._edges[space - 1])
        bank, byte = divmod(element // width, self.config.bank_bytes)
        return f"local[{low + element % width}, {bank}, {byte}]"

    @cached_property
    def _places(self) -> dict[str, TensorPlace]:
        graph = self._graph
        if graph is None:
            return {}
        places = {placed.name: TensorPlace(placed, graph.tensors[placed.name], -1) for placed in self.image.inputs}
        for index, node in enumerate(self.layers):
            for output in graph.node(node).outputs:
                tensor = graph.tensors[output]
                for placed, row, computed in self.image.local_results:
                    if placed.name == output:
                        # a launch in parts computes each part of a tensor at a place of its own
                        name = f"{output}, rows {row}..{row + placed.form.h - 1}" if computed else output
                        places[name] = TensorPlace(placed, tensor, index, row, computed)
                for placed in self.image.outputs:
                    if placed.name == output:
                        places[output] = TensorPlace(placed, tensor, index)
        return places

    @property
    def tensors(self) -> Sequence[str]:
        return tuple(self._places)

    def place(self, tensor: str) -> PlacedTensor:
        placed, of, index, row, computed = self._places[tensor]
        form = placed.form
        shape = of.shape
        part = None
        c, h, w = form.sizes
        last = None
        layout = f"{form.dtype}, by phase" if form.phases else f"{form.dtype}, chw"
        if placed.address < DDR_BASE:
            if computed:
                part = (slice(None), slice(row, row + h))
                shape = (shape[0], h, *shape[2:])
            c = c if form.dtype.is_float else SampleFormat.of(of).c  # others are replicas (compiler/layer.py)
            local = form.local(placed.address - LOCAL_BASE, self.config)[:, :c]
            address = local.addresses.reshape(c, h, w)
            last = self._complete(index, computed)
            if not form.dtype.is_float:
                address = address.transpose(1, 2, 0)
            layout = f"{form.dtype}, chw, {layout_of(local)}, from {where(local)} on"
        else:
            address = placed.address + form.places.clip(0) * form.dtype.bytes
        node = self.layers[index] if index >= 0 else ""
        byte = bytes_of(address.reshape(shape), form.dtype.bytes)
        is_code = not form.dtype.is_float
        dtype = form.dtype.storage.str
        return PlacedTensor(tensor, node, byte, is_code, dtype, last, layout, of.name, part)

    def value(self, state: State, tensor: str) -> Array:
        placed = self.placed(tensor)
        lying = self._places[tensor]
        return lying.form.decoded(numbers(state, placed.byte, placed.dtype), lying.tensor)

    def _complete(self, index: int, computed: int) -> Array:
        # A part of a result is complete after the first `computed` compute commands. A whole result is complete after
        # all compute commands up to its layer, and the layer's own transfers into local memory.
        compute = [row for row, step in enumerate(self.steps) if step.engine == TIU]
        if computed:
            return np.array([row for row in compute if self.steps[row].id <= computed], np.int64)
        layer_rows = np.flatnonzero(self.layer == index).tolist()
        loads = [row for row in layer_rows if self.steps[row].command.results["y"].storage.is_local]
        return np.array(sorted({*loads, *(row for row in compute if self.layer[row] <= index)}), np.int64)


def _segments(image: QueueImage) -> Iterator[Range]:
    if image.constants.size:
        yield Range("constants", DDR_BASE, len(image.constants), "const", 0, DDR_BASE)
    for kind, tensors in (("input", image.inputs), ("output", image.outputs)):
        for segment in tensors:
            yield Range(segment.name, segment.address, segment.form.nbytes * image.batch, kind, 0, DDR_BASE)
