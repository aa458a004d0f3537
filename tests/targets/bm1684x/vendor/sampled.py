"""Run random calls (random_calls/) on the vendor's libraries.

`python -m tests.targets.bm1684x.vendor.sampled [FAMILY ..]` compares a chunk of each family with our side.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tests.targets.bm1684x.random_calls.digest import Changes, Ground, same_nans, text
from tests.targets.bm1684x.random_calls.draw import Call
from tests.targets.bm1684x.random_calls.families import FAMILIES, calls
from tests.targets.bm1684x.random_calls.ours import Ours
from tests.targets.bm1684x.vendor.library import Estimator, Model
from tests.targets.bm1684x.vendor.served import served


def _model() -> Callable[[Call], Changes]:
    model = Model()
    ground = Ground(model.local, model.ddr)

    def run(call: Call) -> Changes:
        def act() -> bool:
            model.call(call.name, *call.arguments)
            model.poll()
            return True

        return ground.run(call, act)

    return run


def results(cases: Sequence[Call]) -> Iterator[Changes]:
    """Yield what the vendor's model changes in each call."""
    return served(cases, _model)


#: How often a call that differs runs again.
AGAIN = 4


def settled(calls: Sequence[Call], ours: Sequence[Changes]) -> Iterator[Changes]:
    """Yield what the vendor's model changes in each call. A call that differs from `ours` runs again, alone.

    On a busy machine, the model's poll may return before the last command has ended.
    """
    for call, mine, theirs in zip(calls, ours, results(calls), strict=True):
        settled_words = theirs
        for _ in range(AGAIN):
            if text(call, mine) == text(call, settled_words):
                break
            settled_words = next(results([call]))
        yield settled_words


def _estimator() -> Callable[[Call], int]:
    built = Estimator()
    return lambda call: built.cycles(call.name, *call.arguments)


def estimates(cases: Sequence[Call]) -> Iterator[int | None]:
    """Yield the cycles that the vendor's estimator gives to each call."""
    return served(cases, _estimator)


def difference(call: Call, ours: Changes, theirs: Changes, reason: str) -> str:
    """Return a text on the first difference between the results of a call, or ""."""
    if text(call, ours) == text(call, theirs):
        return ""
    if ours is None or theirs is None:
        return f"we refuse it: {reason}" if ours is None else "the model refuses it"
    places = np.union1d(ours[0], theirs[0])
    words = []
    for at, values in (ours, theirs):
        changed = np.zeros(len(places), np.uint32)
        changed[np.searchsorted(places, at)] = values
        words.append(same_nans(changed, call.dtype).view(call.dtype.storage))
    wrong = np.flatnonzero(words[0].view(f"<u{call.dtype.bytes}") != words[1].view(f"<u{call.dtype.bytes}"))
    if not len(wrong):
        return "they write different places"
    word = int(places[wrong[0] * len(places) // len(words[0])])
    pair = [memory[wrong[0]] for memory in words]
    return f"differs in {len(wrong)} of {len(words[0])} from {4 * word:#x} on: {pair[0]} not {pair[1]}"


def main(families: Sequence[str], chunk: int = 0, count: int = 40) -> None:
    """Print every difference."""
    ours = Ours()
    for family in families or FAMILIES:
        drawn, wrong = list(calls(family, chunk, count)), 0
        refused = 0
        mine, reasons = [], []
        for call in drawn:
            mine.append(ours.changes(call))
            reasons.append(ours.reason)
        for call, changes, reason, theirs in zip(drawn, mine, reasons, settled(drawn, mine), strict=True):
            refused += theirs is None
            if reason_text := difference(call, changes, theirs, reason):
                wrong += 1
                if wrong <= 5:
                    print(f"{call.name}{call.arguments}: {reason_text}".replace(", storage=", " "), flush=True)
        print(f"{family}: {count} calls, {wrong} differ, {refused} refused", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
