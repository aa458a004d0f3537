"""Runs that look for repetitions beside runs that do not: their times are equal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.targets.gemmini import timing
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.fields import Funct
from tilewright.targets.gemmini.loops import expand
from tilewright.targets.gemmini.timing import repeat
from tilewright.targets.gemmini.timing.memo import MEMO, NEVER, Memo

MOVES = (Funct.MVIN, Funct.MVIN2, Funct.MVIN3, Funct.MVOUT)


@contextmanager
def skipping(monkeypatch: pytest.MonkeyPatch, allowed: bool) -> Iterator[list[Memo]]:
    """Let runs look for repetitions as often as they can, or never; yield their memos."""
    memos: list[Memo] = []

    def kept(*arguments: object) -> Memo:
        memos.append(repeat.memo(*arguments))  # type: ignore[arg-type]
        return memos[-1]

    with monkeypatch.context() as patch, np.errstate(over="ignore"):
        patch.setattr(repeat, "MIN_PRIMS", 8 if allowed else NEVER)
        patch.setattr(repeat, "MIN_GAP", 1)
        patch.setattr(repeat, "WINDOW", 4)
        patch.setattr(timing, "memo", kept)
        yield memos


def skipped(monkeypatch: pytest.MonkeyPatch, commands: Array, config: Config) -> tuple[int, int]:
    """Return the cycles of a program, and how many a run skips. Its times equal those of a run that skips nothing."""
    expansion = expand(commands, config)
    with skipping(monkeypatch, False):
        plain = timing.run(commands, expansion, config, config.memory_latency)
    with skipping(monkeypatch, True) as memos:
        times = timing.run(commands, expansion, config, config.memory_latency)
    for name in ("accept", "taken", "issued", "done", "order"):
        np.testing.assert_array_equal(getattr(times, name), getattr(plain, name), err_msg=name)
    assert times.cycles == plain.cycles
    return plain.cycles, int(memos[0].registers[MEMO.skipped])


def repeated(rng: np.random.Generator, commands: Array, often: int) -> Array:
    """Return a program that runs some times, each time with other addresses in DRAM."""
    parts = [commands]
    for _ in range(often - 1):
        part = commands.copy()
        part[np.isin(part[:, 0], MOVES) & (part[:, 1] != 0), 1] += np.uint64(rng.choice([0, 64, 320, 4096, 12288]))
        parts.append(part)
    return np.concatenate(parts)
