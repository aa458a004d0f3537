"""The contract between a debugger and a machine: one launch that can be run instruction by instruction.

A `Walk` knows everything of a launch that does not change while it runs. A `State` is the machine at one moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError
from tilewright.sim.findings import Finding
from tilewright.sim.order import Order
from tilewright.sim.steps import BASE, COUNT, LENGTH, READ, STRIDE, WRITE, StepTable, Trace, live

#: For each space of the step table: a set of up to 64 slices, as bits of a uint64, for each of its elements.
Wanted = list[Array]
#: Elements of one space of the step table: its index, and the elements, int64 [n], ascending.
Elements = tuple[int, Array]
Index = tuple[int | slice, ...]


class Scratchpad(NamedTuple):
    """An on-chip memory: `depth` tiles of `shape`, and the layout of a tile in words. `space` is its step table space.

    `space` is -1 if the step table does not have the memory.
    """

    name: str
    depth: int
    shape: tuple[int, ...]
    dtype: str
    layout: str
    space: int


class Range(NamedTuple):
    """A named part of DRAM: its first byte address, its size in bytes, and its kind (const, input, output, scratch).

    The byte at address a is in element `(a - origin) // granule` of the space with index `space` of the step table.
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


@dataclass(frozen=True, eq=False)
class Placed:
    """A tensor of the network in DRAM, computed by `node` ("": an input of the launch).

    `byte` is int64 [*shape, planes]: the address of each byte of each element, the lowest byte first. An element that
    the machine does not hold has the address -1; of an element that is in DRAM several times, one place is given.
    `is_code` says whether the bytes are the tensor's codes; otherwise they are sums that the host still requantises.
    `last` are the instructions that write the tensor, int64 [n], if its memory is used again in the launch: then the
    tensor is only there from the last of them on. `layout` names the layout, if the machine has several. With `part`,
    this is a part of the tensor `of`: the elements that this index selects.
    """

    name: str
    node: str
    byte: Array
    is_code: bool
    last: Array | None = None
    layout: str = ""
    of: str = ""
    part: tuple[slice, ...] | None = None


@dataclass(frozen=True, eq=False)
class Operand:
    """An operand of one instruction in memory: its bytes, as in `Placed`, its layout in words, and its number type."""

    byte: Array
    layout: str
    dtype: str
    written: bool = False


class State(Protocol):
    """A machine at one moment of a launch, for one sample."""

    def execute(self, steps: Array) -> None:
        """Execute the instructions `steps`, int64 [k], in this order."""

    def copy(self) -> Self:
        """Return a copy that later instructions do not change. It shares the bytes of DRAM until they are written."""

    def memory(self, name: str) -> Array:
        """Return the content of an on-chip memory, an array (depth, *shape) of the types in `Walk.memories`."""

    def dram(self, address: int, size: int) -> Array:
        """Return bytes of DRAM, uint8 [size]. Raises MachineError if they are not inside one segment."""

    def outputs(self) -> Mapping[str, Array]:
        """Return the tensors that the launch gives back to the host, (1, *shape) each, as they are at this moment."""

    @property
    def nbytes(self) -> int:
        """The bytes that a copy takes, at most."""


