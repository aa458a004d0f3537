"""A command: an operation with its operands in memory. Methods run the command, and list the bytes that it accesses."""

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
from tilewright.targets.bm1684x.isa.operation import OPTIONAL, TIU, Operation, Values
from tilewright.targets.bm1684x.isa.rules import COMPUTE
from tilewright.targets.bm1684x.layouts.tensor import Operand
from tilewright.targets.bm1684x.values.dtypes import DType
from tilewright.targets.bm1684x.values.floats import narrow
from tilewright.targets.bm1684x.values.memory import Memories, Region

#: If an operand's runs are shorter than this number of elements on average, `sim.steps.runs` searches for a compact
#: description. Otherwise the runs are listed in logical order.
SCATTERED = 4


@dataclass(frozen=True)
class Constant:
    """An operand whose value is part of the command. `bits` is the bit pattern of the value in `dtype`."""

    bits: int
    dtype: DType
    shape: ClassVar[tuple[int, ...]] = ()

    @property
    def value(self) -> Array:
        return self.dtype.from_bits(self.bits)

    @classmethod
    def of(cls, number: float, dtype: DType) -> Constant:
        """Return `number` as a constant, rounded if `dtype` is a float type.

        Raises MachineError if an integer type cannot represent the number.
        """
        if dtype.is_float:
            with np.errstate(over="ignore"):
                bits = narrow(np.array([number], np.float32), dtype).view(f"<u{dtype.bytes}")
            return cls(int(bits[0]), dtype)
        if not math.isfinite(number) or number != int(number) or not dtype.low <= number <= dtype.high:
            remedy = f"give an integer in {dtype.low}..{dtype.high}"
            raise MachineError("constant", f"{number} is not a value of {dtype}", remedy)
        return cls(int(number) & ((1 << dtype.bits) - 1), dtype)


@dataclass(frozen=True, eq=False)
class Command:
    """One operation with its operands and results, by name. An omitted optional operand has no entry."""

    operation: Operation
    operands: Mapping[str, Operand | Constant]
    results: Mapping[str, Operand]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    #: By name of operand or result: a mask (bool) of the elements that the command touched when it ran. There is an
    #: entry only if the touched elements depend on values.
    touched: Mapping[str, Array] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Operand | Constant:
        return self.results[name] if name in self.results else self.operands[name]

    @property
    def places(self) -> dict[str, Operand | Constant]:
        return {**self.operands, **self.results}

    @cached_property
    def in_memory(self) -> tuple[tuple[int, str, Operand], ...]:
        """A tuple (mode, name, operand) for each operand (mode READ) and result (mode WRITE), except for constants."""
        read = [(READ, name, place) for name, place in self.operands.items() if not isinstance(place, Constant)]
        return (*read, *((WRITE, name, place) for name, place in self.results.items()))

    @cached_property
    def types(self) -> dict[str, DType]:
        return {name: place.dtype for name, place in self.places.items()}

    def refusal(self) -> str:
        """Return the reason why the machine refuses the command, or "" if it accepts the command."""
        if reason := self.operation.refusal(self.types, self.attributes):
            return reason
        rules = self.operation.places
        if rules is None:
            rules = COMPUTE if self.operation.engine == TIU else ()
        return next((reason for rule in rules if (reason := rule(self.places))), "")

    def footprint(self, regions: Sequence[Region], clipped: bool = False) -> Array:
        """Return the bytes that the command reads and writes, as rows of sim.steps.Footprints.

        Each region is a space. If the touched elements depend on values, the rows are exact after the run, and before
        it they cover all elements that the command may touch. Raises MachineError if an operand is not within one
        region. With `clipped`, there is no error: the rows omit bytes outside of the region of the operand's first
        element.
        """
        rows = [np.zeros((0, 6), np.int64)]
        for mode, name, operand in self.in_memory if regions else ():
            at = operand.addresses
            # A gather, scatter or selection recorded, when it ran, which elements it touched.
            if name in self.touched:
                at = at[np.broadcast_to(self.touched[name], at.shape)]
            if at.size:
                rows.append(_rows(mode, operand, at.reshape(-1), regions, clipped))
        return np.concatenate(rows)

    def run(self, memories: Memories, touched: dict[str, Array] | None = None) -> Mapping[str, Array]:
        """Read the operands, compute, write the results, and return the values of the results by name.

        If the computed result is shorter than the result in memory, the remaining elements are unchanged. The dict
        `touched` receives the masks for the field `touched`. Raises MachineError if the machine refuses the command.
        """
        shapes = {name: tuple(result.shape) for name, result in self.results.items()}
        values, results = self.computed(partial(read, memories), shapes)
        if touched is not None and self.operation.touches:
            touched |= self.operation.touches(values, results)
        for name, result in self.results.items():
            write(memories, result, results[name], self.operation)
        return results

    def computed(
        self, read: Callable[[Operand], Array], shapes: Mapping[str, tuple[int, ...]]
    ) -> tuple[Values, Mapping[str, Array]]:
        """Return the arguments of the operation, and its results by name.

        `read` returns the values of an operand, and `shapes` has the shapes of the results. Raises MachineError if the
        machine refuses the command, an operand is missing, or the shapes of the operands do not fit together.
        """
        if reason := self.refusal():
            raise MachineError(self.operation.name, reason)
        # All operands are read before any result is written, because a command may work in place.
        data = {
            name: operand.value if isinstance(operand, Constant) else read(operand)
            for name, operand in self.operands.items()
        }
        for name in self.operation.inputs:
            if name not in data and name not in OPTIONAL:
                raise MachineError(self.operation.name, f"operand {name} is missing")
        values = Values(data, self.types, shapes, self.attributes)
        try:
            return values, self.operation.results(values)
        except ValueError as error:  # NumPy raises it for shapes that do not fit
            raise MachineError(self.operation.name, f"the shapes of its operands do not fit: {error}") from None


