"""A debugging session in Python: the commands of `tilewright debug` as methods that return arrays and records.

session = program.debug(x)
session.to(57)                    # before instruction #57
session.read("acc[37]")           # an array
session.writer("acc[37]").step    # its last writer
session.back()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np

from tilewright.array import Array
from tilewright.debug import when
from tilewright.debug.compare import Difference, differences, segments
from tilewright.debug.launches import Launches, OpenLaunch, ProgramLaunches, SingleLaunch
from tilewright.debug.places import elements, place, touching, values
from tilewright.debug.records import Access, At, Change, Depends, Instruction, Queue, Stop, Touch, Unit, Wait
from tilewright.debug.slices import Suspect, suspects, walk_back
from tilewright.debug.stops import Condition, Point, Search
from tilewright.errors import InputError, MachineError
from tilewright.graph import reference
from tilewright.program.program import Program
from tilewright.sim.steps import BASE, COUNT, LENGTH, MODE, READ, SPACE, STRIDE, WRITE, live
from tilewright.sim.walk import Elements, PlacedTensor, Walk

#: The largest number of writes that `changes` returns.
CHANGES = 64
#: The size limit of the place in `written`: tiles on chip, or bytes of DRAM.
TILES = 16
BYTES = 256


class Session:
    """A program, one sample, and a moment of the program's execution.

    A moment is the time before an instruction of a launch. Instructions are numbered as in `disasm`. If `order` is
    "stream", they run in this order; if it is "time", they run in the order of their start cycles.
    """

    def __init__(
        self,
        program: Program,
        inputs: Array | Mapping[str, Array] | None = None,
        order: str = "stream",
        timing: str | None = None,
        expected: Mapping[str, Array] | None = None,
    ) -> None:
        """Open a program before its first instruction, with the first sample of `inputs`.

        For a program without a network, `expected` has the expected first bytes of DRAM segments after the last launch.
        Raises InputError if the inputs do not fit the network, or if the target has no debugger.
        """
        samples: dict[str, Array] = {}
        if program.graph is not None:
            if inputs is None:
                raise InputError("inputs", "are missing", "give an array, or an array for each input")
            samples = {name: array[:1] for name, array in reference.check_inputs(program.graph, inputs).items()}
            samples |= reference.states(program.graph, samples, None)
        self._begin(ProgramLaunches(program, samples, order, timing), order, expected or {})

    @classmethod
    def of(cls, walk: Walk, title: str, order: str = "stream") -> Self:
        """Open a launch that is not part of a program, such as a kernel. `title` names the launch and its machine.

        Raises InputError for an unknown order.
        """
        session = cls.__new__(cls)
        session._begin(SingleLaunch(walk, title, order), order, {})
        return session

    def _begin(self, launches: Launches, order: str, expected: Mapping[str, Array]) -> None:
        self.order = order
        self.graph = launches.graph
        self._launches = launches
        self._expected = expected
        self._points: dict[int, Point] = {}
        self._last_number = 0
        self._current: OpenLaunch = launches.open(0)
        self._difference: Difference | None = None

    # The present moment

    @property
    def walk(self) -> Walk:
        """The open launch."""
        return self._current.walk

    @property
    def launches(self) -> tuple[str, ...]:
        """The names of the program's launches."""
        return self._launches.names

    def where(self, because: str = "") -> At:
        """Return the present moment."""
        current = self._current
        walk = self.walk
        step = self._step
        position = current.history.position
        stuck = current.stuck
        trace = walk.trace if not stuck else None
        if step is None:
            cycle = trace.cycles if trace else None
            return At(walk.name, None, position, len(walk.table), "", "", cycle, "", stuck, because)
        return At(
            launch=walk.name,
            step=step,
            position=position,
            of=len(walk.table),
            layer=walk.layer_of(step),
            unit=walk.unit_of(step),
            cycle=int(trace.start[step]) if trace else None,
            text=walk.text(step),
            stuck=stuck if position == current.last else "",
            because=because,
        )

    @property
    def _step(self) -> int | None:
        history = self._current.history
        return int(history.sequence[history.position]) if history.position < len(history.sequence) else None

    @property
    def real_numbers(self) -> bool:
        """Whether the machine computes tensors of real numbers. `differs` does not compare such tensors."""
        tensors = self.graph.tensors.values() if self.graph else ()
        return any(tensor.dtype == "float32" and tensor.name in self._launches.computed for tensor in tensors)

    @property
    def written(self) -> str:
        """The place (or its first part) that the previous instruction wrote; "" if the instruction wrote nothing."""
        history = self._current.history
        # Prefer the name of a written operand; without one, use the first written range of the footprint.
        walk = self.walk
        if not history.position:
            return ""
        step = int(history.sequence[history.position - 1])
        for name, operand in walk.operands(step).items():
            if operand.written:
                return f"{step}.{name}"
        for row in _footprint(walk, step):
            space, base, length = (int(row[at]) for at in (SPACE, BASE, LENGTH))
            part = walk.segment_at(space, base)
            for chip in walk.memories.values():
                if row[MODE] & WRITE and chip.space == space:
                    return f"{chip.name}[{base}:{base + min(length, TILES)}]"
            if row[MODE] & WRITE and part:
                low = part[1]
                return f"dram.{part[0].name}[{low}:{low + min(length * walk.granule, BYTES)}]"
        return ""

    @property
    def head(self) -> str:
        """One line about the program and the order of execution."""
        order = "in stream order" if self.order == "stream" else "in the order of their start cycles"
        launches = f"{len(self.launches)} launch{'es' * (len(self.launches) > 1)}"
        return f"{self._launches.title}, {launches}; instructions run {order}"

    # Movement

    def step(self, count: int = 1) -> At:
        """Execute `count` instructions. Raises MachineError if one of these instructions cannot run."""
        current = self._current
        if current.history.position == current.last and count > 0 and current.stuck:
            raise MachineError(f"launch '{self.walk.name}'", f"cannot go on: {current.stuck}")
        return self._move(current.history.position + count)

    def back(self, count: int = 1) -> At:
        """Go back by `count` instructions."""
        return self._move(self._current.history.position - count)

    def to(self, step: int) -> At:
        """Go to the moment before instruction `step` or, if the instruction never runs, to the last reachable moment.

        Raises InputError if there is no such instruction.
        """
        position = int(self._current.position_of[self._checked_step(step)])
        return self._move(position if position >= 0 else self._current.last)

    def start(self) -> At:
        """Go to the start of the launch."""
        return self._move(0)

    def end(self) -> At:
        """Go to the end of the launch, or to the first instruction that cannot run."""
        return self._move(self._current.last)

    def cycle(self, cycle: int) -> At:
        """Go to the first instruction in the order of execution that starts in `cycle` or later.

        Raises MachineError if the launch has no times.
        """
        trace = self.walk.trace
        sequence = self._current.history.sequence
        if trace is None:
            raise MachineError(f"launch '{self.walk.name}'", "has no times: it cannot run to its end")
        later = np.flatnonzero(trace.start[sequence] >= cycle)
        return self._move(int(later[0]) if later.size else self._current.last)

    def layer(self, name: str) -> At:
        """Go to the first instruction of a layer. Raises InputError if the layer has no instructions."""
        launch = self._launches.of_layer(name)
        if launch != self._current.index:
            self.launch(str(launch))
        # Layers of a launch may overlap in time, so search in the order of execution, not in stream order.
        in_layer = self.walk.layer[self._current.history.sequence] == self.walk.layers.index(name)
        if not in_layer.any():
            raise InputError(f"layer '{name}'", "has no instructions: it is computed with another layer, or is a view")
        return self._move(int(np.argmax(in_layer)))

    def launch(self, name: str) -> At:
        """Go to the start of a launch, given by its name or number. Raises InputError for an unknown launch."""
        self._current = self._launches.open(self._launches.number(name))
        return self.where()

    def token(self, queue: str, number: int = 0) -> At:
        """Go to the instruction that pops a token (0, 1, ...) of a queue. Raises InputError for an unknown token."""
        names = [item.name for item in self.walk.table.queues]
        if queue not in names:
            raise InputError(f"queue '{queue}'", "there is none", f"there are {', '.join(names)}")
        pops = np.flatnonzero(self.walk.table.pops >> names.index(queue) & 1)
        if not 0 <= number < len(pops):
            raise InputError(f"token {number}", f"is not one of the {len(pops)} tokens popped from {queue}")
        return self.to(int(pops[number]))

    def run(self) -> At:
        """Execute until a break or watch point, or to the end of the launch."""
        return self._search(forward=True)

    def reverse(self) -> At:
        """Go back to a break or watch point, or to the start of the launch."""
        return self._search(forward=False)

    def until(self, where: str, forward: bool = True) -> At:
        """Go forward (or back) to the moment after the next (or previous) write of a place."""
        point = Point(f"write of {where}", watched=where)
        at, number = Search(self._current, {0: point}).next(self._current.history.position, forward)
        return self._move(at, "" if number is None else point.text)

    def _move(self, position: int, because: str = "") -> At:
        current = self._current
        current.history.move(min(max(position, 0), current.last))
        return self.where(because)

    def _search(self, forward: bool) -> At:
        at, number = Search(self._current, self._points).next(self._current.history.position, forward)
        return self._move(at, "" if number is None else f"{number}: {self._points[number].text}")

    def _checked_step(self, step: int) -> int:
        """Return `step`. Raises InputError if the launch has no such instruction."""
        count = len(self.walk.table)
        if not 0 <= step < count:
            raise InputError(f"instruction #{step}", f"launch '{self.walk.name}' has the instructions 0..{count - 1}")
        return step

    # Break and watch points

    def break_at(self, where: int | str) -> Stop:
        """Add a break point before instruction number `where`, or before each instruction that fulfils a condition."""
        if isinstance(where, int):
            return self._add(Point(f"break at #{self._checked_step(where)}", self.walk.name, where))
        return self._add(Point(f"break when {where}", condition=Condition(where)))

    def watch(self, where: str, condition: str = "") -> Stop:
        """Add a watch point after each write of a place, optionally only if a condition is true after the write."""
        place(self.walk, where)
        text = f"watch {where}" + (f" if {condition}" if condition else "")
        return self._add(Point(text, watched=where, condition=Condition(condition) if condition else None))

    def delete(self, number: int) -> None:
        """Remove a break or watch point. Raises InputError if the number does not exist."""
        if self._points.pop(number, None) is None:
            raise InputError(f"break point {number}", "there is none", "see `breaks`")

    @property
    def stops(self) -> tuple[Stop, ...]:
        """The break and watch points."""
        return tuple(Stop(number, point.text) for number, point in self._points.items())

    def _add(self, point: Point) -> Stop:
        self._last_number += 1
        self._points[self._last_number] = point
        return Stop(self._last_number, point.text)

    # Values and instructions

    def read(self, where: str) -> Array:
        """Return the values at a place: tiles of a memory, bytes of DRAM, or codes of a tensor (debug/places.py)."""
        walk = self.walk
        history = self._current.history
        return values(walk, history.state, place(walk, where))

    def instruction(self, step: int | None = None) -> Instruction:
        """Return an instruction (None: the next one) with its footprint and micro-ops."""
        step = self._step_or_next(step)
        walk = self.walk
        trace = walk.trace
        return Instruction(
            step=step,
            text=walk.text(step),
            unit=walk.unit_of(step),
            layer=walk.layer_of(step),
            start=int(trace.start[step]) if trace else None,
            end=int(trace.end[step]) if trace else None,
            footprint=tuple(_touch(walk, row) for row in _footprint(walk, step)),
            lines=tuple(walk.details(step)),
        )

    def listing(self, first: int, count: int) -> list[Access]:
        """Return `count` instructions from number `first` on."""
        last = min(max(first, 0) + count, len(self.walk.table))
        return [self._access(step) for step in range(max(first, 0), last)]

    def units(self) -> list[Unit]:
        """Return the work of each unit at this moment: in the cycle in which the next instruction starts."""
        return when.units(self.walk, self._done, self.where().cycle)

    def queues(self) -> list[Queue]:
        """Return the tokens in each queue at this moment (see `units`)."""
        return when.queues(self.walk, self._done, self.where().cycle)

    @property
    def _done(self) -> Array:
        done = np.zeros(len(self.walk.table), np.bool_)
        done[self._current.history.sequence[: self._current.history.position]] = True
        return done

    def _step_or_next(self, step: int | None) -> int:
        if step is not None:
            return self._checked_step(step)
        if self._step is None:
            raise InputError("instruction", "the launch is at its end", "give a number")
        return self._step

    # Questions

    def writer(self, where: str) -> Access | None:
        """Return the last instruction before this moment that wrote a part of a place, or None."""
        accesses = self.writers(where)
        return accesses[-1] if accesses else None

    def writers(self, where: str) -> list[Access]:
        """Return the instructions before this moment that wrote a part of a place, in the order of execution."""
        return self._accesses(where, WRITE, before=True)

    def origin(self, address: int) -> tuple[str, Access | None]:
        """Return the name of the element at an address, and the last instruction that wrote this element so far."""
        (space, granules), *_ = places = self.walk.at(np.array([address]))
        writers = self._touching(places, WRITE, before=True)
        return self.walk.shown(space, int(granules[0])), writers[-1] if writers else None

    def changes(self, where: str, count: int = 8) -> list[Change]:
        """Return the last `count` instructions that wrote a part of a place, each with the values after the write."""
        history = self._current.history
        accesses = self.writers(where)
        now = history.position
        at = place(self.walk, where)
        changes = [
            Change(access, values(self.walk, history.move(access.position + 1), at).copy())
            for access in accesses[-min(count, CHANGES) :]
        ]
        history.move(now)  # return to the present moment of the session
        return changes

    def reader(self, where: str) -> Access | None:
        """Return the next instruction that reads a part of a place, or None."""
        accesses = self.readers(where)
        return accesses[0] if accesses else None

    def readers(self, where: str) -> list[Access]:
        """Return the instructions after this moment that read a part of a place, in the order of execution."""
        return self._accesses(where, READ, before=False)

    def why(self, step: int | None = None) -> list[Wait]:
        """Return the waits of an instruction (None: the next one). The first wait decided its start."""
        return when.why(self.walk, self._step_or_next(step))

    def waiting(self, step: int | None = None) -> list[Wait]:
        """Return the instructions that wait for an instruction (None: the next one), with the start of each wait."""
        return when.waiting_for(self.walk, self._step_or_next(step))

    def depends(self, where: str) -> Depends:
        """Return the instructions of this launch that contributed to a place, and the older elements that they read."""
        walk = self.walk
        history = self._current.history
        seed = elements(walk, place(walk, where))
        slices = walk_back(walk, history.sequence[: history.position], [seed])
        inputs = []
        for space, left in enumerate(slices.left):
            for name, low, high, unit in self._ranges(space, len(left)):
                inside = np.flatnonzero(left[low:high])
                if inside.size:
                    inputs.append((name, int(inside[0]) * unit, (int(inside[-1]) + 1) * unit, len(inside) * unit))
        return Depends(tuple(np.flatnonzero(slices.hit).tolist()), tuple(inputs))

    def differs(self) -> Difference | None:
        """Return the first difference from the reference, or None if all values are equal.

        Go to the moment at which the result of the wrong layer is complete: the end of the launch, or an earlier moment
        if the launch reuses the memory of the result. Raises MachineError if a launch cannot run to its end.
        """
        # A program without a network is compared at the end of its last launch, with the bytes that the user gives.
        if self.graph is None and self._expected:
            self.launch(self.launches[-1])
            self._difference = segments(self.walk, self.end().position, self._current.history.state, self._expected)
            return self._difference
        expected = self._launches.golden
        graph = self.graph
        assert graph is not None
        # Launches read the machine's own earlier results, so only the first difference shows where the error begins.
        for index in range(len(self.launches)):
            if index != self._current.index:
                self.launch(str(index))
            self.end()
            if self._current.stuck:
                raise MachineError(f"launch '{self.walk.name}'", f"cannot run to its end: {self._current.stuck}")
            move = self._current.history.move
            difference = next(differences(self.walk, graph, expected, self._complete, move), None)
            if difference is not None:
                self._difference = difference
                move(difference.position)
                return difference
            self.end()
        self._difference = None
        return None

    def suspects(self) -> list[Suspect]:
        """Return the instructions that computed the wrong elements of `differs`, the most suspect first.

        An instruction is suspect if it computed many wrong and few correct elements. The list may be empty.
        """
        if self._difference is None or self._difference.launch != self.walk.name:
            self.differs()
        if self._difference is None:
            return []
        self._move(self._difference.position)
        bad, good = self._difference.groups(self.walk)
        suspected = suspects(self.walk, self._current.history.sequence[: self._difference.position], bad, good)
        # Earlier layers have correct results, so the instructions of the wrong layer come first.
        layer = self.walk.layers.index(self._difference.layer)
        return sorted(suspected, key=lambda suspect: self.walk.layer[suspect.step] != layer)

    def _complete(self, placed: PlacedTensor) -> int:
        current = self._current
        return current.last if placed.last is None else int(current.position_of[placed.last].max(initial=-1)) + 1

    def tensors(self) -> list[PlacedTensor]:
        """Return the tensors in the memories of the launch."""
        return [self.walk.placed(name) for name in self.walk.tensors]

    def _ranges(self, space: int, size: int) -> Sequence[tuple[str, int, int, int]]:
        # A tuple has the name of a part, its first element, its end (exclusive), and the bytes of an element.
        walk = self.walk
        unit = self.walk.granule
        parts = [part for part in walk.segments if part.space == space]
        if not parts:
            return [(walk.table.spaces[space].name, 0, size, 1)]
        return [(f"dram.{p.name}", (p.address - p.origin) // unit, -(-(p.end - p.origin) // unit), unit) for p in parts]

    def _accesses(self, where: str, mode: int, before: bool) -> list[Access]:
        return self._touching(elements(self.walk, place(self.walk, where)), mode, before)

    def _touching(self, places: Sequence[Elements], mode: int, before: bool) -> list[Access]:
        current = self._current
        steps = np.flatnonzero(touching(self.walk.table, places, mode))
        at = current.position_of[steps]
        now = current.history.position
        selected = steps[(at >= 0) & ((at < now) if before else (at >= now))]
        return [self._access(step) for step in selected[np.argsort(current.position_of[selected])].tolist()]

    def _access(self, step: int) -> Access:
        walk = self.walk
        position = int(self._current.position_of[step])
        return Access(step, position, walk.unit_of(step), walk.layer_of(step), walk.text(step))


def _footprint(walk: Walk, step: int) -> Array:
    rows = walk.table.footprints.of_step(int(walk.table.footprint[step]))
    return rows[live(rows)]


def _touch(walk: Walk, row: Array) -> Touch:
    space, base, length, count, stride = (int(row[at]) for at in (SPACE, BASE, LENGTH, COUNT, STRIDE))
    modes = {READ: "reads", WRITE: "writes", READ | WRITE: "reads and writes"}
    # Elements are tiles on chip and granules in DRAM. The text names DRAM by the bytes of a segment.
    name = walk.table.spaces[space].name
    unit = 1
    if any(part.space == space for part in walk.segments):
        unit = walk.granule
    if part := walk.segment_at(space, base):
        name = f"dram.{part[0].name}"
        base = part[1] // unit
    text = f"{name}[{base * unit}:{(base + length) * unit}]"
    more = f" and {count - 1} more, {stride * unit} apart" if count > 1 else ""
    return Touch(modes[int(row[MODE]) & (READ | WRITE)], text + more, length * count * unit)
