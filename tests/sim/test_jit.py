"""Every compiled loop gives what its own source gives uncompiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.sim.programs import random_table
from tests.sim.steps import FETCH, PORT, costs
from tilewright.sim import jit
from tilewright.sim.costs import Simulated
from tilewright.sim.findings import Finding
from tilewright.sim.hazards import hazards
from tilewright.sim.order import eager_sequence, order
from tilewright.sim.timeline import timeline


def results(seed: int) -> tuple[list[Any], list[Finding]]:
    rng = np.random.default_rng(seed)
    steps = random_table(rng, 60)
    relation = order(steps)
    count = len(steps)
    rows = [rng.integers(low, high, count).tolist() for low, high in ((1, 30), (0, 3), (1, 99))]
    trace = timeline(steps, relation, Simulated(costs(*rows), PORT, FETCH))
    columns = [relation.sequence, relation.clock, eager_sequence(steps, relation, (2, 0, 1))]
    return [*columns, trace.start, trace.end, trace.cause, trace.contention], hazards(steps, relation)


@pytest.mark.parametrize("seed", range(5))
def test_compiled_and_uncompiled_agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit.Compiled, "of", lambda self, _: self.python)
    plain, found_plain = results(seed)
    monkeypatch.setattr(jit.Compiled, "of", lambda self, _: self)
    native, found_native = results(seed)
    for a, b in zip(plain, native, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=f"seed {seed}")
    assert found_plain == found_native


def test_loops_are_compiled_once_all_together_have_taken_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit.Compiled, "spent", 0)
    monkeypatch.setattr(jit.Compiled, "expected", 0)

    @jit.compiled
    def add(a: int, b: int) -> int:
        return a + b

    @jit.compiled
    def double(a: int) -> int:
        return 2 * a

    assert add.of(jit.PATIENCE // 2) is add.python
    assert double.of(jit.PATIENCE // 2 - 1) is double.python
    assert double.of(1) is double
    assert add.of(0) is add
    assert add.python(1, 2) == 3


def test_what_is_announced_counts_at_once_and_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit.Compiled, "spent", 0)
    monkeypatch.setattr(jit.Compiled, "expected", 0)

    @jit.compiled
    def add(a: int, b: int) -> int:
        return a + b

    jit.expect(jit.PATIENCE - 10)
    assert add.of(jit.PATIENCE - 10) is add.python  # it has come
    assert add.of(9) is add.python
    jit.expect(1)
    assert add.of(0) is add