class Walk(Protocol):
    """One launch with its inputs, as a debugger sees it. Instructions have the numbers that `disasm` gives them.

    `layer` int64 [n] is the index of each instruction's layer in `layers`. `granule` is the number of bytes of one
    element of DRAM. `refused` has the reason why an instruction cannot be executed, by its number. `findings` are those
    of the launch's check. A machine's class inherits this one: what it does not define is what most machines have.
    """

    name: str
    layers: tuple[str, ...]
    layer: Array
    table: StepTable
    order: Order
    memories: Mapping[str, Scratchpad]
    segments: tuple[Range, ...]
    granule: int = 1
    refused: Mapping[int, str]

    @property
    def findings(self) -> Sequence[Finding]:
        return ()

    @property
    def trace(self) -> Trace | None:
        """The times of all instructions; None if the launch cannot run to its end."""
        return None

    def text(self, step: int) -> str:
        """Return an instruction as `disasm` prints it."""
        return self.table.describe(step)

    def operation(self, step: int) -> str:
        """Return the name of an instruction's operation: the first word of its text."""
        return self.text(step).split()[0]

    def details(self, step: int) -> Sequence[str]:
        """Return lines about an instruction that its text does not have: the micro-ops that it executes."""
        return ()

    def operands(self, step: int) -> Mapping[str, Operand]:
        """Return the operands of an instruction that are in memory, results included, by name."""
        return {}

    def start(self) -> State:
        """Return the state before the first instruction."""
        ...

    def backward(self, step: int, wanted: Wanted) -> int:
        """Go back over one instruction, from the elements that are wanted after it to those wanted before it.

        Change `wanted` in place: an element that the instruction overwrites is no longer wanted, the elements that it
        was computed from are. Return the bits of the slices in which the instruction computed a wanted element. This
        default takes the footprint: everything that an instruction writes depends on everything that it reads.
        """
        return by_footprint(self.table, step, wanted)

    @property
    def tensors(self) -> Sequence[str]:
        """The names of the tensors that the launch reads or computes in its memories, in the order of its layers."""
        return ()

    def placed(self, tensor: str) -> Placed:
        """Return where a tensor lies. Raises InputError, with the known names, if the launch does not hold it."""
        raise InputError(f"tensor '{tensor}'", "is not in the memories of this launch", "see `tensors`")

    def value(self, state: State, tensor: str) -> Array:
        """Return a tensor's codes as the machine holds them at this moment, an array of the tensor's shape.

        If the host requantises the machine's sums, they are requantised here. Raises InputError as `placed` does.
        """
        return state.outputs()[self.placed(tensor).name][0]

    def sums(self, state: State, tensor: str) -> tuple[Array, Array] | None:
        """Return a tensor's sums as they lie in DRAM, and their offset from sums of codes less zero points.

        Both are int64 of the tensor's shape. None: the machine does not hold the tensor as sums of products.
        """
        return None

    def in_memory(self, name: str, index: Index) -> Sequence[Elements]:
        """Return the elements of the step table that are the part `index` of an on-chip memory."""
        chip = self.memories[name]
        return [(chip.space, np.atleast_1d(np.arange(chip.depth)[index[0] if index else slice(None)]))]

    def at(self, addresses: Array) -> Sequence[Elements]:
        """Return the elements of the step table that hold the bytes at addresses of DRAM, int64 [n], ascending."""
        found = []
        for space, origin in dict.fromkeys((part.space, part.origin) for part in self.segments):
            ranges = [part for part in self.segments if (part.space, part.origin) == (space, origin)]
            low, end = min(part.address for part in ranges), max(part.end for part in ranges)
            mine = addresses[(addresses >= low) & (addresses < end)]
            if mine.size:
                found.append((space, np.unique((mine - origin) // self.granule)))
        return found

    def shown(self, space: int, element: int) -> str:
        """Return how a user names one element of a space: a tile, or the bytes of a granule of DRAM in its segment."""
        for part in self.segments:
            at = element * self.granule + part.origin - part.address
            if part.space == space and 0 <= at < part.size:
                return f"dram.{part.name}[{at}:{min(at + self.granule, part.size)}]"
        return f"{self.table.spaces[space].name}[{element}]"


def numbers(state: State, byte: Array, dtype: str) -> Array:
    """Return the numbers whose bytes lie at `byte`, int64 [*shape, bytes of a number]; 0 for those without a place."""
    known = byte[byte >= 0]
    if not known.size:
        return np.zeros(byte.shape[:-1], dtype)
    low, end = int(known.min()), int(known.max()) + 1
    data = state.dram(low, end - low)
    found = np.where(byte >= 0, data[np.maximum(byte - low, 0)], np.uint8(0))
    return np.ascontiguousarray(found).view(dtype)[..., 0]


def by_footprint(table: StepTable, step: int, wanted: Wanted) -> int:
    """Go back over one instruction by its footprint (see Walk.backward)."""
    rows = table.footprints.of_step(int(table.footprint[step]))
    touched = [(int(mode), int(space), _elements(row)) for row in rows[live(rows)] for space, mode in [row[:2]]]
    bits = np.uint64(0)
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
