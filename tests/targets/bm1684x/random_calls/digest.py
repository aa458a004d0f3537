"""Run random calls, and make a digest of the bytes that they change."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from tests.targets.bm1684x.random_calls.draw import CONFIG, DDR, FAR, FIELDS, LOCAL, STEP, Call
from tilewright.array import Array
from tilewright.targets.bm1684x.values.dtypes import DType

#: The words that a call changes: their numbers in local memory and then DDR, and their new values. None: it is refused.
Changes = tuple[Array, Array] | None


class Ground:
    """Local memory and DDR (uint8) of the machine under test, and what they hold before a call: noise and operands."""

    def __init__(self, local: Array, ddr: Array) -> None:
        self.noise = np.random.RandomState(1684).randint(0, 256, LOCAL + DDR, np.uint8)
        self.before = self.noise.copy()
        self.memories = (local, ddr)
        local[:], ddr[:] = self.noise[:LOCAL], self.noise[LOCAL:]

    def run(self, call: Call, act: Callable[[], bool]) -> Changes:
        """Write the operands of a call, `act`, and return what changed, or None if `act` says that it was refused."""
        for fill in call.fills:
            fill.write(*self.memories)
            fill.write(self.before[:LOCAL], self.before[LOCAL:])
        done = act()
        places, values = [], []
        for memory, first in zip(self.memories, (0, LOCAL), strict=True):
            before = self.before[first : first + len(memory)]
            long = np.flatnonzero(memory.view(np.uint64) != before.view(np.uint64))
            at = np.stack([2 * long, 2 * long + 1], axis=1).reshape(-1)
            at = at[memory.view(np.uint32)[at] != before.view(np.uint32)[at]]
            new, old = memory.view(np.uint32)[at], before.view(np.uint32)[at]
            memory.view(np.uint32)[at] = old
            kept = same_nans(new, call.dtype) != same_nans(old, call.dtype)  # NaN for NaN is no change
            values.append(new[kept])
            places.append(at[kept] + first // 4)
        self._clean(call)
        return (np.concatenate(places), np.concatenate(values)) if done else None

    def _clean(self, call: Call) -> None:
        """Take away the operands of a call."""
        for fill in call.fills:
            for first, whole in ((0, self.before), (0, self.memories[0]), (LOCAL, self.memories[1])):
                if whole is not self.before and fill.far != bool(first):
                    continue
                if fill.far:
                    at = fill.at + (LOCAL if whole is self.before else 0)
                    whole[at : at + FAR] = self.noise[LOCAL + fill.at : LOCAL + fill.at + FAR]
                else:
                    dirty, plain = (memory[:LOCAL].reshape(CONFIG.lanes, -1) for memory in (whole, self.noise))
                    start = fill.at % CONFIG.lane_bytes
                    dirty[:, start : start + STEP] = plain[:, start : start + STEP]


def text(call: Call, changes: Changes) -> bytes:
    """Return bytes that stand for the result of a call: equal for equal results. All NaNs are equal."""
    if changes is None:
        return b"refused"
    places, words = changes
    return places.astype("<i8").tobytes() + same_nans(words, call.dtype).tobytes()


def same_nans(words: Array, dtype: DType) -> Array:
    """Return words whose NaNs of a float type all have the same bits."""
    if dtype not in FIELDS:
        return words
    exponent, fraction = FIELDS[dtype]
    bits = words.view(f"<u{dtype.bytes}")
    infinite = (1 << exponent) - 1 << fraction
    nan = bits & ((1 << exponent + fraction) - 1) > infinite
    return np.where(nan, bits.dtype.type(infinite + 1), bits).view(words.dtype)


def digest(texts: list[bytes]) -> str:
    """Return 16 hexadecimal digits that stand for the results of calls."""
    sha = hashlib.sha256()
    for part in texts:
        sha.update(len(part).to_bytes(8, "little") + part)
    return sha.hexdigest()[:16]
