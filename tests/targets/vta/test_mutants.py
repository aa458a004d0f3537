"""Compiled chains with a token taken away or moved: each is reported, or gives the same values in every order.

A mutation keeps pushes and pops balanced, so that only the order of instructions gets weaker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from tests.targets.vta.networks import Builder
from tests.targets.vta.test_networks import buffers, config
from tilewright.array import Array
from tilewright.graph.ir import Graph
from tilewright.graph.ops import Add, Conv2D, DepthwiseConv2D, Window
from tilewright.program.program import Launch
from tilewright.sim.findings import Finding
from tilewright.targets.base import RunOptions
from tilewright.targets.vta.codegen import compile_graph, pack
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.image import Image
from tilewright.targets.vta.isa.pipeline import POP_BITS, PUSH_BITS
from tilewright.targets.vta.isa.stream import Stream, decode, encode
from tilewright.targets.vta.passes import run_passes

SMALL_PAR = {"LOG_PAR_BUFF_SIZE": 10}
MACHINES = {
    "three, fused": buffers(10, 11, 14, 13, alu="fused", **SMALL_PAR),
    "four": buffers(12, 11, 14, 13, stages=4),
    "four, fused": buffers(12, 11, 14, 13, stages=4, alu="fused", **SMALL_PAR),
    "four banks": config(stages=4, alu="fused", acc_banks=4, LOG_PAR_BUFF_SIZE=10),
}


def residual_network(rng: np.random.Generator) -> Graph:
    """Depthwise and pointwise layers of some channel tiles, and their sum with the input."""
    builder, channels = Builder(rng), 40
    x = builder.given((1, 7, 7, channels))
    window = Window((3, 3), (1, 1), (1, 1, 1, 1))
    inner = builder.linear(DepthwiseConv2D("relu", window), x, (1, 3, 3, channels), 3)
    inner = builder.linear(Conv2D("none"), inner, (64, 1, 1, channels), 0)
    inner = builder.linear(Conv2D("relu6"), inner, (channels, 1, 1, 64), 0)
    builder.layer(Add(), x, inner)
    return builder.graph()


class Mutation(NamedTuple):
    """Where a token was pushed and popped, and by which step (-1: none) it is now."""

    push: int
    pop: int
    new_push: int
    new_pop: int


def mutations(stream: Stream, machine: Config) -> Iterator[tuple[Mutation, Stream]]:
    """Every token dropped, popped by the next instruction of its unit, or pushed by the one before."""
    line = machine.pipeline
    units = line.units_of(stream)
    for producer in range(len(line.units)):
        for push_bit, pop_bit in ((PUSH_BITS[1], POP_BITS[0]), (PUSH_BITS[0], POP_BITS[1])):
            consumer = line.neighbour(producer, push_bit)
            if consumer is None:
                continue
            given, taken = np.flatnonzero(units == producer), np.flatnonzero(units == consumer)
            pushes, pops = getattr(stream, push_bit)[given], getattr(stream, pop_bit)[taken]
            for a, b in zip(np.flatnonzero(pushes).tolist(), np.flatnonzero(pops).tolist(), strict=True):
                places = [(-1, -1)]
                places += [(a, b + 1)] if b + 1 < len(taken) and not pops[b + 1] else []
                places += [(a - 1, b)] if a and not pushes[a - 1] else []
                for new_a, new_b in places:
                    push, pop = getattr(stream, push_bit).copy(), getattr(stream, pop_bit).copy()
                    push[given[a]] = pop[taken[b]] = 0
                    if new_a >= 0:
                        push[given[new_a]] = pop[taken[new_b]] = 1
                    at = (int(given[new_a]), int(taken[new_b])) if new_a >= 0 else (-1, -1)
                    yield (
                        Mutation(int(given[a]), int(taken[b]), *at),
                        replace(stream, **{push_bit: push, pop_bit: pop}),
                    )


class Case(NamedTuple):
    machine: Config
    launch: Launch
    packed: dict[str, Array]

    def findings(self, insns: Array) -> tuple[Finding, ...]:
        image = Image.of(self.launch)
        dram = image.dram(self.packed, 1)
        return run_passes(insns, self.machine, dram, image.bases, 1, RunOptions(values=False)).findings

    def outputs(self, insns: Array, seed: int) -> bytes:
        """What is left in DRAM after the stream in a random order (0: the usual one)."""
        image = Image.of(self.launch)
        dram = image.dram(self.packed, 1)
        options = RunOptions(order="random" if seed else "stream", seed=seed)
        run_passes(insns, self.machine, dram, image.bases, 1, options)
        return b"".join(dram[name].tobytes() for name in image.outputs)


def case_of(name: str) -> Case:
    machine, rng = MACHINES[name], np.random.default_rng(5)
    graph = residual_network(rng)
    launch = max(compile_graph(graph, machine, "tflm").launches, key=lambda launch: len(launch.arrays["insns"]))
    x = {key: rng.integers(-128, 128, (1, *graph.tensors[key].shape)).astype(np.int8) for key in graph.tensors}
    return Case(machine, launch, pack(launch, graph, x))


def run_mutants(name: str, share: float, orders: int) -> tuple[Counter[str], int]:
    """Over a share of all mutants: findings by memory, and how many mutants had none."""
    case, rng = case_of(name), np.random.default_rng(1)
    stream = decode(case.launch.arrays["insns"], case.machine)
    golden = case.outputs(encode(stream, case.machine), 0)
    assert not case.findings(encode(stream, case.machine))
    spaces: Counter[str] = Counter()
    harmless = 0
    for mutation, mutant in mutations(stream, case.machine):
        if rng.random() > share:
            continue
        insns = encode(mutant, case.machine)
        found = case.findings(insns)
        spaces.update({finding.space or finding.kind for finding in found})
        if found:
            continue
        harmless += 1
        for seed in range(1, orders + 1):
            assert case.outputs(insns, seed) == golden, f"{name} {mutation} order {seed}: differs, unreported"
    return spaces, harmless


@pytest.mark.parametrize("name", MACHINES)
def test_mutants_are_reported_or_harmless(name: str) -> None:
    spaces, harmless = run_mutants(name, 0.25, 4)
    print(name, dict(spaces), "harmless", harmless)
    assert {"inp", "out"} <= set(spaces)
    assert harmless < sum(spaces.values()) // 4


@pytest.mark.slow
@pytest.mark.parametrize("name", MACHINES)
def test_all_mutants(name: str) -> None:
    spaces, harmless = run_mutants(name, 1.0, 12)
    print(name, dict(spaces), "harmless", harmless)
    expected = {"inp", "wgt", "out", "stream"}
    expected |= {"acc", "acc bank"} if MACHINES[name].stages == 4 else set()
    expected |= {"par", "DRAM"} if MACHINES[name].alu == "fused" else set()  # layers are chained
    assert expected <= set(spaces)
