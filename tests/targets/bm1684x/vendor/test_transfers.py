"""Cycles of random transfers are those of the vendor's estimator."""

from __future__ import annotations

import pytest

from tests.targets.bm1684x.vendor.calls import CONFIG, Noting, api
from tests.targets.bm1684x.vendor.library import Estimator
from tests.targets.bm1684x.vendor.transfers import transfers
from tilewright.errors import TilewrightError
from tilewright.targets.bm1684x.timing.estimate import cycles

SEED, COUNT = 20, 1500
#: Of a thousand transfers, so many may differ by a cycle: the estimator's rates are known to six digits.
ROUNDED = 15
#: The share of exchanges of n and c that are exact. The rest have another number of channels of DDR.
EXCHANGED = 0.85


@pytest.mark.vendor
def test_random_transfers_take_the_cycles_of_the_vendors_estimator() -> None:
    vendor, compared, rounded, turned = Estimator(), 0, 0, []
    for name, arguments in transfers(SEED, COUNT):
        noting = Noting()
        try:
            getattr(api(noting), name)(*arguments)
        except TilewrightError:  # it exceeds local memory
            continue
        found, expected = sum(cycles(one, CONFIG) for one in noting.commands), max(1, vendor.cycles(name, *arguments))
        if "nc_trans" in name:
            turned.append(found == expected)
            continue
        assert abs(found - expected) <= max(1, 1e-6 * expected), f"seed {SEED}: {name}{arguments}"
        compared, rounded = compared + 1, rounded + (found != expected)
    assert compared > 0.85 * COUNT
    assert rounded <= ROUNDED * compared / 1000
    assert sum(turned) > EXCHANGED * len(turned)
