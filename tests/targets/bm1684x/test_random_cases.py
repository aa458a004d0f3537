"""Any layer and network on any machine: the reference's codes, no hazard, within every memory, in every legal order."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from tests.targets.vta.cases import Case, Draw, case_of, layers, networks, windows
from tests.targets.vta.networks import MACHINE_KINDS, Builder
from tilewright.errors import ConfigError
from tilewright.graph.ops import AveragePool2D, Concat, Conv2D, DepthwiseConv2D, MaxPool2D, Mean
from tilewright.program.program import HostStep, Launch, Program
from tilewright.run import run as run_program
from tilewright.targets.bm1684x import TARGET
from tilewright.targets.bm1684x.config import DDR_BASE, LOCAL_BASE, Config
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.isa.operations import DMA, TIU
from tilewright.targets.bm1684x.launch import run
from tilewright.targets.bm1684x.launch.image import QueueImage
from tilewright.targets.bm1684x.timing import estimate

ROUNDINGS = ("tflm", "ort", "pow2", "litert", "xnnpack")
FEW = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
MANY = settings(FEW, max_examples=1500, derandomize=False, print_blob=True)


@st.composite
def machines(draw: Draw) -> Config:
    """Any legal machine that networks can be compiled for, from 4 KiB a lane on; most have some rows of room."""
    banks = draw(st.sampled_from([16, 16, 1, 2, 3, 4, 7, 64]))
    bank_bytes = 1 << draw(st.sampled_from([14, 14, 12, 13, 16, 18]))
    batch = draw(st.integers(1, 5))
    try:
        return Config(1 << draw(st.integers(0, 6)), banks, bank_bytes, batch=batch)
    except ConfigError:
        reject()


@st.composite
def wide_layers(draw: Draw) -> Case:
    """One layer of up to 200 channels and 40 rows more than its window, so that tiles and parts come about."""
    builder = Builder(np.random.default_rng(draw(st.integers(0, 1 << 16))))
    window, (h, w) = draw(windows())
    kind, channels = draw(st.sampled_from(["conv", "conv", "depthwise", "max", "average", "mean"])), st.integers(1, 200)
    depth = draw(channels | st.integers(1, 4))
    x = builder.given((1, h + draw(st.integers(0, 40)), w + draw(st.integers(0, 40)), depth))
    same = builder.tensors[x].quant
    if kind == "conv":
        builder.linear(Conv2D("relu", window), x, (draw(channels), *window.kernel, depth), 0)
    elif kind == "depthwise":
        builder.linear(DepthwiseConv2D("none", window), x, (1, *window.kernel, depth), 3)
    elif kind == "mean":
        builder.layer(Mean((1, 2), draw(st.booleans())), x)
    else:
        pool = MaxPool2D if kind == "max" else AveragePool2D
        builder.layer(pool(window), x, quant=same)
    return case_of(draw, builder, draw(st.sampled_from(ROUNDINGS)))


@st.composite
def chains(draw: Draw) -> Case:
    """Many layers in one launch, most of them the machine's, that read each other's results; perhaps several inputs."""
    builder = Builder(np.random.default_rng(draw(st.integers(0, 1 << 16))))
    builder.given((1, draw(st.integers(1, 40)), draw(st.integers(1, 40)), draw(st.integers(1, 150))))
    for kind in draw(
        st.lists(st.sampled_from([*MACHINE_KINDS, "mean", "concat", "quantize"]), min_size=2, max_size=16)
    ):
        builder.grow(kind)
    if not builder.nodes:
        reject()
    return case_of(draw, builder, draw(st.sampled_from(ROUNDINGS)))


def check(case: Case, machine: Config) -> Program:
    """All that a compiled network promises."""
    program = TARGET.compile(case.graph, machine, case.rounding)
    assert all(step.reason for step in program.steps if isinstance(step, HostStep))
    result = run_program(program, case.inputs)
    assert result.matches_reference
    assert [str(finding) for finding in result.findings] == []
    for launch in program.launches:
        check_launch(launch, machine, all(isinstance(case.graph.node(name).op, Concat) for name in launch.nodes))
    if program.launches:
        for order, seed in (("random", 1), ("random", 2), ("time", 0)):
            assert run_program(program, case.inputs, order=order, seed=seed).matches_reference, (order, seed)
    return program


def check_launch(launch: Launch, machine: Config, only_moves: bool) -> None:
    """Every command within the machine's memories, and no engine faster than its own work."""
    prepared, image = run.prepare(launch, machine), QueueImage.of(launch, machine)
    segments = [(DDR_BASE, DDR_BASE + len(image.constants))]
    segments += [(s.address, s.address + s.form.nbytes * image.batch) for s in (*image.inputs, *image.outputs)]
    work = Counter[str]()
    for step in prepared.program.steps:
        work[step.engine] += estimate.cycles(step.command, machine)
        for operand in (*step.command.operands.values(), *step.command.results.values()):
            if isinstance(operand, Constant):
                continue
            tensor = operand.storage
            low, high = int(tensor.addresses.min()), int(tensor.addresses.max()) + tensor.dtype.bytes
            if tensor.is_local:
                assert low >= LOCAL_BASE
                assert high <= LOCAL_BASE + machine.local_bytes, str(step)
                lane = (tensor.addresses - LOCAL_BASE) % machine.lane_bytes
                assert int(lane.max()) + tensor.dtype.bytes <= machine.lane_bytes, str(step)
            else:
                assert any(begin <= low and high <= end for begin, end in segments), str(step)
    assert work[TIU] > 0 or only_moves  # a tensor that is concatenated with itself is copied by the TIU
    assert work[DMA] > 0
    assert max(work.values()) <= prepared.trace.cycles <= sum(work.values()) == prepared.serial.cycles
    assert prepared.trace.cycles <= launch.meta["scheduled"]


def check_many(cases: st.SearchStrategy[Case], limits: settings) -> int:
    """How many of the random cases ran on the machine at least in part."""
    on_machine = 0

    @given(case=cases, machine=machines())
    @limits
    def check_case(case: Case, machine: Config) -> None:
        nonlocal on_machine
        on_machine += bool(check(case, machine).launches)

    check_case()
    return on_machine


KINDS = {"layers": layers(), "networks": networks(), "wide layers": wide_layers(), "chains": chains()}


@pytest.mark.parametrize(("cases", "count"), list(zip(KINDS.values(), (12, 8, 12, 10), strict=True)), ids=KINDS)
def test_cases_on_machines(cases: st.SearchStrategy[Case], count: int) -> None:
    assert check_many(cases, settings(FEW, max_examples=count)) > count // 3


@pytest.mark.slow
@pytest.mark.parametrize("cases", KINDS.values(), ids=KINDS)
def test_many_cases_on_machines(cases: st.SearchStrategy[Case]) -> None:
    """New ones in every run; hypothesis prints what reproduces a failure."""
    assert check_many(cases, MANY) > MANY.max_examples // 3
