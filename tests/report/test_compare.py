"""The difference of two runs: by layer and by cause, between machines, from saved JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

import tilewright as tw
from tests.cli.digits import MODEL
from tests.report.runs import LAUNCH, SOFTMAX, result
from tilewright.errors import InputError
from tilewright.graph.ir import Graph
from tilewright.model import inputs
from tilewright.report.compare import Comparison, compare
from tilewright.report.metrics import Layer
from tilewright.report.result import RunResult

BEFORE = replace(LAUNCH, name="conv2d_3", cycles=400, causes={"GEMM": 300, "load bandwidth": 100})
AFTER = replace(BEFORE, cycles=1220, causes={"load bandwidth": 800, "GEMM": 420})


def compared(before: tuple[Layer, ...], after: tuple[Layer, ...]) -> Comparison:
    return result(*before).compare(result(*after))


def test_a_layer_differs_by_its_causes_the_largest_first() -> None:
    found = compared((BEFORE, SOFTMAX), (AFTER, SOFTMAX))
    assert repr(found) == (
        "<Comparison net on fake -> net on fake: +820 cycles; conv2d_3 +820: load bandwidth +700, GEMM +120>"
    )
    assert found.text.splitlines() == [
        "net on fake -> net on fake",
        "cycles 400 -> 1,220 (+820, +205.0 %), for 100 % of the MACs: load bandwidth +700, GEMM +120",
        "  conv2d_3 +820: load bandwidth +700, GEMM +120",
    ]
    assert [layer.name for layer in found.layers] == ["conv2d_3", "softmax"]
    assert repr(found.changed) == "[<Change conv2d_3 +820: load bandwidth +700, GEMM +120>]"


def test_runs_in_the_other_order_differ_by_the_opposite() -> None:
    there, back = compared((BEFORE,), (AFTER,)), compared((AFTER,), (BEFORE,))
    assert back.difference == -there.difference == -820
    assert back.causes == {cause: -cycles for cause, cycles in there.causes.items()}


def test_layers_of_one_run_alone_and_layers_that_moved_to_the_host_are_told() -> None:
    """The share of MACs that the cycles stand for is given for both runs where it differs."""
    moved = Layer("conv2d_3", "conv2d", "host", macs=64, reason="no rule")
    found = compared((BEFORE, replace(LAUNCH, name="only")), (moved, SOFTMAX))
    assert "for 100 % -> 0 % of the MACs" in found.text
    assert "  conv2d_3 -400 (fake -> host): GEMM -300, load bandwidth -100" in found.text.splitlines()
    assert "  only -50 (fake -> no such layer)" in found.text.splitlines()
    assert "  softmax +0 (no such layer -> host)" in found.text.splitlines()


def test_equal_runs_differ_in_nothing() -> None:
    found = compared((BEFORE, SOFTMAX), (BEFORE, SOFTMAX))
    assert (found.changed, found.difference, dict(found.causes)) == ([], 0, {})
    assert found.text.endswith("for 100 % of the MACs\n  no layer differs")


def test_many_causes_are_summed_up() -> None:
    few = replace(LAUNCH, cycles=0, causes={})
    many = replace(LAUNCH, cycles=21, causes={f"c{i}": i for i in range(6, 0, -1)})
    assert "c6 +6, c5 +5, c4 +4, c3 +3, 2 others +3" in compared((few,), (many,)).text


def run(graph: Graph, target: str, **overrides: str) -> RunResult:
    return tw.compile(graph, target, overrides=overrides).run(inputs.random(graph).values)


def balanced(found: Comparison) -> None:
    """Every difference adds up: by cause, by layer, and causes within each layer."""
    assert sum(layer.cycles for layer in found.layers) == found.difference == sum(found.causes.values())
    for layer in found.layers:
        assert sum(layer.causes.values()) == layer.cycles, layer.name


@pytest.mark.usefixtures("brief_search")
def test_saved_runs_and_runs_on_other_machines_and_targets_compare() -> None:
    graph = tw.load(MODEL)
    plain, fused, other = run(graph, "vta"), run(graph, "vta", alu="fused"), run(graph, "bm1684x")
    saved: Mapping[str, Any] = json.loads(json.dumps(plain.to_json()))
    found = compare(saved, json.loads(json.dumps(fused.to_json())))
    assert found == plain.compare(fused)
    assert found.difference == fused.cycles - plain.cycles
    assert "settings: alu default -> fused\n" in found.text
    assert "add_4 +" in found.text and "(host -> vta)" in found.text
    balanced(found)
    found = plain.compare(other)
    assert "digits on vta -> digits on bm1684x\nsettings: timing tilewright -> estimate, clock_mhz 100 -> 1000" in (
        found.text
    )
    assert {layer.name for layer in found.layers} == {node.name for node in graph.nodes}
    balanced(found)
    assert len(repr(found)) < 250


def test_the_json_has_every_layer_and_can_be_written() -> None:
    data = json.loads(json.dumps(compared((BEFORE, SOFTMAX), (AFTER, SOFTMAX)).to_json()))
    assert data["cycles"] == 820
    assert [one["cycles"] for one in data["runs"]] == [400, 1220]
    first = data["layers"][0]
    assert (first["name"], first["before"], first["after"], first["cycles"]) == ("conv2d_3", 400, 1220, 820)
    assert first["causes"] == {"load bandwidth": 700, "GEMM": 120}


def test_an_object_that_is_no_run_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"the second run has no causes, .*; give the objects that `tilewright run --json` prints"
    ):
        compare(result(BEFORE).to_json(), {"model": "net"})
