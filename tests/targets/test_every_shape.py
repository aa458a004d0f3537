"""Every operator of the graph with every number of axes runs on every machine, or on the host with a reason."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import tilewright as tw
from tests.targets.every_shape import ANY_RANK, CASES, MODES, Draw, between_products
from tilewright import targets
from tilewright.coverage import best_offer
from tilewright.graph import ops
from tilewright.graph.ir import Graph
from tilewright.model import inputs
from tilewright.program import stages

pytestmark = pytest.mark.usefixtures("brief_search")

MACHINES: Mapping[str, Mapping[str, str]] = {
    **{name: {} for name in targets.names()},
    "vta alu=float": {"alu": "float"},
}
RANKS = range(7)


def check(graph: Graph, machine: str, mode: str, where: str) -> None:
    name, values = machine.split(maxsplit=1)[0], inputs.random(graph, 1, 2).values
    try:
        program = tw.compile(graph, name, overrides=MACHINES[machine], rounding=mode)
        assert stages.text(targets.get(name).explain(program))
        best_offer(program)
        result = program.run(values)
    except Exception as error:
        raise AssertionError(where) from error
    assert result.matches_reference and not result.findings, where
    assert all(layer.reason for layer in result.layers if layer.where == "host"), where


def test_there_is_a_case_for_every_operator() -> None:
    assert set(CASES) == set(ops.KINDS)
    assert set(ANY_RANK) < set(CASES)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", CASES)
def test_few_axes_and_many(kind: str, machine: str) -> None:
    for seed, rank in enumerate((0, 1, 5) if kind in ANY_RANK else (4,)):
        mode = MODES[(list(CASES).index(kind) + seed) % len(MODES)]
        graph = CASES[kind](Draw(seed, rank, mode))
        check(graph if seed else between_products(graph), machine, mode, f"rank {rank}, seed {seed}, {mode}")


@pytest.mark.parametrize(
    ("kind", "rank", "mode", "machine"),
    [
        ("mean", 1, "tflm", "vta"),
        ("mean", 1, "pow2", "vta"),
        ("add", 0, "tflm", "cfu"),
        ("add", 0, "pow2", "vta"),
        ("quantize", 0, "ort", "vta alu=float"),
    ],
)
def test_results_of_one_axis_or_none(kind: str, rank: int, mode: str, machine: str) -> None:
    """Each once ended in an IndexError: `shape[-2]` of one axis, and `shape[-1]` of none."""
    for seed in range(5):
        check(CASES[kind](Draw(seed, rank, mode)), machine, mode, f"seed {seed}")


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", CASES)
def test_every_number_of_axes(kind: str, mode: str) -> None:
    for rank in RANKS if kind in ANY_RANK else (4,):
        for seed in range(4):
            graph = CASES[kind](Draw(100 * seed + rank, rank, mode))
            for machine in MACHINES:
                where = f"rank {rank}, seed {100 * seed + rank}, {machine}"
                check(graph, machine, mode, where)
                check(between_products(graph), machine, mode, f"{where}, between products")
