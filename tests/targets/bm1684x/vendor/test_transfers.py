"""Cycles of random transfers are those of the vendor's estimator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tests.targets.bm1684x.vendor.calls import CONFIG, Noting, api
from tests.targets.bm1684x.vendor.library import estimator
from tests.targets.bm1684x.vendor.served import served
from tests.targets.bm1684x.vendor.transfers import transfers
from tilewright.errors import TilewrightError
from tilewright.targets.bm1684x.timing.estimate import cycles

SEED, COUNT = 20, 1500
#: Of a thousand transfers, so many may differ by a cycle: the estimator's rates are known to six digits.
ROUNDED = 15


def accepted(calls: Iterable[tuple[str, tuple[Any, ...]]]) -> Iterator[tuple[str, tuple[Any, ...], int]]:
    """Yield the calls that do not exceed local memory, with the cycles that we give them."""
    for name, arguments in calls:
        noting = Noting()
        try:
            getattr(api(noting), name)(*arguments)
        except TilewrightError:
            continue
        yield name, arguments, sum(cycles(command, CONFIG) for command in noting.commands)


@pytest.mark.vendor
def test_random_transfers_take_the_cycles_of_the_vendors_estimator() -> None:
    ours = list(accepted(transfers(SEED, COUNT)))
    compared = rounded = 0
    for (name, arguments, ours_cycles), taken in zip(ours, served(ours, estimator), strict=True):
        assert taken is not None, f"the estimator refuses {name}{arguments}"
        expected = max(1, taken)
        assert abs(ours_cycles - expected) <= max(1, 1e-6 * expected), f"seed {SEED}: {name}{arguments}"
        compared, rounded = compared + 1, rounded + (ours_cycles != expected)
    assert compared > 0.9 * COUNT
    assert rounded <= ROUNDED * compared / 1000
