"""The classes of a session's answers. Their method `printed` returns the text of an answer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tilewright.array import Array

#: The largest number of rows of a footprint that are printed.
TOUCHES = 8


@dataclass(frozen=True)
class At:
    """A moment of a launch: before instruction `step`, or at the end (None).

    `position` counts the instructions that have run, of `of` instructions. `cycle` is the cycle in which the next
    instruction starts (None: there are no times). `stuck` is the reason why the launch cannot continue.
    """

    launch: str
    step: int | None
    position: int
    of: int
    layer: str
    unit: str
    cycle: int | None
    text: str
    stuck: str = ""
    because: str = ""  # the break or watch point that stopped execution here

    def printed(self) -> str:
        lines = [self.because] if self.because else []
        if self.step is None:
            lines.append(f"end of launch {self.launch}" + (f", {self.cycle} cycles" if self.cycle is not None else ""))
        else:
            cycle = f", cycle {self.cycle}" if self.cycle is not None else ""
            lines += [f"#{self.step} of {self.of}, {self.layer}, {self.unit}{cycle}", f"  {self.text}"]
        return "\n".join([*lines, f"cannot go on: {self.stuck}"] if self.stuck else lines)


@dataclass(frozen=True)
class Access:
    """An instruction that reads or writes a place. `position` is its index in the order of execution."""

    step: int
    position: int
    unit: str
    layer: str
    text: str

    def printed(self) -> str:
        return f"#{self.step} {self.unit}: {self.text}"


@dataclass(frozen=True, eq=False)
class Change:
    """An instruction that wrote a place, and the values of the place afterwards."""

    by: Access
    values: Array

    def printed(self) -> str:
        values = np.array2string(self.values.reshape(-1), max_line_width=120, threshold=16, edgeitems=4)
        return f"{values if self.values.ndim else int(self.values)} after {self.by.printed()}"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self.by), "values": self.values.tolist()}


@dataclass(frozen=True)
class Wait:
    """A wait before the instruction `waiter`. It begins in cycle `since` and lasts `cycles` cycles.

    `cause` is the text of its cause. Instruction `step` ends the wait, if an instruction does.
    """

    waiter: int
    since: int | None
    cycles: int | None
    cause: str
    step: int | None


@dataclass(frozen=True)
class Unit:
    """A unit at a moment: the instruction that it executes (`doing`), or its next instruction (`following`)."""

    name: str
    doing: int | None
    until: int | None
    following: int | None
    waits_for: str
    text: str

    def printed(self) -> str:
        if self.doing is not None:
            return f"{self.name:9} #{self.doing} until cycle {self.until}: {self.text}"
        if self.following is None:
            return f"{self.name:9} has no more instructions"
        return f"{self.name:9} idle, next #{self.following}{', ' * bool(self.waits_for)}{self.waits_for}: {self.text}"


@dataclass(frozen=True)
class Queue:
    """A token queue at a moment: the tokens in it, and the instructions that pushed them."""

    name: str
    tokens: int
    depth: int
    pushed_by: tuple[int, ...]

    def printed(self) -> str:
        by = f", pushed by {', '.join(f'#{step}' for step in self.pushed_by[:8])}" if self.pushed_by else ""
        return f"{self.name:16} {self.tokens} of {self.depth} tokens{by}"


@dataclass(frozen=True)
class Touch:
    """A range of elements that an instruction accesses. `mode` is "reads", "writes" or "reads and writes"."""

    mode: str
    text: str
    elements: int


@dataclass(frozen=True)
class Instruction:
    """An instruction with its footprint. `lines` has its micro-ops as text. Times are in cycles, or None if unknown."""

    step: int
    text: str
    unit: str
    layer: str
    start: int | None
    end: int | None
    footprint: tuple[Touch, ...]
    lines: tuple[str, ...]

    def printed(self) -> str:
        time = f", cycles {self.start}..{self.end}" if self.start is not None else ""
        touches = [f"  {touch.mode} {touch.text}" for touch in self.footprint]
        if len(touches) > TOUCHES:
            touches = [f"  touches {len(touches)} ranges of memory"]
        return "\n".join([f"#{self.step} {self.layer}, {self.unit}{time}", f"  {self.text}", *touches, *self.lines])


@dataclass(frozen=True)
class Stop:
    """A break or watch point: its number, and a text that describes the instruction, place or condition."""

    number: int
    text: str

    def printed(self) -> str:
        return f"{self.number}: {self.text}"


@dataclass(frozen=True)
class Depends:
    """The origins of a place's values: instructions in stream order, and elements that no instruction computed."""

    steps: tuple[int, ...]
    inputs: tuple[tuple[str, int, int, int], ...]  # segment or memory, low, high, number of elements