def read(memories: Memories, operand: Operand) -> Array:
    return memories.read(operand.addresses, operand.dtype.storage)


def write(memories: Memories, result: Operand, values: Array, operation: Operation) -> None:
    """Write `values` to memory. Raises MachineError if `values` do not broadcast to the shape of `result`."""
    addresses = result.addresses
    # A selection of N elements writes only the first N elements of its result.
    if operation.by_data and values.ndim == 1:
        addresses = addresses.reshape(-1)[: values.size]
    try:
        values = np.broadcast_to(values, addresses.shape)
    except ValueError:
        reason = f"it computes the shape {list(values.shape)}, but its result has the shape {list(addresses.shape)}"
        raise MachineError(operation.name, reason, "give a result of the computed shape") from None
    memories.write(addresses, np.ascontiguousarray(values).astype(result.dtype.storage, copy=False))


def _rows(mode: int, operand: Operand, addresses: Array, regions: Sequence[Region], clipped: bool) -> Array:
    size = operand.dtype.bytes
    low = int(addresses.min())
    end = int(addresses.max()) + size
    for number, region in enumerate(regions):
        # With the knob `out_of_bounds=ignore`, bytes outside of the operand's memory are omitted here, and reported
        # elsewhere.
        if clipped and region.base <= addresses[0] < region.end:
            addresses = addresses[(addresses >= region.base) & (addresses + size <= region.end)]
            low = region.base
            end = region.end
        if region.base <= low and end <= region.end:
            elements = (addresses - region.base) // size
            # `first` has the positions of elements that do not directly follow the previous element in memory: a run
            # begins at each. Most operands have long runs. A search for runs that repeat at a constant distance is
            # worthwhile only for scattered operands (with strides, or with channels in many lanes).
            first = np.flatnonzero(np.diff(elements, prepend=-2) != 1)
            if len(first) * SCATTERED > len(elements):
                rows = runs(number, mode, elements)
            else:
                rows = row_of_runs(number, mode, elements[first], np.diff(first, append=len(elements)))
            rows[:, [BASE, LENGTH, STRIDE]] *= size
            return rows
    if clipped:
        return np.zeros((0, 6), np.int64)
    raise MachineError("memory", f"no memory holds {low:#x}..{end:#x}")
