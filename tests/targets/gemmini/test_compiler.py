"""Random networks on random machines: the reference's codes, no race, and layers that leave the machine as codes."""

from __future__ import annotations

from dataclasses import replace
from math import prod, sqrt
from typing import Any

import numpy as np
import pytest

from tests.targets.vta.networks import MACHINE_KINDS, Builder
from tilewright.errors import ProgramError
from tilewright.graph.ir import Graph, Quant, Tensor
from tilewright.graph.ops import Add, Concat, Conv2D, DepthwiseConv2D, FullyConnected, MaxPool2D, Quantize, Window
from tilewright.graph.rounding import Activation
from tilewright.program.program import HostStep, Launch, Program
from tilewright.report.metrics import Result
from tilewright.run import run
from tilewright.targets.gemmini import TARGET
from tilewright.targets.gemmini.compiler import compile_graph, layers
from tilewright.targets.gemmini.compiler.streams import Stream
from tilewright.targets.gemmini.config import Config

MACHINES = {
    "default": Config(),
    "wsonly": Config.read("wsonly", {}),
    "functional": Config(semantics="functional"),
    "dim8": Config.read("dim8", {}),
    "dim4": Config.read("dim4", {}),
    "small": Config(dim=8, spad_rows=128, acc_rows=64, dma_bytes=16),
}
SAME = Window((3, 3), (1, 1), (1, 1, 1, 1))


