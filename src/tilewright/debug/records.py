"""The answers of a session, as records. debug/text.py prints them."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.array import Array


@dataclass(frozen=True)
class At:
    """A moment: before instruction `step` (None: at the end), at `position` of `of` in the order of execution.

    `cycle` is when the instruction starts (None: there are no times). `stuck` says why a launch cannot go on.
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
    because: str = ""  # what stopped here: a break or a watch point


@dataclass(frozen=True)
class Access:
    """An instruction that reads or writes a place; `position` is its position in the order of execution."""

    step: int
    position: int
    unit: str
    layer: str
    text: str


@dataclass(frozen=True, eq=False)
class Change:
    """An instruction that wrote a place, and the values there after it."""

    by: Access
    values: Array


@dataclass(frozen=True)
class Wait:
    """A wait before an instruction: `cycles` from cycle `since`, because of `cause`; `step` ends it (None: no step)."""

    waiter: int
    since: int | None
    cycles: int | None
    cause: str
    step: int | None


@dataclass(frozen=True)
class Unit:
    """A unit at a moment: the instruction that it executes, or the one that it waits to start."""

    name: str
    doing: int | None
    until: int | None
    following: int | None
    waits_for: str
    text: str


@dataclass(frozen=True)
class Queue:
    """A token queue at a moment: the tokens in it, and the instructions that pushed them."""

    name: str
    tokens: int
    depth: int
    pushed_by: tuple[int, ...]


@dataclass(frozen=True)
class Touch:
    """A row of an instruction's footprint: `text` names elements; `mode` is read, write or both."""

    mode: str
    text: str
    elements: int


@dataclass(frozen=True)
class Instruction:
    """An instruction with its footprint; `lines` are its micro-ops as text. Times are in cycles, None without times."""

    step: int
    text: str
    unit: str
    layer: str
    start: int | None
    end: int | None
    footprint: tuple[Touch, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Stop:
    """A break or watch point: its number and what it stops at, as text."""

    number: int
    text: str


@dataclass(frozen=True)
class Depends:
    """What a place was computed from: instructions in stream order, and elements that were there before the launch."""

    steps: tuple[int, ...]
    inputs: tuple[tuple[str, int, int, int], ...]  # a segment or memory, the range, the elements in it
