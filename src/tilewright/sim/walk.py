"""The contract between a debugger and a machine: one launch that can be run instruction by instruction.

A `Walk` has the data of a launch that do not change while the launch runs. A `State` is the machine at one moment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError
from tilewright.sim.findings import OUT_OF_RANGE, Finding
from tilewright.sim.order import Order
from tilewright.sim.steps import BASE, COUNT, LENGTH, READ, STRIDE, WRITE, StepTable, Trace, live

#: For each space of the step table, uint64 [elements]: the slices that contain an element, one bit for each slice. The
#: slice of a result is the set of elements and instructions from which the result was computed.
SliceBits = list[Array]
#: Elements of one space of the step table: the index of the space, and the elements, int64 [n], ascending.
Elements = tuple[int, Array]
Index = tuple[int | slice, ...]
#: The number type of sums in DRAM.
SUMS = "<i4"


class Scratchpad(NamedTuple):
    """An on-chip memory of `depth` tiles with the shape `shape`; `layout` describes a tile in words.

    `space` is the index of the memory in the step table, or -1 if the step table does not have it.
    """

    name: str
    depth: int
    shape: tuple[int, ...]
    dtype: str
    layout: str
    space: int

    def printed(self) -> str:
        return f"{self.name:8} {self.depth} tiles of {'x'.join(map(str, self.shape))} {self.dtype}, {self.layout}"


class Range(NamedTuple):
    """A named part of DRAM: its first byte address, its size in bytes, and its kind (const, input, output, scratch).

    The byte at address a is in element `(a - origin) // granule` of space number `space` of the step table.
    """

    name: str
    address: int
    size: int
    kind: str
    space: int
    origin: int = 0

    @property
    def end(self) -> int:
        return self.address + self.size

    def printed(self) -> str:
        return f"dram.{self.name:6} {self.address:#x}..{self.end:#x}, {self.size} bytes, {self.kind}"


@dataclass(frozen=True, eq=False)
class PlacedTensor:
    """A tensor of the network in DRAM, computed by `node` ("": an input of the launch)."""

    name: str
    node: str
    #: int64 [*shape, planes]: the address of each byte of each element, the lowest byte first. The address is -1 for an
    #: element that is not in DRAM. If DRAM has several copies of an element, the address belongs to one of them.
    byte: Array
    #: Whether the bytes are the tensor's codes; if not, they are sums that the host still requantises.
    is_code: bool
    #: The number type of the bytes.
    dtype: str = "int8"
    #: The instructions that write the tensor, int64 [n]; only given if the launch uses its memory for other data, too.
    #: The tensor is in DRAM after all of these instructions have run.
    last: Array | None = None
    #: The name of the layout, if the machine has several.
    layout: str = ""
    #: If `part` is given, this tensor has the elements `of[part]` of the tensor `of`.
    of: str = ""
    part: tuple[slice, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        shape = list(self.byte.shape[:-1])
        return {"name": self.name, "node": self.node, "shape": shape, "layout": self.layout}


@dataclass(frozen=True, eq=False)
class Operand:
    """An operand of one instruction in memory: its bytes as in `PlacedTensor`, its layout in words, its number type."""

    byte: Array
    layout: str
    dtype: str
    written: bool = False


class State(ABC):
    """A machine at one moment of a launch, for one sample.

    The attributes of `machine` hold its values. `State.copy` copies every value that has a method `copy`, such as an
    array. `machine.dram` is a Dram (program/launch_image.py). Each memory of `walk.memories` is an array
    (1, depth, *shape). A target with another kind of machine overrides the methods that read `machine`.
    """

    def __init__(self, walk: Walk, machine: Any) -> None:
        self.walk = walk
        self.machine = machine
        self._written = 0  # bytes of DRAM that are not shared with an earlier copy

    @abstractmethod
    def execute(self, steps: Array) -> None:
        """Execute the instructions `steps`, int64 [k], in this order."""

    def copy(self) -> Self:
        """Return a copy that later instructions do not change. The bytes of DRAM are shared until they are written."""
        later = copy(self)
        later._written = self.machine.dram.own_bytes
        later.machine = copy(self.machine)
        for name, value in vars(self.machine).items():
            if hasattr(value, "copy"):
                setattr(later.machine, name, value.copy())
        return later

    def memory(self, name: str) -> Array:
        """Return the content of an on-chip memory, (depth, *shape); `Walk.memories` has its type."""
        content: Array = getattr(self.machine, name)[0]
        return content

    def dram(self, address: int, size: int) -> Array:
        """Return bytes of DRAM, uint8 [size]. Raises MachineError if the range is not inside one segment."""
        data: Array = self.machine.dram.window(address, 1, size, 0, "DRAM")[0, 0]
        return data

    @property
    def nbytes(self) -> int:
        """The approximate size of a copy in bytes: its memories, and the DRAM that no earlier copy shares."""
        return sum(self.memory(name).nbytes for name in self.walk.memories) + self._written


class Walk(ABC):
    """One launch with its inputs, as a debugger sees it. Instructions are numbered as in `disasm`.

    `layers` lists the nodes that the launch computes; `layer` int64 [n] is the index of each instruction's layer.
    `granule` is the number of bytes of one element of DRAM. Each machine has a subclass. The methods here are defaults
    for most machines.
    """

    memories: Mapping[str, Scratchpad]
    segments: tuple[Range, ...]
    granule: int = 1

    def __init__(self, name: str, layers: Sequence[str], table: StepTable, order: Order) -> None:
        self.name = name
        self.layers = tuple(layers) or (name,)
        self.table = table
        self.order = order
        self.layer = np.zeros(len(table), np.int64)

    @property
    def findings(self) -> Sequence[Finding]:
        return ()

    @property
    def trace(self) -> Trace | None:
        """The times of all instructions; None if the launch cannot run to its end."""
        return None

    @cached_property
    def refused(self) -> Mapping[int, str]:
        """For each instruction that accesses memory out of range: its number, and the text of the finding."""
        return refusals(self.findings)

    def unit_of(self, step: int) -> str:
        return self.table.units[self.table.unit[step]]

    def layer_of(self, step: int) -> str:
        return self.layers[self.layer[step]]

    def text(self, step: int) -> str:
        """Return an instruction as `disasm` prints it."""
        return self.table.describe(step)

    def operation(self, step: int) -> str:
        return self.text(step).split()[0]

    def details(self, step: int) -> Sequence[str]:
        """Return further lines about an instruction, such as the micro-ops that it executes."""
        return ()

    def operands(self, step: int) -> Mapping[str, Operand]:
        """Return the operands and results that an instruction has in memory, by name."""
        return {}

    @abstractmethod
    def start(self) -> State:
        """Return the state before the first instruction."""

    def backward(self, step: int, wanted: SliceBits) -> int:
        """Update the slices in `wanted` from the state after an instruction to the state before this instruction.

        From each slice, remove the elements that the instruction writes, and add the elements from which they were
        computed. Return a mask of the slices that have changed: the instruction belongs to these slices. This default
        assumes that every element that an instruction writes depends on all elements that it reads.
        """
        return by_footprint(self.table, step, wanted)

    @cached_property
    def placements(self) -> Mapping[str, PlacedTensor]:
        """The tensors that the launch reads or computes in its memories, by name, in the order of its layers."""
        return {}

    @property
    def tensors(self) -> Sequence[str]:
        """The names that `place` accepts. A machine may override both methods, to compute placements on demand."""
        return tuple(self.placements)

    def placed(self, tensor: str) -> PlacedTensor:
        """Return the placement of a tensor. Raises InputError, with the known names, if the name is unknown."""
        if tensor not in self.tensors:
            remedy = ", ".join(self.tensors) or "show DRAM by address or segment"
            raise InputError(f"tensor '{tensor}'", f"is not in the memories of launch '{self.name}'", remedy)
        return self.place(tensor)

    def place(self, tensor: str) -> PlacedTensor:
        return self.placements[tensor]

    def value(self, state: State, tensor: str) -> Array:
        """Return a tensor's codes at this moment, an array of the tensor's shape.

        If the machine stores sums that the host requantises, the codes are computed from these sums. Raises InputError
        if the name is unknown.
        """
        placed = self.placed(tensor)
        if placed.is_code:
            return numbers(state, placed.byte, placed.dtype)
        return self.unpacked(state)[tensor][0]

    def unpacked(self, state: State) -> Mapping[str, Array]:
        """Return the current values of the tensors that the launch returns to the host, (1, *shape) each."""
        raise NotImplementedError

    def sums(self, state: State, tensor: str) -> tuple[Array, Array] | None:
        """Return the sums that DRAM holds for a tensor, and their differences from the sums of `code - zero_point`.

        Both arrays are int64 of the tensor's shape. None: the machine does not store this tensor as sums of products.
        """
        placed = self.placed(tensor)
        if placed.is_code or placed.dtype != SUMS:
            return None
        sums = numbers(state, placed.byte, placed.dtype).astype(np.int64)
        return sums, np.zeros_like(sums)

    def in_memory(self, name: str, index: Index) -> Sequence[Elements]:
        """Return the step table's elements for the part `index` of an on-chip memory."""
        chip = self.memories[name]
        return [(chip.space, np.atleast_1d(np.arange(chip.depth)[index[0] if index else slice(None)]))]

    def at(self, addresses: Array) -> Sequence[Elements]:
        """Return the elements of the step table that contain the bytes at these DRAM addresses (int64 [n])."""
        elements = []
        for space, origin in dict.fromkeys((part.space, part.origin) for part in self.segments):
            ranges = [part for part in self.segments if (part.space, part.origin) == (space, origin)]
            low = min(part.address for part in ranges)
            end = max(part.end for part in ranges)
            in_space = addresses[(addresses >= low) & (addresses < end)]
            if in_space.size:
                elements.append((space, np.unique((in_space - origin) // self.granule)))
        return elements

    def segment_at(self, space: int, element: int) -> tuple[Range, int] | None:
        """Return the segment of DRAM that contains an element of a space, and the element's first byte in it."""
        for part in self.segments:
            offset = element * self.granule + part.origin - part.address
            if part.space == space and 0 <= offset < part.size:
                return part, offset
        return None

    def shown(self, space: int, element: int) -> str:
        """Return the text for one element of a space: a tile, or a range of bytes in a segment of DRAM."""
        place = self.segment_at(space, element)
        if place is None:
            return f"{self.table.spaces[space].name}[{element}]"
        part, low = place
        return f"dram.{part.name}[{low}:{min(low + self.granule, part.size)}]"


def by_name(*chips: Scratchpad) -> Mapping[str, Scratchpad]:
    return {chip.name: chip for chip in chips}


def ranges_by_address(segments: Iterable[tuple[str, int, int, str]], first: int) -> tuple[Range, ...]:
    """Return segments of DRAM (name, address, size, kind) as ranges, sorted by address.

    Each segment has a space in the step table: `first` for the lowest address, then `first` + 1, and so on.
    """
    by_address = sorted(segments, key=lambda part: part[1])
    return tuple(
        Range(name, address, size, kind, space, address)
        for space, (name, address, size, kind) in enumerate(by_address, first)
    )


def refusals(findings: Iterable[Finding]) -> dict[int, str]:
    """Return, for each instruction that accesses memory out of range, its number and the text of the finding."""
    return {finding.steps[0]: finding.message for finding in findings if finding.kind == OUT_OF_RANGE and finding.steps}


def numbers(state: State, byte: Array, dtype: str) -> Array:
    """Read numbers from DRAM. `byte` has the address of each byte, int64 [*shape, bytes of a number]; -1 reads as 0."""
    places = byte[byte >= 0]
    if not places.size:
        return np.zeros(byte.shape[:-1], dtype)
    low = int(places.min())
    end = int(places.max()) + 1
    data = state.dram(low, end - low)
    values = np.where(byte >= 0, data[np.maximum(byte - low, 0)], np.uint8(0))
    return np.ascontiguousarray(values).view(dtype)[..., 0]


def by_footprint(table: StepTable, step: int, wanted: SliceBits) -> int:
    rows = table.footprints.of_step(int(table.footprint[step]))
    touched = [(int(mode), int(space), _elements(row)) for row in rows[live(rows)] for space, mode in [row[:2]]]
    bits = np.uint64(0)
    # All writes come first. Otherwise an element that the instruction reads and writes would be removed from the slice.
    for mode, space, elements in touched:
        if mode & WRITE:
            bits |= np.bitwise_or.reduce(wanted[space][elements], initial=np.uint64(0))
            wanted[space][elements] = 0
    if bits:
        for mode, space, elements in touched:
            if mode & READ:
                wanted[space][elements] |= bits
    return int(bits)


def _elements(row: Array) -> Array:
    base, length, count, stride = row[[BASE, LENGTH, COUNT, STRIDE]].tolist()
    return (base + stride * np.arange(count)[:, None] + np.arange(length)).reshape(-1)
