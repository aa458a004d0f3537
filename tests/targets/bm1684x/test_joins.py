"""Concatenations and rescalings on the machine: bit for bit what the graph says, and moved only where they must be."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import tilewright as tw
from tests.targets.bm1684x.networks import LOWEST, Builder
from tilewright.graph import ops
from tilewright.graph.ir import Graph, Node, Quant, Tensor
from tilewright.graph.rounding import rounding_mode
from tilewright.program import stages
from tilewright.program.program import HostStep, Program
from tilewright.run import run
from tilewright.targets.bm1684x import TARGET
from tilewright.targets.bm1684x.compiler.compile import lower
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.launch.run import prepare

MODES = ("tflm", "litert", "xnnpack", "ort")
#: Machines on which the same channels begin in other lanes, and whose samples share a launch.
MACHINES: tuple[dict[str, str], ...] = ({}, {"lanes": "16"}, {"batch": "3"}, {"lanes": "4", "batch": "2", "banks": "4"})


def transfers(program: Program) -> Counter[bool]:
    """How many transfers stay in local memory (True), and how many do not."""
    launches = [prepare(launch, Config(**program.config)) for launch in program.launches]
    copies = (
        command
        for prepared in launches
        for command in prepared.program.commands
        if command.operation.name == "dma_copy"
    )
    return Counter(all(place.storage.is_local for _, _, place in command.in_memory) for command in copies)


def check(program: Program, build: Builder, samples: int = 4) -> None:
    inputs = build.inputs(samples)
    for order in ("stream", "random"):
        result = run(program, inputs, order=order, seed=3)
        assert result.matches_reference
        assert result.findings == ()


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("mode", MODES)
def test_whole_slots_are_joined_without_a_command(mode: str, machine: dict[str, str]) -> None:
    build = Builder(11, (9, 7, 20))
    single, three = build.conv(build.input, 128, 1, 1, 0), build.conv(build.input, 64)
    both = build.concat(3, single, three)
    graph = build.graph(build.conv(build.maximum(both), 30), build.conv(single, 5))
    program = tw.compile(graph, "bm1684x", rounding=mode, overrides=machine)
    assert len(program.launches) == len(program.steps) == 1
    assert transfers(program)[True] == 0
    check(program, build)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("axis", [1, 2, 3])
def test_other_parts_are_moved_on_the_machine(axis: int, machine: dict[str, str]) -> None:
    """A part in the middle of the lanes, rows, columns; a network's input as a part; one part in two places."""
    build = Builder(12 + axis, (6, 5, 70))
    part = build.conv(build.input, 70)
    inner = build.concat(axis, build.input, part, build.input)
    graph = build.graph(build.conv(build.concat(axis, part, inner), 9), build.concat(axis, part, part))
    program = tw.compile(graph, "bm1684x", overrides=machine)
    assert all(isinstance(step, HostStep) is False for step in program.steps)
    assert transfers(program)[True] > 0
    check(program, build)


def test_a_tensor_of_many_layers_grows_in_its_place() -> None:
    """As in DenseNet: each layer reads all results before it."""
    build = Builder(5, (8, 8, 3))
    x = build.conv(build.input, 64)
    for _ in range(4):
        x = build.concat(3, x, build.conv(x, 64))
    graph = build.graph(build.dense(build.flat(build.mean(x)), 4))
    for machine in MACHINES:
        program = tw.compile(graph, "bm1684x", overrides=machine)
        assert transfers(program)[True] == 0
        check(program, build)


def test_a_network_in_several_launches_joins_across_them() -> None:
    for banks, batch in (("1", "1"), ("2", "2")):
        build = Builder(8, (40, 40, 3))
        x = build.conv(build.input, 90)
        for _ in range(3):
            x = build.conv(build.concat(3, build.conv(x, 64), build.conv(x, 70, 1, 1, 0)), 60)
        program = tw.compile(build.graph(x), "bm1684x", overrides={"banks": banks, "batch": batch})
        assert len(program.launches) == len(program.steps) > 1
        check(program, build)


def test_vectors_are_joined_and_pieces_of_pixels_are_not() -> None:
    build = Builder(9, (4, 4, 70))
    flat = build.flat(build.mean(build.input))
    both = build.concat(1, build.dense(flat, 5), build.dense(flat, 6))
    program = tw.compile(build.graph(build.dense(both, 3)), "bm1684x")
    assert len(program.launches) == len(program.steps) == 1
    check(program, build)
    quant = Quant((0.5,), (3,))
    tensors = {name: Tensor(name, shape, "int8", quant) for name, shape in (("x", (2, 3, 4)), ("y", (2, 6, 4)))}
    graph = Graph("pieces", tensors, (Node("join", ops.Concat(1), ("x", "x"), ("y",)),), ("x",), ("y",)).validate()
    (step,) = tw.compile(graph, "bm1684x").steps
    assert isinstance(step, HostStep) and "whole ranges of pixels" in step.reason


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_a_join_alone_is_a_launch_of_transfers(axis: int) -> None:
    build = Builder(4, (4, 4, 70))
    program = tw.compile(build.graph(build.concat(axis, build.input, build.input)), "bm1684x")
    assert len(program.launches) == 1
    check(program, build)
    moves = 3 if axis == 3 else 4  # the first channels are in their place
    assert f"dma: {moves} dma_copy" in stages.text(TARGET.explain(program))


@pytest.mark.parametrize("mode", [*MODES, "pow2"])
def test_every_code_is_rescaled_as_the_reference_does(mode: str) -> None:
    """Scales far apart and close, zero points at the lowest code and elsewhere; all 256 codes."""
    random = np.random.default_rng(seed := 21)
    every = np.arange(-128, 128, dtype=np.int8).reshape(1, 1, 16, 16, 1)
    taken = 0
    for number in range(40):
        ratio = float(random.choice([0.25, 0.5, 1, 2])) if mode == "pow2" else float(np.exp(random.uniform(-3, 2)))
        zeros = [LOWEST if random.random() < 0.5 else int(random.integers(-128, 128)) for _ in range(2)]
        build = Builder(number, (16, 16, 1), zero=zeros[0])
        graph = build.graph(build.rescaled(build.input, ratio, zeros[1]))
        program = tw.compile(graph, "bm1684x", rounding=mode)
        taken += len(program.launches)
        assert program.run(every).matches_reference, (seed, number, ratio, zeros)
    assert taken == 40


def test_a_rescaling_between_unsigned_codes_is_one_operation() -> None:
    build = Builder(3, (16, 16, 1), zero=LOWEST)
    graph = build.graph(build.rescaled(build.input, 0.93713, LOWEST))
    (site,) = graph.sites()
    layer = lower(site, rounding_mode("ort"), Config())
    assert not isinstance(layer, str)
    assert [operation.name for operation in layer.operations] == ["int_mul"]
