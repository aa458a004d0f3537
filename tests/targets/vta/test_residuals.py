"""Residuals in the sums of a layer: every form, on every kind of layer and machine, equals the reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.targets.vta.networks import Builder
from tests.targets.vta.promises import assert_portable, check
from tests.targets.vta.random_graphs import CONFIGS, in_powers
from tests.targets.vta.residuals import SAME, SHIFTS, case_of
from tilewright.graph.ir import Graph
from tilewright.graph.ops import Add, Conv2D, Linear
from tilewright.graph.rounding import Activation, rounding_mode
from tilewright.program.program import HostStep
from tilewright.run import run
from tilewright.targets.vta.compiler.chain import plan_layer
from tilewright.targets.vta.compiler.compiler import compile_graph
from tilewright.targets.vta.compiler.layer import Residual
from tilewright.targets.vta.compiler.lowered import Context
from tilewright.targets.vta.config import PRESETS

pytestmark = pytest.mark.usefixtures("brief_search")


@pytest.mark.parametrize("seed", range(len(SHIFTS)))
@pytest.mark.parametrize("channels", [5, 16, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("keys", [{}, {"stages": "4"}, {"alu": "fused"}, {"stages": "4", "alu": "fused"}], ids=str)
def test_residuals_equal_the_reference(keys: dict[str, str], channels: int, seed: int, tmp_path: Path) -> None:
    config = PRESETS["pynq"].with_overrides(keys)
    program = check(case_of(seed, channels), config, tmp_path)
    assert program is not None
    if not keys:
        assert not [step.node for step in program.steps if isinstance(step, HostStep)]
        for launch in program.launches:
            assert_portable(launch)


@pytest.mark.parametrize("name", sorted(set(CONFIGS) - {"pynq"}))
def test_residuals_on_other_machines(name: str, tmp_path: Path) -> None:
    for seed in range(len(SHIFTS)):
        check(case_of(seed, 16), CONFIGS[name], tmp_path)


@pytest.mark.parametrize(
    ("keys", "forms"),
    [
        (
            {},
            {
                (0, 9): Residual(0, 0, None),
                (8, 8): Residual(0, 0, 8),
                (12, 10): Residual(2, 0, 10),
                (10, 11): Residual(0, 0, 10),
                (21, 15): Residual(6, 0, 15),
            },
        ),
        (
            {"alu": "fused"},
            {(6, 11): Residual(6, 0, None), (7, 10): Residual(6, 1, None), (21, 15): Residual(6, 15, None)},
        ),
        ({"stages": "4"}, {(3, 10): Residual(3, 0, None), (9, 9): Residual(6, 3, None)}),
    ],
)
def test_the_cheapest_form_is_chosen(keys: dict[str, str], forms: dict[tuple[int, int], Residual]) -> None:
    """One GEMM micro-op per tile: before the products, or during the shift; else the ALU shifts it left as well."""
    context = Context(PRESETS["pynq"].with_overrides(keys), rounding_mode("pow2"), "tilewright")
    for seed in range(len(SHIFTS)):
        linear = (site for site in case_of(seed, 16).graph.sites() if isinstance(site.node.op, Linear))
        for site, shifts in zip(linear, SHIFTS[seed], strict=True):
            found = plan_layer((site,), context)
            assert not isinstance(found, str)
            assert found[0].layer.residual == forms.pop(shifts, found[0].layer.residual)
    assert not forms


def apart(rng: np.random.Generator, first: Activation, last: Activation, halves: bool) -> Graph:
    """A convolution that rounds its result, and an addition of it to the result of another one."""
    builder = Builder(rng)
    given = builder.given((1, 9, 8, 16))
    x = builder.linear(Conv2D(first, SAME), given, (16, 3, 3, 16), 0)
    inner = builder.linear(Conv2D("none", SAME), x, (16, 3, 3, 16), 0)
    total = builder.layer(Add(last), inner, x)
    return in_powers(replace(builder.graph(), outputs=(total,)), 8, {total} if halves else set())


@pytest.mark.parametrize("keys", [{}, {"alu": "fused"}, {"stages": "4"}], ids=str)
@pytest.mark.parametrize(
    ("first", "last", "halves", "joins"),
    [
        ("relu", "relu", False, True),
        ("none", "relu", False, False),
        ("relu", "none", False, False),
        ("relu", "relu", True, False),
    ],
)
def test_an_addition_that_rounds_joins_sums_only_where_that_is_equal(
    keys: dict[str, str], first: Activation, last: Activation, halves: bool, joins: bool
) -> None:
    """Requantisation of the convolution that saturate must not matter: half of them do here."""
    rng = np.random.default_rng(7)
    graph = apart(rng, first, last, halves)
    program = compile_graph(graph, PRESETS["pynq"].with_overrides(keys), "pow2")
    joined = [
        form["node"] for launch in program.launches for form in launch.meta["layers"] if "computed with" in form["plan"]
    ]
    assert joined == (["n2"] if joins else [])
    result = run(program, rng.integers(-128, 128, (3, 1, 9, 8, 16)).astype(np.int8))
    assert result.matches_reference and not result.findings
