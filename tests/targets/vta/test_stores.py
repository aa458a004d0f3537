"""Programs planned for the timing model chisel, in which stores cost most: the reference's codes, and few bursts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.targets.vta.random_graphs import CONFIGS, graph_of, random_graph
from tests.targets.vta.single_node import codes
from tilewright.array import Array
from tilewright.debug.session import Session
from tilewright.graph.ir import Graph, Quant, Site, Tensor
from tilewright.graph.ops import Conv2D, DepthwiseConv2D, FullyConnected, Linear, Op, Window
from tilewright.graph.rounding import rounding_mode
from tilewright.program.program import Launch
from tilewright.run import run
from tilewright.targets.vta.compiler import constant, narrow
from tilewright.targets.vta.compiler.compiler import compile_graph
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import Opcode
from tilewright.targets.vta.isa.stream import decode
from tilewright.targets.vta.launch.layouts import STORED

TFLM = rounding_mode("tflm")
MACHINES = {
    "pynq": CONFIGS["pynq"],
    "short bursts": replace(CONFIGS["pynq"], burst_beats=16),
    "wide bus": replace(CONFIGS["pynq"], LOG_BUS_WIDTH=7),
    "small": CONFIGS["small"],
    "batch2": CONFIGS["batch2"],
    "block32": CONFIGS["block32"],
}


@pytest.mark.parametrize("name", MACHINES)
def test_random_layers_equal_the_reference(name: str, brief_search: None) -> None:
    config = MACHINES[name]
    reordered = 0
    for seed in range(6):
        rng = np.random.default_rng([seed, len(name)])
        graph = random_graph(rng)
        program = compile_graph(graph, config, "tflm", "chisel")
        result = run(program, {tensor: codes(rng, graph.tensors[tensor], 2) for tensor in graph.inputs})
        assert result.matches_reference, f"seed {seed}"
        assert not result.findings, f"seed {seed}"
        for launch in program.launches:
            if f"{STORED}.0" in launch.arrays:
                check_bursts(launch, config)
                reordered += 1
    assert reordered > 2


def check_bursts(launch: Launch, config: Config) -> None:
    """Every store writes one row, in as few bursts as a row of this length needs."""
    stream = decode(launch.arrays["insns"], config)
    stores = np.flatnonzero(stream.opcode == Opcode.STORE)
    assert (stream.mem.y_size[stores] == 1).all()
    burst = config.burst_beats * config.bus_bits // 8
    length = stream.mem.x_size[stores] * config.out.tile_bytes
    first = stream.mem.dram_base[stores] * config.out.tile_bytes
    np.testing.assert_array_equal((first + length - 1) // burst - first // burst, (length - 1) // burst)


#: The operator, input and weights of layers with three byte planes: a matrix product, patches, strips, plain images.
LAYERS: dict[str, tuple[Op, tuple[int, ...], tuple[int, ...]]] = {
    "rows": (FullyConnected(), (20, 300), (70, 300)),
    "pixels": (Conv2D(), (1, 9, 7, 64), (40, 1, 1, 64)),
    "patches": (Conv2D(window=Window((5, 5), (1, 1), (2, 2, 2, 2))), (1, 9, 8, 3), (35, 5, 5, 3)),
    "image": (Conv2D(window=Window((3, 3), (2, 1), (1, 0, 1, 1))), (1, 8, 9, 24), (50, 3, 3, 24)),
    "strips": (DepthwiseConv2D(window=Window((5, 5), (1, 1), (2, 2, 2, 2))), (1, 7, 12, 20), (1, 5, 5, 20)),
    "depthwise": (DepthwiseConv2D(window=Window((5, 5), (2, 2), (1, 2, 0, 1))), (1, 9, 9, 40), (1, 5, 5, 40)),
    "grouped": (Conv2D(window=Window((3, 3))), (1, 6, 6, 48), (64, 3, 3, 24)),
}


def saturating(kind: str, rng: np.random.Generator) -> Graph:
    """A layer whose codes are often the lowest or the highest, with some channels of more and of fewer such codes."""
    op, shape, wide = LAYERS[kind]
    axis = 3 if isinstance(op, DepthwiseConv2D) else 0
    outputs = wide[axis]
    x = Tensor("x", shape, "int8", Quant((1.0,), (int(rng.choice([-128, 0, 5])),)))
    few = [0.006, 0.02, 0.05]  # the channels of a group keep their order
    scales = tuple(rng.choice(few if kind == "grouped" else [0.001, 0.004, *few], outputs).tolist())
    w = Tensor("w", wide, "int8", Quant(scales, (0,) * outputs, axis), rng.integers(-128, 128, wide).astype(np.int8))
    bias = Tensor("b", (outputs,), "int32", None, rng.integers(-9000, 9000, outputs).astype(np.int32))
    return graph_of(op, x, [w, bias], Tensor("y", (), "int8", Quant((1.0,), (int(rng.choice([-128, 3])),))))


def extremes(graph: Graph, rng: np.random.Generator) -> dict[str, Array]:
    """Codes that make some sums of each channel as high or as low as they can be, and random codes."""
    (node,) = graph.nodes
    x = graph.tensors[node.inputs[0]]
    samples = [codes(rng, x, 2)]
    if len(node.inputs) > 1 and graph.tensors[node.inputs[1]].data is not None:
        signs = rng.choice([-128, 127], (6, *x.shape[-1:]))  # all pixels alike, so that they agree with some channel
        samples.append(np.broadcast_to(signs.reshape(6, *[1] * (len(x.shape) - 1), -1), (6, *x.shape)))
    return {x.name: np.concatenate(samples).astype(x.dtype)}


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("kind", LAYERS)
def test_clamped_sums_give_the_same_codes(
    kind: str, pairs: bool, brief_search: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many channel tiles as possible are clamped, whether this saves cycles or not."""
    monkeypatch.setattr(narrow, "cycles", lambda layer, context: -float(layer.narrow + 99 * (pairs and layer.paired)))
    clamped = 0
    kinds = list(LAYERS)
    for seed, (name, config) in enumerate(MACHINES.items()):
        if (seed + kinds.index(kind)) % 2:  # each layer on half of the machines
            continue
        rng = np.random.default_rng([seed, len(kind)])
        graph = saturating(kind, rng)
        program = compile_graph(graph, config, "tflm", "chisel")
        planes = [launch.arrays.get(f"{STORED}.0") for launch in program.launches]
        clamped += any(stored is not None and (stored < 0).any() for stored in planes)
        result = run(program, extremes(graph, rng))
        assert result.matches_reference, name
        assert not result.findings, name
    assert clamped
    assert Session(program, {"x": extremes(graph, rng)["x"][:1]}).differs() is None


def code_of(site: Site, sums: Array) -> Array:
    op = site.node.op
    assert isinstance(op, Linear)
    return op.finish(site, sums.astype(np.int32)[None], TFLM)[0]


def test_bounds_are_where_codes_begin_to_differ() -> None:
    """Below and above the window the code is constant, and one sum inside the window has another code."""
    checked = 0
    for seed in range(40):
        (site,) = random_graph(np.random.default_rng(seed)).sites()
        op = site.node.op
        sums = constant.proven_sums(site, op, TFLM, {}) if isinstance(op, Linear) else None
        if sums is None:
            continue
        low, high = sums
        assert isinstance(op, Linear)
        bottom, top = narrow._bounds(site, op, TFLM, low, high)
        np.testing.assert_array_equal(code_of(site, bottom), code_of(site, low))
        np.testing.assert_array_equal(code_of(site, top), code_of(site, high))
        varies = code_of(site, low) != code_of(site, high)
        assert (code_of(site, bottom + 1) != code_of(site, low))[varies].all()
        assert (code_of(site, top - 1) != code_of(site, high))[varies].all()
        checked += int(varies.sum())
    assert checked > 100
