"""Machines without an out memory (fsim): a store reads the accumulators, which the next layer's loads wait for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.targets.vta.networks import Builder
from tilewright.graph.ir import Graph, Quant, Tensor
from tilewright.graph.ops import Add, Conv2D, Window
from tilewright.targets import vta
from tilewright.targets.vta.compiler.compiler import compile_graph
from tilewright.targets.vta.config import PRESETS

SMALL = replace(
    PRESETS["pynq"],
    LOG_UOP_BUFF_SIZE=3,
    LOG_ALU_UOP_BUFF_SIZE=3,
    LOG_INP_BUFF_SIZE=9,
    LOG_WGT_BUFF_SIZE=9,
    LOG_ACC_BUFF_SIZE=9,
    LOG_PAR_BUFF_SIZE=7,
)
ONE = Quant((1.0,), (0,))


def network() -> Graph:
    """A sum, then a convolution whose lower bound is a tile that is loaded into the accumulators."""
    builder = Builder(np.random.default_rng(1))
    builder.tensors["x0"] = Tensor("x0", (1, 2, 8, 96), "int8", ONE)
    builder.inputs.append("x0")
    added = builder.layer(Add("relu6"), "x0", "x0", quant=ONE)
    weights = builder.rng.integers(-1, 2, (33, 2, 1, 96)).astype(np.int8)
    constant = Tensor("w", weights.shape, "int8", Quant((0.5,), (0,)), weights)
    window = Window((2, 1), (1, 1), (1, 1, 0, 0), (1, 2))
    out = builder.layer(Conv2D("relu_n1_to_1", window=window), added, constants=(constant,), quant=ONE)
    return Graph("two", builder.tensors, tuple(builder.nodes), ("x0",), (out,))


@pytest.mark.parametrize("semantics", ["hls", "fsim"])
def test_a_layers_parameters_wait_for_the_stores_before(semantics: str) -> None:
    program = compile_graph(network(), replace(SMALL, semantics=semantics), "pow2")
    assert [step.name for step in program.launches] == ["n0..n1"]
    assert [str(finding) for finding in vta.TARGET.check(program)] == []
