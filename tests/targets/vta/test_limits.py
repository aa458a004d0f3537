"""How near compiled networks come to what their own work bounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.conftest import ROOT
from tests.mlperf import FILES, model_path
from tests.targets.vta.networks import Builder
from tests.targets.vta.promises import limits
from tilewright.graph.ops import Conv2D
from tilewright.model import inputs
from tilewright.run import run
from tilewright.targets.vta.compiler.compiler import compile_graph
from tilewright.targets.vta.config import PRESETS
from tilewright.targets.vta.timing import MODELS
from tilewright.targets.vta.timing.limits import summed

DIGITS = ROOT / "examples" / "digits" / "digits.tflite"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ("ic", "vww"))) for name in FILES]
)
def test_networks_on_the_fused_alu_take_little_more_than_their_work(name: str, shared: Path) -> None:
    """Issue: cycles at most 1.15 x max(GEMM + ALU, DRAM), bit-exact, nothing finished by the host."""
    graph = tw.load(model_path(shared, name))
    program = tw.compile(graph, "vta", overrides={"alu": "fused"})
    result = program.run(inputs.random(graph).values, timing="hls")
    assert result.matches_reference
    assert not result.findings
    assert result.cycles <= 1.15 * summed(limits(program, "hls").values()).bound
    assert {layer.op for layer in result.layers if layer.where == "host"} <= {"reshape", "softmax"}


def test_units_overlap(shared: Path) -> None:
    """Cycles stay near what the busiest unit needs: see specs for the bound."""
    graph = tw.load(model_path(shared, "ic"))
    result = run(compile_graph(graph, PRESETS["pynq"], "tflm"), inputs.random(graph).values, timing="hls")
    assert result.matches_reference
    assert not result.findings
    for layer in result.layers:
        if layer.trace and layer.cycles > 4000:
            assert layer.cycles < 1.25 * max(layer.trace.busy().values())
            assert layer.cycles < 0.85 * sum(layer.trace.busy().values())


@pytest.mark.parametrize("timing", MODELS)
def test_a_layer_of_hardly_any_work_does_not_beat_its_limits(timing: str) -> None:
    """Instructions and weights are most of what it reads; the ideal machine reads each over a port of its own."""
    builder = Builder(np.random.default_rng(1))
    builder.linear(Conv2D("none"), builder.given((1, 1, 1, 1)), (1, 1, 1, 1), 0)
    program = compile_graph(builder.graph(), PRESETS["pynq"], "tflm")
    assert (
        summed(limits(program, timing).values()).bound
        <= run(program, np.ones((1, 1, 1, 1, 1), np.int8), timing=timing).cycles
    )


@pytest.mark.parametrize("keys", [{}, {"alu": "fused"}, {"stages": "4"}], ids=str)
def test_no_program_beats_its_limits(keys: dict[str, str]) -> None:
    program = tw.compile(DIGITS, "vta", overrides=keys)
    assert program.graph
    result = program.run(inputs.random(program.graph).values, timing="ideal")
    found = limits(program, "ideal")
    assert summed(found.values()).bound <= result.cycles
    assert set(found) == {layer.name for layer in result.layers if layer.where == "vta"}
    work = {layer.name: layer.executed_macs for layer in result.layers}
    assert all(part.gemm * 256 >= work[name] for name, part in found.items())
