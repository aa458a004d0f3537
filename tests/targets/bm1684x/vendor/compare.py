"""Run calls of the device API on the vendor's model and on ours, and compare all bytes of local memory and DDR."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.targets.bm1684x.vendor.calls import Running, api
from tests.targets.bm1684x.vendor.library import DDR, LOCAL, Model
from tests.targets.bm1684x.vendor.served import served
from tilewright.array import Array
from tilewright.errors import TilewrightError
from tilewright.targets.bm1684x.values.dtypes import DType
from tilewright.targets.bm1684x.values.floats import as_stored

#: What both memories hold before a call.
NOISE = np.random.default_rng(1684).integers(0, 256, LOCAL + DDR, np.uint8)


@dataclass(frozen=True)
class Case:
    """A call, the bytes to write before it (offset in local memory, or LOCAL plus the offset in DDR; values), and the
    type of its results. NaNs of this type are equal. Finite results may differ by `ulps` units in the last place."""

    name: str
    arguments: tuple[Any, ...]
    writes: tuple[tuple[int, Array], ...]
    dtype: DType
    ulps: int = 0

    def place(self, memories: Sequence[Array]) -> None:
        """Write the operands. `memories` are local memory and DDR, which hold NOISE before."""
        for offset, values in self.writes:
            raw = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
            memory, at = (memories[1], offset - LOCAL) if offset >= LOCAL else (memories[0], offset)
            memory[at : at + len(raw)] = raw


#: The words that a call changed: their numbers and new values. None: the model refused it.
Changes = tuple[Array, Array] | None


def _changed(memories: Sequence[Array], noise: Sequence[Array]) -> tuple[Array, Array]:
    """Return the words that differ from NOISE, and make them NOISE again."""
    places, values = [], []
    for memory, plain, first in zip(memories, noise, (0, LOCAL // 4), strict=True):
        long = np.flatnonzero(memory.view(np.uint64) != plain.view(np.uint64))
        at = np.stack([2 * long, 2 * long + 1], axis=1).reshape(-1)
        values.append(memory.view(np.uint32)[at])
        places.append(at + first)
        memory.view(np.uint64)[long] = plain.view(np.uint64)[long]
    return np.concatenate(places), np.concatenate(values)


PLAIN = (NOISE[:LOCAL], NOISE[LOCAL:])


def changes() -> Callable[[Case], Changes]:
    """Return a function that runs a case on the vendor's model. Call it in a process of its own."""
    model = Model()
    memories = (model.local, model.ddr)
    for memory, plain in zip(memories, PLAIN, strict=True):
        memory[:] = plain

    def run(case: Case) -> Changes:
        case.place(memories)
        model.call(case.name, *case.arguments)
        model.poll()
        return _changed(memories, PLAIN)

    return run


def vendor(cases: Sequence[Case]) -> Iterator[Changes]:
    """Yield what the vendor's model changes in each case."""
    return served(cases, changes)


def difference(case: Case, expected: Changes, tpu: Running) -> str:
    """Run a case on our side. Return a text on the first difference, or "". The memories of `tpu` hold NOISE."""
    memories = (tpu.local, tpu.ddr)
    case.place(memories)
    try:
        getattr(api(tpu), case.name)(*case.arguments)
    except TilewrightError as error:
        _changed(memories, PLAIN)
        return "" if expected is None else f"we refuse it: {error}"
    at, mine = _changed(memories, PLAIN)
    if expected is None:
        return "the model refuses it"
    places = np.union1d(at, expected[0])
    ours, wanted = (NOISE.view(np.uint32)[places] for _ in range(2))
    ours[np.searchsorted(places, at)] = mine
    wanted[np.searchsorted(places, expected[0])] = expected[1]
    wrong = _wrong(ours, wanted, case)
    if not wrong.any():
        return ""
    first = int(np.argmax(wrong))
    left, right = (words.view(case.dtype.storage)[first] for words in (ours, wanted))
    where = int(places[first * case.dtype.bytes // 4]) * 4
    return f"differs in {int(wrong.sum())} of {wrong.size} at {where:#x}: {left} not {right}"


def _wrong(ours: Array, wanted: Array, case: Case) -> Array:
    """Return a mask of the elements, of the type of the results, that differ too much."""
    mine, theirs = (words.view(f"<u{case.dtype.bytes}") for words in (ours, wanted))
    wrong = mine != theirs
    if case.dtype.is_float:
        left, right = (as_stored(words.view(case.dtype.storage), case.dtype) for words in (ours, wanted))
        wrong &= ~(np.isnan(left) & np.isnan(right)) & (_apart(mine, theirs, case.dtype) > case.ulps)
    return wrong


def running() -> Running:
    """Return our side, with NOISE in its memories."""
    machine = Running(DDR)
    machine.local[:], machine.ddr[:] = PLAIN
    return machine


def _apart(left: Array, right: Array, dtype: DType) -> Array:
    """Return the distance of floats in units of the last place, from their bits."""
    sign = 1 << (dtype.bits - 1)
    ordered = (np.where(bits >= sign, sign - bits.astype(np.int64), bits.astype(np.int64)) for bits in (left, right))
    return np.abs(next(ordered) - next(ordered))
