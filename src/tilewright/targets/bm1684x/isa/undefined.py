"""Report an uninitialised read only if its value reaches DDR or decides which elements a command moves.

A correct program may read memory that it never wrote: even code of the vendor's compiler multiplies columns that were
never loaded, and then does not store the products. Values of uninitialised reads are therefore followed through the
commands of the launch, element by element, as Memcheck follows undefined bits (Seward and Nethercote, USENIX 2005).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.array import Array, ascending
from tilewright.sim.findings import UNINITIALISED, Finding
from tilewright.sim.hazards import UNWRITTEN, finding, hazards
from tilewright.sim.steps import READ
from tilewright.targets.bm1684x.isa.command import Command
from tilewright.targets.bm1684x.isa.elaborate import ElaboratedProgram
from tilewright.targets.bm1684x.isa.operation import PER_ELEMENT, Flow
from tilewright.targets.bm1684x.isa.operations import Values
from tilewright.targets.bm1684x.isa.operations.products import sides
from tilewright.targets.bm1684x.layouts.tensor import Operand
from tilewright.targets.bm1684x.values.memory import of_addresses

#: The shadow of a byte is DEFINED, NEVER (never written), or 1 + the step of an uninitialised read: the origin of the
#: byte's value.
DEFINED = 0
NEVER = -1
#: The largest number of ranges that a finding lists.
MOST = 256


def findings(program: ElaboratedProgram) -> list[Finding]:
    """Return all races, and the uninitialised reads whose values reach DDR or decide which elements a command moves."""
    reported = hazards(program.table, program.order)
    if all(item.kind != UNINITIALISED for item in reported):
        return reported
    return [*_Shadow(program).run(), *(item for item in reported if item.kind != UNINITIALISED)]


class _Shadow:
    """The shadow memory stores, for each undefined byte, the step of the uninitialised read that is its origin."""

    def __init__(self, program: ElaboratedProgram) -> None:
        self._program = program
        self._of: list[Array] = []
        for space in program.table.spaces:
            shadow = np.zeros(space.size, np.int32)
            # Mark each gap from the end of an initialised range to the start of the next range as NEVER.
            edges = [0, *(edge for ranges in space.initialised for edge in ranges), space.size]
            for low, high in zip(edges[::2], edges[1::2], strict=True):
                shadow[low:high] = NEVER
            self._of.append(shadow)
        self._reads: dict[int, list[tuple[int, int, int]]] = {}  # step: space, low, high
        self._blamed: set[int] = set()

    def run(self) -> list[Finding]:
        for step in self._program.order.sequence.tolist():
            self._step(step, self._program.steps[step].command)
        reports = []
        for step in sorted(self._blamed):
            reads = self._reads[step]
            ranges = [(low, high) for space, low, high in reads if space == reads[0][0]]
            reports.append(finding(self._program.table, (UNWRITTEN, step, reads[0][0]), ranges[:MOST]))
        return reports

    def _step(self, step: int, command: Command) -> None:
        origins = {
            name: self._read(step, command, name, operand) for mode, name, operand in command.in_memory if mode == READ
        }
        bad = {name: origin for name, origin in origins.items() if origin.any()}
        # Undefined indices and masks are reported immediately, because they decide which elements move, even if the
        # moved values never reach DDR.
        for name in command.operation.deciding:
            self._blame(bad.get(name, np.zeros(0, np.int32)))
        for name, result in command.results.items():
            self._write(command, name, result, _flow(command, result, origins) if bad else np.zeros((), np.int32))

    def _place(self, command: Command, name: str, operand: Operand) -> tuple[int, Array, Array] | None:
        addresses = operand.addresses.reshape(-1)
        for space, region in enumerate(self._program.regions):
            if addresses.size and region.base <= addresses[0] < region.end:
                at = (addresses[:, None] - region.base + np.arange(operand.dtype.bytes)).clip(0, len(region.data) - 1)
                touched = np.broadcast_to(command.touched.get(name, np.True_), operand.addresses.shape)
                return space, at, touched.reshape(-1)
        return None

    def _read(self, step: int, command: Command, name: str, operand: Operand) -> Array:
        """Return the origin of each element of an operand: DEFINED, or 1 + the step of an uninitialised read.

        Elements that the command does not touch are DEFINED.
        """
        addresses = operand.addresses
        place = self._place(command, name, operand)
        if place is None:
            return np.zeros(addresses.shape, np.int32)
        space, at, used = place
        shadow = self._of[space][at]  # [elements, bytes of an element]
        never = (shadow == NEVER).any(1) & used
        if never.any():
            base = self._program.regions[space].base
            ranges = of_addresses(np.sort(addresses.reshape(-1)[never]) - base, operand.dtype.bytes)
            self._reads.setdefault(step, []).extend((space, low, high) for low, high in ranges.tolist())
        # The bytes of an element may have several origins. Only the origin with the latest step is kept.
        origins = np.where(never, step + 1, shadow.max(1).clip(0)) * used
        return origins.astype(np.int32).reshape(addresses.shape)

    def _write(self, command: Command, name: str, result: Operand, origins: Array) -> None:
        place = self._place(command, name, result)
        if place is None:
            return
        space, at, used = place
        values = np.broadcast_to(origins, result.addresses.shape).reshape(-1)
        # The origin of an element is stored for all its bytes. A defined result (0) overwrites undefined bytes.
        self._of[space][at[used]] = values[used, None]
        if self._program.regions[space].name == "DDR":
            self._blame(values[used])

    def _blame(self, origins: Array) -> None:
        self._blamed |= {int(origin) - 1 for origin in ascending(origins) if origin != DEFINED}


def _flow(command: Command, result: Operand, origins: Mapping[str, Array]) -> Array:
    """Return, in the result's shape, the origin of each element: DEFINED, or 1 + the step of an uninitialised read.

    If an element depends on several uninitialised reads, its origin is the latest of their steps.
    """
    flow = command.operation.flow
    shape = result.shape
    if flow is Flow.MOVE and "x" in origins:  # a move also moves origins
        values = Values(origins, command.types, {"y": tuple(shape)}, command.attributes)
        return command.operation.results(values)["y"]
    # An undefined element of a factor affects only its row or column of the result. Padding columns that were never
    # loaded are therefore harmless, because their columns of the result are not stored.
    if flow is Flow.PRODUCT and {"L", "R"} <= origins.keys():
        left, right = sides(origins["L"], origins["R"], command.attributes)
        parts = [left.max(1)[:, None], right.max(0)[None], *(origins[key] for key in ("bias", "acc") if key in origins)]
        return _joined(parts, tuple(shape))
    # In an element-wise operation, each element of the result inherits the origins of its own source elements. For any
    # other operand, such as a table or the weights, one undefined element makes the whole result undefined.
    placed = PER_ELEMENT if flow in (Flow.ELEMENTWISE, Flow.PAIRS) else ()
    parts = [origin if key in placed else origin.max(initial=0) for key, origin in origins.items()]
    return _joined(parts, tuple(shape))


def _joined(parts: list[Array], shape: tuple[int, ...]) -> Array:
    """Return, for each element of `shape`, the highest origin in any of `parts`."""
    origins = np.zeros(shape, np.int32)
    for part in parts:
        try:
            np.maximum(origins, np.broadcast_to(part, shape), out=origins)
        except ValueError:  # shapes differ: any element of the part may affect any element of the result
            np.maximum(origins, part.max(initial=0), out=origins)
    return origins
