"""A command: an operation on operands in memory. Running one, and what it touches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.sim.steps import BASE, LENGTH, READ, STRIDE, WRITE, row_of_runs, runs
from tilewright.targets.bm1684x.isa.operations import OPTIONAL, TIU, Operation, Values
from tilewright.targets.bm1684x.isa.operations.rules import COMPUTE, PLACES
from tilewright.targets.bm1684x.layouts.layout import Operand
from tilewright.targets.bm1684x.values.dtypes import DType
from tilewright.targets.bm1684x.values.floats import narrow
from tilewright.targets.bm1684x.values.memory import Memories, Region

#: Elements of a run from which on the runs of an operand are taken as they come.
SCATTERED = 4


@dataclass(frozen=True)
class Constant:
    """An operand that stands in the command itself, as the bits of its type."""

    bits: int
    dtype: DType
    shape: ClassVar[tuple[int, ...]] = ()

    @property
    def value(self) -> Array:
        return self.dtype.from_bits(self.bits)

    @classmethod
    def of(cls, number: float, dtype: DType) -> Constant:
        """A number as the nearest float, or as an integer. Raises MachineError for one that the type does not hold."""
        if dtype.is_float:
            with np.errstate(over="ignore"):
                bits = narrow(np.array([number], np.float32), dtype).view(f"<u{dtype.bytes}")
            return cls(int(bits[0]), dtype)
        if not math.isfinite(number) or number != int(number) or not dtype.low <= number <= dtype.high:
            raise MachineError("constant", f"{number} is no {dtype}", f"give an integer in {dtype.low}..{dtype.high}")
        return cls(int(number) & ((1 << dtype.bits) - 1), dtype)


@dataclass(frozen=True, eq=False)
class Command:
    """One operation. Operands and results are named as the operation names them; optional ones are left out."""

    operation: Operation
    operands: Mapping[str, Operand | Constant]
    results: Mapping[str, Operand]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    #: By operand and result, which elements it touched when it ran (bool), where that depends on values.
    touched: Mapping[str, Array] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Operand | Constant:
        return self.results[name] if name in self.results else self.operands[name]

    @property
    def places(self) -> dict[str, Operand | Constant]:
        return {**self.operands, **self.results}

    @cached_property
    def in_memory(self) -> tuple[tuple[int, str, Operand], ...]:
        """Operands (READ) and results (WRITE) that are no constants, with their names."""
        read = [(READ, name, place) for name, place in self.operands.items() if not isinstance(place, Constant)]
        return (*read, *((WRITE, name, place) for name, place in self.results.items()))

    @cached_property
    def types(self) -> dict[str, DType]:
        return {name: place.dtype for name, place in self.places.items()}

    def refusal(self) -> str:
        """Why the machine does not run it; empty where it does."""
        if reason := self.operation.refusal(self.types, self.attributes):
            return reason
        rules = PLACES.get(self.operation.name, COMPUTE if self.operation.engine == TIU else ())
        return next((reason for rule in rules if (reason := rule(self.places))), "")

    def footprint(self, regions: Sequence[Region], clipped: bool = False) -> Array:
        """Which bytes of which memories it reads and writes: rows of sim.steps.Footprints.

        Where that depends on values, a command that has run has what it touched, one that has not what it may touch.
        Raises MachineError for bytes outside of the memory that holds the first one; `clipped` leaves them out.
        """
        rows = [np.zeros((0, 6), np.int64)]
        for mode, name, operand in self.in_memory * bool(regions):
            at = operand.addresses
            if name in self.touched:
                at = at[np.broadcast_to(self.touched[name], at.shape)]
            if at.size:
                rows.append(_rows(mode, operand, at.reshape(-1), regions, clipped))
        return np.concatenate(rows)

    def run(self, memories: Memories, touched: dict[str, Array] | None = None) -> Mapping[str, Array]:
        """Read operands, compute, write results; the results' values. Raises MachineError for a refused command.

        A result that is shorter than its operand in memory leaves the rest of it alone. `touched` receives what the
        field of this name says.
        """
        shapes = {name: tuple(result.shape) for name, result in self.results.items()}
        values, found = self.computed(partial(read, memories), shapes)
        if touched is not None and self.operation.touches:
            touched |= self.operation.touches(values, found)
        for name, result in self.results.items():
            write(memories, result, found[name], self.operation)
        return found

    def computed(
        self, read: Callable[[Operand], Array], shapes: Mapping[str, tuple[int, ...]]
    ) -> tuple[Values, Mapping[str, Array]]:
        """What the operation sees and computes, with the values that `read` gives. Raises MachineError."""
        if reason := self.refusal():
            raise MachineError(self.operation.name, reason)
        data = {
            name: operand.value if isinstance(operand, Constant) else read(operand)
            for name, operand in self.operands.items()
        }
        for name in self.operation.inputs:
            if name not in data and name not in OPTIONAL:
                raise MachineError(self.operation.name, f"it has no operand {name}")
        values = Values(data, self.types, shapes, self.attributes)
        try:
            return values, self.operation.results(values)
        except ValueError as error:  # NumPy's word for shapes that do not go together
            raise MachineError(self.operation.name, f"its operands do not fit: {error}") from None


def read(memories: Memories, operand: Operand) -> Array:
    """The operand's values, in its logical shape."""
    return memories.read(operand.addresses, operand.dtype.storage)


def write(memories: Memories, result: Operand, values: Array, operation: Operation) -> None:
    """Store a result. Raises MachineError where its shape is not that of the values."""
    addresses = result.addresses
    if operation.by_data and values.ndim == 1:
        addresses = addresses.reshape(-1)[: values.size]
    try:
        values = np.broadcast_to(values, addresses.shape)
    except ValueError:
        reason = f"its result has the shape {list(values.shape)}, not {list(addresses.shape)}"
        raise MachineError(operation.name, reason, "give operands and results that fit") from None
    memories.write(addresses, np.ascontiguousarray(values).astype(result.dtype.storage, copy=False))


def _rows(mode: int, operand: Operand, addresses: Array, regions: Sequence[Region], clipped: bool) -> Array:
    """The footprint of some elements of one operand, in bytes from the beginning of its memory."""
    size = operand.dtype.bytes
    low, end = int(addresses.min()), int(addresses.max()) + size
    for number, region in enumerate(regions):
        if clipped and region.base <= addresses[0] < region.end:
            addresses = addresses[(addresses >= region.base) & (addresses + size <= region.end)]
            low, end = region.base, region.end
        if region.base <= low and end <= region.end:
            elements = (addresses - region.base) // size
            first = np.flatnonzero(np.diff(elements, prepend=-2) != 1)  # runs in logical order: no memory is searched
            if len(first) * SCATTERED > len(elements):
                rows = runs(number, mode, elements)
            else:
                rows = row_of_runs(number, mode, elements[first], np.diff(first, append=len(elements)))
            rows[:, [BASE, LENGTH, STRIDE]] *= size
            return rows
    if clipped:
        return np.zeros((0, 6), np.int64)
    raise MachineError("memory", f"no memory holds {low:#x}..{end:#x}")
