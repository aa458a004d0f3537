"""Random networks on three and four stages and every ALU: the reference's codes, no finding, in any order."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.vta.machines import buffers, config
from tests.targets.vta.networks import Builder, random_network
from tilewright import targets
from tilewright.array import Array
from tilewright.graph import reference
from tilewright.graph.ir import Graph, Site
from tilewright.graph.ops import Add, Conv2D, DepthwiseConv2D, FullyConnected, Window
from tilewright.program.program import HostStep, Launch, Program
from tilewright.sim.passes import RunOptions
from tilewright.targets.vta.compiler.compiler import compile_graph
from tilewright.targets.vta.config import Config

pytestmark = pytest.mark.usefixtures("brief_search")

VTA = targets.get("vta")


FOUR = {"stages": 4, "alu": "fused"}
CONFIGS = {
    "fused": config(alu="fused"),
    "rounding": config(alu="rounding"),
    "four": config(stages=4),
    "four, fused": config(**FOUR),
    "one bank": config(acc_banks=1, **FOUR),
    "four banks": config(acc_banks=4, **FOUR),
    "small": buffers(8, 11, 14, 13, LOG_PAR_BUFF_SIZE=10, LOG_ALU_UOP_BUFF_SIZE=5, **FOUR),
    "small, three": buffers(7, 11, 14, 13, alu="fused", LOG_PAR_BUFF_SIZE=10),
    "small, rounding": buffers(9, 12, 15, 13, alu="rounding"),
    "batch 2": config(LOG_BATCH=1, **FOUR),
    "batch 4, block 8": buffers(13, 13, 15, 15, LOG_BATCH=2, LOG_BLOCK=3, LOG_PAR_BUFF_SIZE=12, **FOUR),
    "block 32": config(LOG_BLOCK=5, alu="fused"),
    "wide bus": config(LOG_BUS_WIDTH=9, alu="fused"),
    "shallow": config(token_depth=2, queue_depth=2, **FOUR),
    "batch 4, rounding": config(LOG_BATCH=2, alu="rounding"),
    "few ALU micro-ops": config(LOG_ALU_UOP_BUFF_SIZE=3, **FOUR),
    "two tokens": buffers(12, 10, 13, 13, token_depth=2, alu="fused", LOG_PAR_BUFF_SIZE=10),
    "shallow, rounding": config(token_depth=8, queue_depth=1, alu="rounding"),
}


def golden_of(graph: Graph, inputs: dict[str, Array], rounding: str) -> dict[str, Array]:
    """Every activation by the integer reference."""
    golden = dict(inputs)

    def observe(site: Site, results: tuple[Array, ...]) -> None:
        golden.update(zip(site.node.outputs, results, strict=True))

    reference.run(graph, inputs, rounding, observe)
    return golden


def check_program(program: Program, golden: dict[str, Array], random: int = 0) -> tuple[Launch, ...]:
    """Every launch gives the golden codes without a finding, also in `random` orders; returns the launches."""
    graph = program.graph
    assert graph is not None
    values = {name: golden[name] for name in graph.inputs}
    for step in program.steps:
        if isinstance(step, HostStep):
            values.update(reference.run_node(graph, step.node, values, program.rounding))
            continue
        orders = [RunOptions(timing="hls"), *(RunOptions(order="random", seed=seed) for seed in range(random))]
        for options in orders:
            result = VTA.launch(program, step, values, options)
            assert [str(finding) for finding in result.findings] == []
            for name, codes in result.values.items():
                np.testing.assert_array_equal(codes, golden[name], err_msg=f"{step.name}: {name}, {options}")
            if len(step.nodes) > 1 and result.trace:
                assert len(result.figures) == len(step.nodes)
                assert sum(part.cycles for part in result.figures) == result.trace.cycles
        values.update(result.values)
    assert set(graph.outputs) <= set(values)
    assert [str(finding) for finding in VTA.check(program)] == []
    return program.launches


def any_machine(rng: np.random.Generator) -> Config:
    """Sizes from tiny to usual, queues from one command and eight tokens."""
    alu = str(rng.choice(["upstream", "rounding", "fused", "fused"]))
    batch, block = int(rng.choice([0, 0, 1, 2])), int(rng.choice([3, 4, 4, 5]))
    sizes = {
        "LOG_UOP_BUFF_SIZE": rng.integers(7, 14),
        "LOG_ALU_UOP_BUFF_SIZE": rng.integers(3, 8),
        "LOG_INP_BUFF_SIZE": batch + block + rng.integers(4, 9),
        "LOG_WGT_BUFF_SIZE": 2 * block + rng.integers(6, 8),
        "LOG_ACC_BUFF_SIZE": batch + block + 2 + rng.integers(6, 9),
        "LOG_PAR_BUFF_SIZE": block + 2 + rng.integers(2, 7),
        "LOG_BUS_WIDTH": rng.choice([6, 6, 7, 9]),
        "stages": 3 if alu == "rounding" else rng.choice([3, 4]),
        "acc_banks": rng.choice([1, 2, 4, 8]),
        "token_depth": rng.choice([8, 16, 100]),
        "queue_depth": rng.choice([1, 2, 8, 512]),
        "dram_latency": rng.choice([0, 16, 100]),
    }
    return config(alu=alu, LOG_BATCH=batch, LOG_BLOCK=block, **{key: int(value) for key, value in sizes.items()})


def check_network(name: str, seed: int, random: int = 1) -> tuple[Launch, ...]:
    rng = np.random.default_rng([seed, *name.encode()])
    machine = CONFIGS[name] if name in CONFIGS else any_machine(rng)
    graph = random_network(rng)
    samples = int(rng.integers(1, 4))
    inputs = {
        key: rng.integers(-128, 128, (samples, *graph.tensors[key].shape)).astype(np.int8) for key in graph.inputs
    }
    rounding = "tflm" if rng.random() < 0.85 else str(rng.choice(["litert", "xnnpack"]))
    golden = golden_of(graph, inputs, rounding)
    return check_program(compile_graph(graph, machine, rounding), golden, random)


@pytest.mark.parametrize("name", [*CONFIGS, "any 0", "any 1", "any 2", "any 3"])
def test_random_network(name: str) -> None:
    for seed in range(2):
        print("machine", name, "seed", seed)
        check_network(name, seed)


def test_a_row_of_the_kernel_may_only_meet_padding() -> None:
    """Its weights are loaded as a piece that nothing uses."""
    check_network("four banks", 125, random=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CONFIGS, "any 4", "any 5", "any 6", "any 7"])
def test_many_random_networks(name: str) -> None:
    chained = 0
    for seed in range(100, 130):
        print("machine", name, "seed", seed)
        chained += sum(len(launch.nodes) > 1 for launch in check_network(name, seed, random=3))
    assert chained > 0 or name == "four"


def check_graph(graph: Graph, machine: Config, seed: int = 0) -> tuple[Launch, ...]:
    rng = np.random.default_rng(seed)
    x = {name: rng.integers(-128, 128, (2, *graph.tensors[name].shape)).astype(np.int8) for name in graph.inputs}
    return check_program(compile_graph(graph, machine, "tflm"), golden_of(graph, x, "tflm"), random=1)


@pytest.mark.parametrize("name", ["fused", "four, fused", "rounding"])
def test_rows_of_pixels_that_share_a_tile(name: str) -> None:
    """A layer leaves something behind the last pixel of a row: one that pads on the right cannot read it as it lies."""
    for width, padding, chained in ((10, (1, 1, 1, 1), True), (11, (1, 1, 1, 1), False), (11, (1, 1, 2, 0), True)):
        builder = Builder(np.random.default_rng(width))
        x = builder.given((1, 5, width, 3))
        for _ in range(2):
            x = builder.linear(DepthwiseConv2D("none", Window((3, 3), padding=padding)), x, (1, 3, 3, 3), 3)
        launches = check_graph(builder.graph(), CONFIGS[name])
        assert all(form["fold"] == 5 for launch in launches for form in launch.meta["layers"])
        assert (len(launches) == 1) == chained


def test_patches_are_laid_out_by_the_host() -> None:
    """Even where they have as many tiles as the image that they are of."""
    builder = Builder(np.random.default_rng(2))
    x = builder.given((1, 4, 5, 16))
    x = builder.linear(Conv2D("none"), x, (3, 1, 1, 16), 0)
    builder.linear(Conv2D("none", Window((2, 2), padding=(0, 1, 1, 0))), x, (8, 2, 2, 3), 0)
    for name in ("fused", "four, fused"):
        check_graph(builder.graph(), CONFIGS[name])


def test_rows_of_one_length_and_another() -> None:
    """Two rows of 4 in a tile are not a row of 8."""
    builder = Builder(np.random.default_rng(4))
    x = builder.given((2, 16))
    x = builder.linear(FullyConnected("none"), x, (4, 16), 0)
    builder.linear(FullyConnected("none"), x, (8, 8), 0)
    check_graph(builder.graph(), CONFIGS["batch 4, block 8"])
    check_graph(builder.graph(), CONFIGS["batch 4, rounding"])


def test_slots_of_one_place_and_other_sizes_in_turn() -> None:
    """A third layer has the slots of the first; the second's lie across them, and it waits for those too."""
    for channels in ((64, 16, 64, 16), (16, 128, 16, 128)):
        builder = Builder(np.random.default_rng(1))
        x = builder.given((1, 3, 7, channels[0]))
        for before, after in zip(channels, (*channels[1:], 32), strict=True):
            x = builder.linear(Conv2D("relu"), x, (after, 1, 1, before), 0)
        for name in ("small", "small, three", "small, rounding"):
            check_graph(builder.graph(), CONFIGS[name])


@pytest.mark.parametrize("alu", ["fused", "rounding"])
def test_parameters_without_room_are_left_to_the_host(alu: str) -> None:
    """A convolution then leaves sums, an addition runs on the host."""
    builder = Builder(np.random.default_rng(3))
    x = builder.given((1, 3, 3, 16))
    y = builder.linear(Conv2D("none"), x, (16, 1, 1, 16), 0)
    builder.layer(Add(), x, y)
    tiny = config(alu=alu, LOG_PAR_BUFF_SIZE=7, LOG_ACC_BUFF_SIZE=9, LOG_INP_BUFF_SIZE=9)
    program = compile_graph(builder.graph(), tiny, "tflm")
    assert [step.reason for step in program.steps if isinstance(step, HostStep)] == [
        "its parameters do not fit the memory for parameters (par, or a quarter of acc)"
    ]
    (launch,) = check_graph(builder.graph(), tiny)
    assert launch.meta["layers"][0]["planes"] > 1
