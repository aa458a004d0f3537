"""Random networks on machines of three and four stages and every ALU: the reference's codes, no finding, in any order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.targets.vta.networks import random_network
from tilewright import host, targets
from tilewright.array import Array
from tilewright.graph import reference
from tilewright.graph.ir import Graph, Site
from tilewright.program.program import HostStep, Launch, Program
from tilewright.targets.base import RunOptions
from tilewright.targets.vta.codegen import compile_graph
from tilewright.targets.vta.config import PRESETS, Config

VTA = targets.get("vta")


def config(**overrides: Any) -> Config:
    return replace(PRESETS["pynq"], **overrides)


def buffers(uop: int, inp: int, wgt: int, acc: int, **overrides: Any) -> Config:
    sizes = {"LOG_UOP_BUFF_SIZE": uop, "LOG_INP_BUFF_SIZE": inp, "LOG_WGT_BUFF_SIZE": wgt, "LOG_ACC_BUFF_SIZE": acc}
    return config(**sizes, **overrides)


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
            values.update(host.run_node(graph, step.node, values, program.rounding))
            continue
        orders = [RunOptions(timing="hls"), *(RunOptions(order="random", seed=seed) for seed in range(random))]
        for options in orders:
            result = VTA.launch(program, step, values, options)
            assert [str(finding) for finding in result.findings] == []
            for name, codes in result.values.items():
                np.testing.assert_array_equal(codes, golden[name], err_msg=f"{step.name}: {name}, {options}")
            if len(step.nodes) > 1 and result.trace:
                assert len(result.parts) == len(step.nodes)
                assert sum(part.cycles for part in result.parts) == result.trace.cycles
        values.update(result.values)
    assert set(graph.outputs) <= set(values)
    assert [str(finding) for finding in VTA.check(program)] == []
    return program.launches


def check_network(name: str, seed: int, random: int = 1) -> tuple[Launch, ...]:
    machine = CONFIGS[name]
    rng = np.random.default_rng([seed, *name.encode()])
    graph = random_network(rng)
    samples = int(rng.integers(1, 4))
    inputs = {
        key: rng.integers(-128, 128, (samples, *graph.tensors[key].shape)).astype(np.int8) for key in graph.inputs
    }
    rounding = "tflm" if rng.random() < 0.85 else str(rng.choice(["litert", "xnnpack"]))
    golden = golden_of(graph, inputs, rounding)
    return check_program(compile_graph(graph, machine, rounding), golden, random)