class Symmetric(Builder):
    """Networks of symmetric codes, with one scale for the weights of a layer."""

    def quant(self) -> Quant:
        return replace(super().quant(), zero_point=(0,))

    def linear(self, op: Conv2D | DepthwiseConv2D | FullyConnected, x: str, shape: tuple[int, ...], axis: int) -> str:
        channels, quant = shape[axis], self.quant()
        factor = float(self.rng.uniform(20, 90)) / (74 * 74 * sqrt(prod(shape) // channels))
        scale = float(np.float32(factor * quant.scale[0] / self.tensors[x].scale))
        weights = Tensor("w", shape, "int8", Quant((scale,), (0,)), self.rng.integers(-128, 128, shape).astype(np.int8))
        bias = Tensor("b", (channels,), "int32", None, self.rng.integers(-4096, 4096, channels).astype(np.int32))
        return self.layer(op, x, constants=(weights, bias)[: 1 + (self.rng.random() < 0.8)], quant=quant)

    def add(self, x: str, activation: Activation) -> None:
        """With a new input of the same scale, which the machine adds."""
        addend = self.given(self.tensors[x].shape)
        self.tensors[addend] = replace(self.tensors[addend], quant=self.tensors[x].quant)
        self.layer(Add("relu" if activation == "relu" else "none"), x, addend, quant=self.tensors[x].quant)


def network(seed: int, layers: int = 3, kind: type[Builder] = Symmetric) -> Graph:
    rng = np.random.default_rng(seed)
    builder = kind(rng)
    builder.given(
        (
            int(rng.integers(1, 3)),
            int(rng.integers(3, 20)),
            int(rng.integers(3, 20)),
            int(rng.choice([1, 3, 8, 16, 20])),
        )
    )
    for _ in range(layers):
        builder.grow(str(rng.choice(MACHINE_KINDS)))
    return builder.graph()


def ran(program: Program, seed: int) -> Result:
    """Run a program on two random samples, and check what every program promises."""
    assert program.graph is not None
    rng = np.random.default_rng(seed)
    given = {name: program.graph.tensors[name].shape for name in program.graph.inputs}
    result = run(program, {name: rng.integers(-128, 128, (2, *shape)).astype(np.int8) for name, shape in given.items()})
    assert result.matches_reference and not result.findings
    return result


def codes(launch: Launch) -> bool:
    """Return whether a launch stores codes, and not sums."""
    return "codes" in str(launch.meta["plan"])


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 334))])
@pytest.mark.parametrize("loops", [True, False], ids=["loops", "commands"])
def test_random_networks(seed: int, machine: str, loops: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the forms with hardware loops, and in those with explicit commands."""
    print(f"seed {seed} on {machine}")
    every = layers.layers

    def some(*given: Any) -> tuple[layers.Form, ...] | str:
        forms = every(*given)
        if isinstance(forms, str):
            return forms
        return tuple(form for form in forms if isinstance(form[0], Stream) is not loops) or "is left out"

    monkeypatch.setattr(layers, "layers", some)
    ran(compile_graph(network(seed), MACHINES[machine], "ort"), seed)


@pytest.mark.parametrize("rounding", ["tflm", "ort"])
@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 200))])
def test_networks_with_zero_points_and_a_scale_per_channel(seed: int, rounding: str) -> None:
    """Sums leave the machine, and the host requantises them; a border of the zero point lies in DRAM."""
    print(f"seed {seed}")
    machine = list(MACHINES.values())[seed % len(MACHINES)]
    program = compile_graph(network(seed, kind=Builder), machine, rounding)
    ran(program, seed)
    assert not any("zero point of the input" in step.reason for step in program.steps if isinstance(step, HostStep))


def any_machine(seed: int) -> Config:
    """Return a machine of random sizes."""
    rng = np.random.default_rng(seed)

    def pick(*values: int) -> int:
        return int(rng.choice(values))

    dim, banks = pick(4, 8, 16), pick(1, 2, 4)
    return Config(
        dim=dim,
        spad_banks=pick(2, 4, 8),
        spad_rows=dim * pick(2, 8, 32, 128),
        acc_banks=banks,
        acc_rows=banks * dim * pick(1, 2, 8, 32),
        dma_bytes=pick(16, 32, 64),
        dataflow=str(rng.choice(["both", "ws"])),
        reads_in_flight=pick(1, 4, 16, 32),
        rs_load=pick(1, 4, 8),
        rs_execute=pick(2, 16),
        rs_store=pick(4, 8),
        memory_latency=pick(1, 16, 100),
    )


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 200))])
def test_random_networks_on_random_machines(seed: int) -> None:
    print(f"seed {seed}")
    ran(compile_graph(network(seed), any_machine(seed), "ort"), seed)


def one(shape: tuple[int, ...], op: Conv2D | DepthwiseConv2D, weights: tuple[int, ...], pool: Window | None) -> Graph:
    builder = Symmetric(np.random.default_rng(3))
    result = builder.linear(op, builder.given(shape), weights, 3 if isinstance(op, DepthwiseConv2D) else 0)
    if pool:
        builder.layer(MaxPool2D(pool), result, quant=builder.tensors[result].quant)
    return builder.graph()


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (one((1, 20, 20, 3), Conv2D("relu", SAME), (16, 3, 3, 3), None), "3 kernel columns at once"),
        (one((1, 9, 9, 8), Conv2D("none", SAME), (24, 3, 3, 8), Window((2, 2), (2, 2))), "max pool 2x2"),
        (one((1, 9, 9, 8), Conv2D("relu", SAME), (24, 3, 3, 8), Window((3, 3), (2, 2), (1, 1, 1, 1))), "max pool 3x3"),
        (one((1, 4, 140, 8), Conv2D("relu", SAME), (16, 3, 3, 8), Window((2, 2), (2, 2))), "max pool 2x2"),
        (one((1, 9, 9, 40), DepthwiseConv2D("relu", SAME), (1, 3, 3, 40), None), "from 16 channels"),
        (one((1, 9, 9, 12), Conv2D("none", SAME), (6, 3, 3, 4), None), "LOOP_CONV_WS"),
        (one((1, 8, 8, 24), Conv2D("none", Window((1, 1), (2, 2))), (16, 1, 1, 24), None), "codes"),
        (one((1, 9, 9, 8), Conv2D("relu", replace(SAME, stride=(1, 2))), (24, 3, 3, 8), None), "commands"),
        (one((1, 9, 9, 64), Conv2D("relu", SAME), (32, 3, 3, 32), None), "codes"),
        (one((1, 14, 14, 32), Conv2D("relu"), (48, 1, 1, 32), None), "codes"),
    ],
    ids=[
        "packed",
        "pooled",
        "padded pool",
        "wide pool",
        "depthwise",
        "groups",
        "downsampled",
        "strides",
        "wide groups",
        "pointwise",
    ],
)
def test_a_layer_stays_on_the_machine(graph: Graph, words: str) -> None:
    program = compile_graph(graph, Config(), "ort")
    (launch,) = program.steps
    assert isinstance(launch, Launch) and codes(launch) and words in str(launch.meta["plan"])
    assert len(launch.nodes) == len(graph.nodes)
    ran(program, 1)


@pytest.mark.parametrize("shape", [(1, 5, 7, 24), (1, 8, 8, 64), (2, 1, 1, 3)])
@pytest.mark.parametrize("machine", MACHINES)
def test_an_addition_saturates_on_the_machine(shape: tuple[int, ...], machine: str) -> None:
    builder = Symmetric(np.random.default_rng(4))
    for activation in ("none", "relu"):
        builder.add(builder.given(shape), activation)
    program = compile_graph(builder.graph(), MACHINES[machine], "ort")
    assert len(program.launches) == 2
    ran(program, 2)


def test_a_pool_of_negative_codes_with_a_border_is_the_hosts() -> None:
    """A pooled store takes pixels outside as 0."""
    border = Window((3, 3), (2, 2), (1, 1, 1, 1))
    program = compile_graph(one((1, 9, 9, 8), Conv2D("none", SAME), (24, 3, 3, 8), border), Config(), "ort")
    assert len(program.steps) == 2 and len(program.launches) == 1
    ran(program, 1)


@pytest.mark.parametrize(
    ("rounding", "op", "reason"),
    [
        ("tflm", Conv2D("none", SAME), "does not round as the accumulator's scale unit does"),
        ("ort", Conv2D("none", replace(SAME, stride=(1, 2))), "one number for both axes"),
        ("ort", Conv2D("relu_n1_to_1", SAME), "results are clipped to -"),
    ],
)
def test_what_the_host_keeps_has_a_reason(rounding: str, op: Conv2D, reason: str) -> None:
    program = compile_graph(one((1, 9, 9, 8), op, (24, 3, 3, 4), None), Config(), rounding)
    assert not program.launches and reason in program.steps[0].reason  # type: ignore[union-attr]
    ran(program, 1)


@pytest.mark.parametrize("frame", [[1, 1, 1], "x", [-1, 1, 1, 1], [300, 1, 1, 1], [2, 2, 2, 2]])
def test_a_damaged_border_is_one_error(frame: object) -> None:
    program = compile_graph(one((1, 20, 20, 3), Conv2D("relu", SAME), (16, 3, 3, 3), None), Config(), "ort")
    (launch,) = program.launches
    assert launch.meta["frame"] == [1, 1, 1, 1]
    damaged = replace(program, steps=(replace(launch, meta={**launch.meta, "frame": frame}),))
    with pytest.raises(ProgramError, match="launch 'n0'"):
        run(damaged, np.zeros((1, 1, 20, 20, 3), np.int8))


@pytest.mark.parametrize("op", [Conv2D("relu", SAME), Add()], ids=["border", "whole blocks"])
def test_a_debugger_finds_each_input_where_the_host_put_it(op: Conv2D | Add) -> None:
    graph = one((1, 20, 20, 3), op, (16, 3, 3, 3), None) if isinstance(op, Conv2D) else added()
    program = compile_graph(graph, Config(), "ort")
    (launch,) = program.launches
    rng = np.random.default_rng(8)
    values = {name: rng.integers(-128, 128, (1, *graph.tensors[name].shape), np.int8) for name in graph.inputs}
    walk = TARGET.walk(program, launch, values, None)
    for name in graph.inputs:
        np.testing.assert_array_equal(walk.value(walk.start(), name), values[name][0])


@pytest.mark.parametrize("channels", [4, 32])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_border_wider_than_a_launch_may_state_is_made_by_the_hardware(stride: int, channels: int) -> None:
    window = Window((1, 3), (stride, stride), (0, stride - 1, 300, 300))
    program = compile_graph(
        one((1, 2, 40, channels), Conv2D("none", window), (4, 1, 3, channels), None), Config(), "ort"
    )
    (launch,) = program.launches
    assert "frame" not in launch.meta
    ran(program, 1)


def added() -> Graph:
    builder = Symmetric(np.random.default_rng(4))
    builder.add(builder.given((1, 4, 4, 16)), "none")
    return builder.graph()


def multiplied() -> Graph:
    builder = Symmetric(np.random.default_rng(4))
    builder.linear(FullyConnected(), builder.given((1, 64)), (16, 64), 0)
    return builder.graph()


def wide(window: Window, columns: int = 4000) -> Graph:
    return one((1, 1, columns, 4), Conv2D("none", window), (4, *window.kernel, 2), None)


@pytest.mark.parametrize(
    ("graph", "config", "reason"),
    [
        (added(), Config(acc_banks=1, acc_rows=16), "does not fit half of the accumulator"),
        (multiplied(), Config(acc_banks=1, acc_rows=16, spad_rows=16), "no tile fits"),
        (added(), Config(dataflow="os"), "dataflow=os"),
        (multiplied(), Config(dataflow="os"), "dataflow=os"),
        (wide(Window((1, 3)), 70_000), Config(), "do not fit the registers"),
        (wide(Window((1, 1), (300, 300))), Config(), "do not fit the registers"),
        (wide(Window((1, 3), dilation=(1100, 1100))), Config(), "do not fit the registers"),
    ],
)
def test_what_the_machine_cannot_hold_is_the_hosts(graph: Graph, config: Config, reason: str) -> None:
    program = compile_graph(graph, config, "ort")
    assert not program.launches and reason in program.steps[0].reason  # type: ignore[union-attr]
    ran(program, 1)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("axis", [1, 2, -1])
def test_a_concatenation_moves_on_the_machine(axis: int, machine: str) -> None:
    builder = Symmetric(np.random.default_rng(5))
    shapes = [[1, 5, 6, 40], [1, 5, 6, 40], [1, 5, 6, 40]]
    for shape, extent in zip(shapes, (3, 7, 90), strict=True):
        shape[axis] = extent
    names = [builder.given(tuple(shape)) for shape in shapes]
    for name in names[1:]:
        builder.tensors[name] = replace(builder.tensors[name], quant=builder.tensors[names[0]].quant)
    builder.layer(Concat(axis), *names, quant=builder.tensors[names[0]].quant)
    program = compile_graph(builder.graph(), MACHINES[machine], "ort")
    (launch,) = program.launches
    assert "copies" in str(launch.meta["plan"])
    ran(program, 3)


@pytest.mark.parametrize("factor", [0.3, 1.7, 40.0])
def test_a_conversion_of_codes_is_the_machines(factor: float) -> None:
    builder = Symmetric(np.random.default_rng(6))
    name = builder.given((1, 4, 5, 48))
    quant = builder.tensors[name].quant
    assert quant is not None
    builder.layer(Quantize(), name, quant=replace(quant, scale=(quant.scale[0] * factor,)))
    program = compile_graph(builder.graph(), Config(), "ort")
    assert len(program.launches) == 1 and "converts" in str(program.launches[0].meta["plan"])
    ran(program, 4)
