"""Places in the text of users: tiles of a memory, bytes of DRAM, elements of a tensor, operands of an instruction.

    acc[37]   acc[0:4, 0, 5]   dram[0x1000:0x1040]   dram.wgt0[16]   t2[3,4,:]   'conv1'[0]   57.y[0,3]

`dram.NAME` is a segment, whose bytes are numbered from its start. `tN` is tensor number N of the list `tensors`. `57.y`
is the operand y of instruction #57, with the current content of the memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError
from tilewright.sim.steps import BASE, COUNT, LENGTH, MODE, PARTLY, SPACE, STRIDE, StepTable, end_of, live
from tilewright.sim.walk import Elements, Index, Operand, Range, State, Walk, numbers

#: A place is a name, an operand of an instruction or a quoted tensor. An index in brackets may follow.
FORM = re.compile(
    r"""\s*(?P<name>dram\.[^\[\]\s]+|#?(?P<step>\d{1,12})\.(?P<operand>\w+)|[A-Za-z_]\w*|'[^']+'|"[^"]+")"""
    r"""\s*(\[(?P<index>[^\[\]]*)\])?\s*"""
)
#: The largest number of bytes or elements of one place.
MOST = 1 << 24


@dataclass(frozen=True)
class Place:
    """A part of a memory, of a tensor or of an operand. In "dram", the index counts from the address `base`."""

    text: str
    name: str
    index: Index
    is_tensor: bool = False
    base: int = 0
    size: int = 0  # in DRAM: the number of bytes that follow `base`
    operand: Operand | None = None


def place(walk: Walk, text: str) -> Place:
    """Parse a place. Raises InputError if the launch has no such place; the message lists the possible places."""
    match = FORM.fullmatch(text)
    if not match:
        raise InputError(
            f"place '{text}'", "is not NAME or NAME[INDEX, ...]", "write acc[37], dram[0x100:0x110], t0 or 57.y"
        )
    name = match["name"].strip("'\"")
    index_text = match["index"]
    index = _index(text, index_text) if index_text is not None else ()
    if match["operand"]:
        operand = _operand(walk, text, int(match["step"]), match["operand"])
        return _checked(Place(text, name, index, operand=operand), operand.byte.shape[:-1])
    if name == "dram" or name.startswith("dram."):
        part = _segment(walk, text, name.removeprefix("dram").removeprefix("."), index)
        return _checked(Place(text, "dram", index, False, part.address, part.size), (part.size,))
    if name in walk.memories:
        chip = walk.memories[name]
        return _checked(Place(text, name, index), (chip.depth, *chip.shape))
    # A tensor may have the same name as a memory, so tensors are looked up after the memories.
    number = re.fullmatch(r"t(\d{1,6})", name)
    if number and int(number[1]) < len(walk.tensors):
        name = walk.tensors[int(number[1])]
    if name in walk.tensors:
        return _checked(Place(text, name, index, True), walk.placed(name).byte.shape[:-1])
    possible = ", ".join((*walk.memories, "dram", *(f"dram.{part.name}" for part in walk.segments)))
    raise InputError(
        f"place '{text}'", f"there is no memory or tensor '{name}'", f"there are {possible}; see `tensors`"
    )


def _operand(walk: Walk, text: str, step: int, name: str) -> Operand:
    operands = walk.operands(step) if step < len(walk.table) else {}
    if name not in operands:
        reason = f"instruction #{step} has no operand '{name}' in memory"
        raise InputError(f"place '{text}'", reason, f"it has {', '.join(operands)}" if operands else "see `insn`")
    return operands[name]


def _index(text: str, given: str) -> Index:
    indices: list[int | slice] = []
    for part in given.split(","):
        ends = part.split(":")
        try:
            edges = [int(end, 0) if end.strip() else None for end in ends]
        except ValueError:
            edges = []
        if len(edges) == 2:
            indices.append(slice(*edges))
        elif len(edges) == 1 and edges[0] is not None:
            indices.append(edges[0])
        else:
            raise InputError(f"place '{text}'", f"'{part.strip()}' is not an index", "write N, A:B or :")
    return tuple(indices)


def _segment(walk: Walk, text: str, name: str, index: Index) -> Range:
    for part in walk.segments:
        if part.name == name:
            return part
    names = ", ".join(f"dram.{part.name}" for part in walk.segments)
    if name:
        raise InputError(f"place '{text}'", f"there is no DRAM segment '{name}'", f"there are {names}")
    # For `dram` with an address, the segment contains the first byte, and the index is relative to address 0.
    first = index[0] if index else None
    low = first.start if isinstance(first, slice) else first
    for part in walk.segments:
        if low is not None and part.address <= low < part.address + part.size:
            return Range("", 0, part.end, part.kind, part.space)
    raise InputError(f"place '{text}'", "is not inside a segment of DRAM", f"give an address, or one of {names}")


