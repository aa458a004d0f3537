"""The best of many candidates: timed where their lower bound is below the best time so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def finalists(
    candidates: Iterable[tuple[float, T]],
    time: Callable[[T], tuple[float, int]],
    effort: int,
    worth: float = 0.0,
    least: int = 1,
) -> list[tuple[float, T]]:
    """(Time, candidate) of the first candidates whose bound is below the best time so far, best first.

    `candidates`: (bound, candidate), the most promising first. `time` also returns the effort it took. The search ends when `effort`
    is spent, but not before `least` candidates are timed. `worth`: the part of the best time that a candidate must be
    able to gain. Of equal times the first comes first.
    """
    found: list[tuple[float, T]] = []
    best = float("inf")
    for bound, candidate in candidates:
        if effort <= 0 and len(found) >= least:
            break
        if bound >= best * (1 - worth):
            continue
        cycles, took = time(candidate)
        effort -= took
        found.append((cycles, candidate))
        best = min(best, cycles)
    return sorted(found, key=lambda item: item[0])
