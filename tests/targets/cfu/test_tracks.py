"""What a run says of its time agrees with itself: layers, the trace's track, `explain`."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.conftest import ROOT
from tilewright.model import inputs
from tilewright.program import stages
from tilewright.program.program import Program
from tilewright.report.timeline import timeline
from tilewright.run import run, run_bare
from tilewright.targets.cfu import TARGET

pytestmark = pytest.mark.riscv


@pytest.fixture(scope="module")
def program() -> Program:
    return tw.compile(ROOT / "examples" / "digits" / "digits.tflite", "cfu")


def test_tracks_agree_with_layers(program: Program) -> None:
    """Each operator is one slice of the CPU, where and as long as its layer's; their sum is the run's cycles."""
    assert program.graph
    result = run(program, inputs.random(program.graph).values)
    shown = timeline(result)
    layers, cpu = (
        [(event.start, event.duration) for event in shown.events if event.track == shown.tracks.index(name)]
        for name in ("layers", "cpu")
    )
    assert layers == cpu
    assert len(cpu) == len(result.layers)
    assert sum(duration or 0 for _, duration in cpu) == result.cycles
    (trace,) = result.trace.values()
    assert trace.cycles == result.cycles
    assert trace.busy() == {"cpu": result.cycles}


def test_causes_and_functions_of_each_layer_take_its_cycles(program: Program) -> None:
    assert program.graph
    result = run(program, inputs.random(program.graph).values)
    shown = timeline(result)
    for name in ("causes by size", "functions by size"):
        mine = [event for event in shown.events if event.track == shown.tracks.index(name)]
        for start, layer in zip(
            np.cumsum([0, *(layer.cycles for layer in result.layers)]), result.layers, strict=False
        ):
            parts = [e.duration or 0 for e in mine if start <= e.start < start + layer.cycles]
            assert sum(parts) == layer.cycles
            assert parts == sorted(parts, reverse=True)
    assert mine[0].name.startswith("conv_implicit")  # GCC: conv_implicit.constprop.0
    assert {event.name for event in shown.events if shown.tracks[event.track] == "causes by size"} == set(result.causes)


def test_explain_counts_the_cycles_of_a_sample_of_zeros(program: Program) -> None:
    zeros = run(program, np.zeros((1, 1, 8, 8, 1), np.int8), timing="fitted")
    assert "a timing model runs a sample of zeros" in stages.text(TARGET.explain(program))
    text = stages.text(TARGET.explain(program, "fitted"))
    assert f"{zeros.cycles} cycles on a sample of zeros (timing model fitted)" in text
    for layer in zeros.layers:
        assert f"; {layer.cycles} cycles\n" in text
    alone = run_bare(TARGET.assemble(TARGET.disassemble(program), TARGET.config(None, {})), timing="fitted")
    assert alone.cycles == zeros.cycles  # its memory holds zeros
