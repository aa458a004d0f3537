"""Causes add up to the cycles of every layer and of the run, which has a lower bound: shipped models, all targets."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilewright as tw
from tests.mlperf import FILES, model_path
from tests.targets.bm1684x.networks import Builder
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
        assert 0 <= layer.bound <= layer.cycles, layer.name
    assert (result.bound > 0) == (result.cycles > 0)
    assert result.bound <= result.cycles
    assert result.to_json()["bound"] == result.bound <= result.cycles
    assert result.cycles or all(layer.where == "host" for layer in result.layers)


#: Options under which layers of a launch overlap more or less.
MACHINES: list[tuple[str, dict[str, str]]] = [(name, {}) for name in targets.names()] + [
    ("vta", {"stages": "4"}),
    ("vta", {"alu": "fused"}),
]


@pytest.mark.parametrize(("name", "overrides"), MACHINES, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_no_layer_takes_less_than_its_bound(name: str, overrides: dict[str, str], seed: int) -> None:
    """Layers that share a launch overlap: one of them may take less than its work needs, and then has no bound."""
    build = Builder(seed, (14, 13, 8 + 4 * seed))
    x = build.conv(build.input, 24)
    graph = build.graph(build.conv(build.add(x, build.conv(build.depthwise(x), 24, 1, 1, 0)), 40, 3, 2))
    program = tw.compile(graph, name, overrides=overrides)
    for model in targets.get(name).timing_models:
        result = program.run(inputs.random(graph).values, timing=model.name, compare=False)
        assert all(0 <= layer.bound <= layer.cycles for layer in result.layers), f"seed {seed}, {model.name}"
        assert result.bound <= result.cycles
