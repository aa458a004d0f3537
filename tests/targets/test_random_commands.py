"""No random program hangs, and none ends in another exception than TilewrightError."""

from __future__ import annotations

import numpy as np
import pytest

from tests.limits import within
from tests.targets.random_commands import attempt
from tilewright import targets
from tilewright.errors import TilewrightError

#: Programs of a machine that run in the gate, in a test of the slow tier, and all together; seconds for each.
QUICK, PART, ALL, SECONDS = 40, 500, 10_000, 60


def run(target: str, first: int, count: int) -> None:
    for seed in range(first, first + count):
        print(f"seed {seed}")
        try:
            with within(SECONDS, f"seed {seed}"):
                attempt(target, np.random.default_rng([seed, sum(map(ord, target))]))
        except TilewrightError:
            continue


@pytest.mark.parametrize("target", targets.names())
def test_random_commands(target: str) -> None:
    run(target, 0, QUICK)


@pytest.mark.parametrize(("target", "seed"), [("gemmini", 2496), ("vta", 3551)])
def test_programs_that_ended_otherwise(target: str, seed: int) -> None:
    run(target, seed, 1)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, ALL, PART))
@pytest.mark.parametrize("target", targets.names())
def test_many_random_commands(target: str, first: int) -> None:
    run(target, first, PART)
