"""Causes add up to the cycles of every layer and of the run, which has a lower bound: shipped models, all targets."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilewright as tw
from tests.mlperf import FILES, model_path
from tilewright import targets
from tilewright.model import inputs

pytestmark = pytest.mark.usefixtures("brief_search")
SLOW = {("cfu", "vww"), ("cfu", "ic"), ("cfu", "kws"), ("vta", "vww")}
CASES = [
    pytest.param(name, key, marks=[pytest.mark.slow] * ((name, key) in SLOW))
    for name in targets.names()
    for key in FILES
]


@pytest.mark.parametrize(("name", "key"), CASES)
def test_every_cycle_has_one_cause(name: str, key: str, shared: Path) -> None:
    graph = tw.load(model_path(shared, key))
    result = tw.compile(graph, name).run(inputs.random(graph).values, compare=False, check=False)
    assert sum(result.causes.values()) == result.cycles
    for layer in result.layers:
        assert sum(layer.causes.values()) == layer.cycles, layer.name
        assert all(cycles > 0 for cycles in layer.causes.values()), layer.name
    assert (result.bound > 0) == (result.cycles > 0)
    assert result.bound <= result.cycles
    assert result.to_json()["bound"] == result.bound <= sum(layer.bound for layer in result.layers)
    assert result.cycles or all(layer.where == "host" for layer in result.layers)
