"""Dependences and addresses of compiled programs broken at random: each mutant is reported, or shown to be harmless."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.conftest import ROOT
from tests.mlperf import FILES, model_path
from tests.targets.vta.machines import buffers, config
from tests.targets.vta.mutation import KINDS, MISSED, TOKENS, Subject, outcomes, reported, text
from tests.targets.vta.networks import Builder
from tests.targets.vta.random_graphs import CONFIGS, random_graph
from tilewright.graph.ir import Graph
from tilewright.graph.ops import Add, Conv2D, DepthwiseConv2D, Window
from tilewright.program.program import Program
from tilewright.sim.findings import OUT_OF_RANGE, RACE, UNINITIALISED, Finding
from tilewright.sim.hazards import hazards, mode_at, scan
from tilewright.sim.order import Order
from tilewright.sim.steps import COUNT, Footprints, StepTable
from tilewright.sim.suspects import everything
from tilewright.targets.vta.compiler.compiler import compile_graph
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.passes import Prepared

pytestmark = pytest.mark.usefixtures("brief_search")

SEED = 20261121
#: Random layers (configuration, seed) in more than one tile, so that slots are used again; some move rows apart.
LAYERS = (("tiny", 33), ("tiny", 42), ("small", 64), ("few_uops", 19), ("batch4b8", 16), ("shallow", 7))


def subjects(program: Program) -> list[Subject]:
    machine = Config.from_json(program.config)
    return [Subject.of(launch, machine, np.random.default_rng(SEED)) for launch in program.launches]


@cache
def digits() -> tuple[Subject, ...]:
    model = ROOT / "examples" / "digits" / "digits.tflite"
    machines: tuple[dict[str, str], ...] = ({}, {"alu": "fused"}, {"stages": "4"}, {"stages": "4", "alu": "fused"})
    return tuple(s for keys in machines for s in subjects(tw.compile(model, target="vta", overrides=keys)))


@cache
def layers() -> tuple[Subject, ...]:
    found = []
    for name, seed in LAYERS:
        found += subjects(compile_graph(random_graph(np.random.default_rng(seed)), CONFIGS[name], "tflm"))
    return tuple(found)


#: Machines whose layers follow each other in one launch, small, so that slots are used again.
MACHINES = {
    "three, fused": buffers(10, 11, 14, 13, alu="fused", LOG_PAR_BUFF_SIZE=10),
    "four": buffers(12, 11, 14, 13, stages=4, acc_banks=2),
    "four, fused": buffers(12, 11, 14, 13, stages=4, acc_banks=2, alu="fused", LOG_PAR_BUFF_SIZE=10),
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


@cache
def chained(name: str) -> tuple[Subject, ...]:
    graph = residual_network(np.random.default_rng(5))
    return tuple(subjects(compile_graph(graph, MACHINES[name], "tflm")))


def compared(passes: Prepared) -> set[str]:
    """What the check finds, which a scan of every element finds as well."""
    if OUT_OF_RANGE not in reported(passes):
        table, relation = passes.elaborated.table, passes.order
        found = [finding for finding in passes.findings if finding.kind in (RACE, UNINITIALISED)]
        assert found == scan(table, relation, everything(table))
    return reported(passes)


def try_all(subjects: Sequence[Subject], count: int, kinds: Sequence[str] = KINDS) -> set[str]:
    """About `count` mutants of some launches; returns the memories that findings were in."""
    spaces: set[str] = set()

    def check(passes: Prepared) -> set[str]:
        spaces.update(finding.space for finding in passes.findings)
        return compared(passes)

    for subject in subjects:
        assert subject.passes(subject.unbroken).findings == (), subject.name
    counts: Counter[tuple[str, str]] = Counter()
    missed = []
    for kind, outcome, note in outcomes(subjects, SEED, -(-count // len(subjects)), check, kinds):
        counts[kind, outcome] += 1
        missed += [note] if outcome == MISSED else []
    print(f"seed {SEED}: {', '.join(subject.name for subject in subjects)}\n{text(counts)}")
    assert counts.total() >= count * 0.9
    assert missed == []
    return spaces


def test_mutants_of_digits() -> None:
    try_all(digits(), 42)


def test_mutants_of_layers() -> None:
    assert len(layers()) == len(LAYERS)
    try_all(layers(), 40)


def test_mutants_that_move_dram_rows() -> None:
    """Transfers of the layers whose rows lie apart, moved onto each other."""
    try_all(layers()[:2], 50, ("dram base",))


@pytest.mark.parametrize("name", MACHINES)
def test_mutants_of_chains(name: str) -> None:
    assert {"inp", "out"} <= try_all(chained(name), 30, TOKENS)


@pytest.mark.slow
@pytest.mark.parametrize("name", MACHINES)
def test_many_mutants_of_chains(name: str) -> None:
    expected = {"inp", "wgt", "out"}
    expected |= {"acc", "acc bank"} if MACHINES[name].stages == 4 else set()
    expected |= {"par", "DRAM"} if MACHINES[name].has_parameters else set()
    assert expected <= try_all(chained(name), 500, TOKENS)


@pytest.mark.slow
@pytest.mark.parametrize("key", FILES)
def test_many_mutants_of_a_network(shared: Path, key: str) -> None:
    try_all(subjects(tw.compile(model_path(shared, key), target="vta")), 500)


@pytest.mark.slow
def test_many_mutants_of_digits() -> None:
    try_all(digits(), 500)


@pytest.mark.slow
def test_many_mutants_of_layers() -> None:
    try_all(layers(), 500)


#: Checkers with a defect: which hazards they do not see.
DEFECTS: dict[str, Callable[[StepTable, Order], list[Finding]]] = {
    "nothing in out": lambda table, relation: [f for f in hazards(table, relation) if f.space != "out"],
    "nothing in inp": lambda table, relation: [f for f in hazards(table, relation) if f.space != "inp"],
    "nothing in DRAM": lambda table, relation: [f for f in hazards(table, relation) if f.space != "DRAM"],
    "no write after read": lambda table, relation: [
        f for f in hazards(table, relation) if modes(table, f)[0] != "read"
    ],
    "no read after write": lambda table, relation: [
        f for f in hazards(table, relation) if modes(table, f)[1] != "read"
    ],
    "one step too many is over": lambda table, relation: hazards(table, replace(relation, clock=relation.clock + 1)),
    "first rows only": lambda table, relation: hazards(first_rows(table), relation),
}


def modes(table: StepTable, finding: Finding) -> list[str]:
    """How the two steps of a race touch its first element."""
    space = [space.name for space in table.spaces].index(finding.space)
    return [mode_at(table.footprints, table.footprint[step], space, finding.low) for step in finding.steps]


def first_rows(table: StepTable) -> StepTable:
    """Footprints without the rows behind the first of each transfer."""
    footprints = table.footprints
    exact = [footprints.of_step(index).copy() for index in range(len(footprints))]
    for rows in exact:
        rows[:, COUNT] = np.minimum(rows[:, COUNT], 1)
    return replace(table, footprints=Footprints.of(exact))


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_of_the_checker_is_noticed(defect: str) -> None:
    """Some mutant slips through and shows different outputs."""

    def check(passes: Prepared) -> set[str]:
        kinds = reported(passes)
        if OUT_OF_RANGE in kinds:
            return kinds
        found = DEFECTS[defect](passes.elaborated.table, passes.order)
        return (kinds - {RACE, UNINITIALISED}) | {finding.kind for finding in found}

    in_dram = defect in ("nothing in DRAM", "first rows only")
    tried = outcomes(layers() if in_dram else digits(), SEED, 80, check, ("dram base",) if in_dram else TOKENS)
    print(f"seed {SEED}: {next(note for _, outcome, note in tried if outcome == MISSED)}")