def _checked(place: Place, shape: tuple[int, ...]) -> Place:
    """Return `place`. Raises InputError if its index is outside of `shape`."""
    if len(place.index) > len(shape):
        raise InputError(f"place '{place.text}'", f"has {len(place.index)} indices; there are {len(shape)} axes")
    for axis, (index, size) in enumerate(zip(place.index, shape, strict=False)):
        low, high = (index.start or 0, index.stop) if isinstance(index, slice) else (index, index + 1)
        high = size if high is None else high
        if not 0 <= low < high <= size:
            raise InputError(f"place '{place.text}'", f"index {axis} is outside 0..{size - 1}")
    return place


def values(walk: Walk, state: State, place: Place) -> Array:
    """Return the values at a place as an array. An axis whose index is a single number is dropped."""
    if place.operand is not None:
        return numbers(state, place.operand.byte, place.operand.dtype)[place.index]
    if place.is_tensor:
        return walk.value(state, place.name)[place.index]
    if place.name == "dram":
        low, high = _bytes(place)
        data = state.dram(low, high - low)
        return data[0] if place.index and not isinstance(place.index[0], slice) else data
    return state.memory(place.name)[place.index]


def addresses(walk: Walk, place: Place) -> Array:
    """Return the DRAM addresses of the bytes of a place, int64 [n], in ascending order."""
    if place.name == "dram" and not place.is_tensor:
        return np.arange(*_bytes(place))
    byte = place.operand.byte if place.operand is not None else walk.placed(place.name).byte
    byte = byte[place.index].reshape(-1)
    return np.unique(byte[byte >= 0])


def elements(walk: Walk, place: Place) -> list[Elements]:
    """Return the elements of a place by space, as footprints count them. Raises InputError if there are none."""
    if place.is_tensor or place.operand is not None or place.name == "dram":
        by_space = list(walk.at(addresses(walk, place)))
    else:
        by_space = list(walk.in_memory(place.name, place.index))
    count = sum(len(part) for _, part in by_space)
    if not 0 < count <= MOST:
        raise InputError(f"place '{place.text}'", f"the machine holds {count} elements of it", f"1..{MOST} will do")
    return by_space


def _bytes(place: Place) -> tuple[int, int]:
    first = place.index[0] if place.index else slice(None)
    if not isinstance(first, slice):
        return place.base + first, place.base + first + 1
    return place.base + (first.start or 0), place.base + (place.size if first.stop is None else first.stop)


def touching(table: StepTable, places: Sequence[Elements], mode: int) -> Array:
    """Return a bool [n] mask of the instructions that access an element of `places`. `mode` is READ, WRITE or both."""
    touches = np.zeros(len(table), np.bool_)
    for space, elements in places:
        touches |= _touching(table, space, elements, mode)
    return touches


def _touching(table: StepTable, space: int, elements: Array, mode: int) -> Array:
    # Three filters follow, from fast to exact. The first compares spans of rows, the second compares elements of rows.
    # A row marked PARTLY is only a bound: the third filter computes the exact rows of undecided footprints.
    prints = table.footprints
    rows = table.footprints.rows
    near = prints.live & (rows[:, SPACE] == space) & (rows[:, MODE] & mode > 0)
    near &= (rows[:, BASE] <= elements[-1]) & (prints.end > elements[0])
    owner = prints.owner()
    bound = rows[:, MODE] & PARTLY > 0
    hit = np.zeros(len(prints), np.bool_)
    exact = np.flatnonzero(near & ~bound)
    hit[owner[exact[_any(rows[exact], elements)]]] = True
    for footprint in np.unique(owner[near & bound]).tolist():
        if not hit[footprint]:
            exact_rows = prints.of_step(footprint)
            exact_rows = exact_rows[
                live(exact_rows) & (exact_rows[:, SPACE] == space) & (exact_rows[:, MODE] & mode > 0)
            ]
            hit[footprint] = _any(exact_rows, elements).any()
    touches: Array = hit[table.footprint]
    return touches


def _any(rows: Array, elements: Array) -> Array:
    solid = (rows[:, COUNT] == 1) | (rows[:, STRIDE] <= rows[:, LENGTH])  # no gaps between the repetitions
    high = end_of(rows)
    # `elements` are sorted, so it is enough to test the first element at or after the base of each row.
    first = np.searchsorted(elements, rows[:, BASE])
    inside = (first < len(elements)) & (elements[np.minimum(first, len(elements) - 1)] < high)
    touches: Array = solid & inside
    for row in np.flatnonzero(~solid & inside).tolist():
        base, length, stride = rows[row, [BASE, LENGTH, STRIDE]].tolist()
        offsets = elements[(elements >= base) & (elements < high[row])] - base
        touches[row] = (offsets % stride < length).any()
    return touches
