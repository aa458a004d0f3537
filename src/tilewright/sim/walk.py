"""The contract between a debugger and a machine: one launch that can be run instruction by instruction.

A `Walk` knows everything of a launch that does not change while it runs. A `State` is the machine at one moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

from tilewright.array import Array
from tilewright.sim.findings import Finding
from tilewright.sim.order import Order
from tilewright.sim.steps import StepTable, Trace

#: For each space of the step table: a set of up to 64 slices, as bits of a uint64, for each of its elements.
Wanted = list[Array]


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
    """A named part of DRAM: its first byte address, its size in bytes, and its kind (const, input, output, scratch)."""

    name: str
    address: int
    size: int
    kind: str


@dataclass(frozen=True, eq=False)
class Placed:
    """A tensor of the network in DRAM, computed by `node` ("": an input of the launch).

    `byte` is int64 [*shape, planes]: the address of each byte of each element, the lowest byte first. An element that
    the machine does not hold has the address -1; of an element that is in DRAM several times, one place is given.
    `is_code` says whether the bytes are the tensor's codes; otherwise they are sums that the host still requantises.
    """

    name: str
    node: str
    byte: Array
    is_code: bool


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
    element of the space DRAM. `refused` has the reason why an instruction cannot be executed, by its number.
    `findings` are those of the launch's check.
    """

    name: str
    layers: tuple[str, ...]
    layer: Array
    table: StepTable
    order: Order
    memories: Mapping[str, Scratchpad]
    segments: tuple[Range, ...]
    granule: int
    refused: Mapping[int, str]

    @property
    def findings(self) -> Sequence[Finding]: ...

    @property
    def trace(self) -> Trace | None:
        """The times of all instructions; None if the launch cannot run to its end."""

    def text(self, step: int) -> str:
        """Return an instruction as `disasm` prints it."""

    def details(self, step: int) -> Sequence[str]:
        """Return lines about an instruction that its text does not have: the micro-ops that it executes."""

    def start(self) -> State:
        """Return the state before the first instruction."""

    def backward(self, step: int, wanted: Wanted) -> int:
        """Go back over one instruction, from the elements that are wanted after it to those wanted before it.

        Change `wanted` in place: an element that the instruction overwrites is no longer wanted, the elements that it
        was computed from are. Return the bits of the slices in which the instruction computed a wanted element.
        """

    @property
    def tensors(self) -> Sequence[str]:
        """The names of the tensors that the launch reads or computes in DRAM, in the order of its layers."""

    def placed(self, tensor: str) -> Placed:
        """Return where a tensor lies. Raises InputError, with the known names, if the launch does not hold it."""

    def value(self, state: State, tensor: str) -> Array:
        """Return a tensor's codes as the machine holds them at this moment, an array of the tensor's shape.

        If the host requantises the machine's sums, they are requantised here. Raises InputError as `placed` does.
        """

    def sums(self, state: State, tensor: str) -> tuple[Array, Array] | None:
        """Return a tensor's sums as they lie in DRAM, and their offset from sums of codes less zero points.

        Both are int64 of the tensor's shape. None: the machine does not hold the tensor as sums of products.
        """
