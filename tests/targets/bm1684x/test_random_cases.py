"""Any layer and network on any machine: the reference's codes, no hazard, within every memory, in every legal order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from tests.targets.vta.cases import Case, Draw, layers, networks
from tilewright.errors import ConfigError
from tilewright.program.program import HostStep, Launch, Program
from tilewright.sim.findings import RACE
from tilewright.targets.bm1684x import TARGET, timing
from tilewright.targets.bm1684x.command import Command, Constant
from tilewright.targets.bm1684x.compiler import run
from tilewright.targets.bm1684x.compiler.image import Image
from tilewright.targets.bm1684x.compiler.spans import as_tensor
from tilewright.targets.bm1684x.config import DDR_BASE, LOCAL_BASE, Config
from tilewright.targets.bm1684x.isa.stream import decode, encode
from tilewright.targets.bm1684x.operations import DMA, TIU

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


def check(case: Case, machine: Config) -> Program:
    """All that a compiled network promises."""
    program = TARGET.compile(case.graph, machine, case.rounding)
    assert all(step.reason for step in program.steps if isinstance(step, HostStep))
    result = program.run(case.inputs)
    assert result.matches_reference
    assert [str(finding) for finding in result.findings] == []
    for launch in program.launches:
        check_launch(launch, machine)
    if program.launches:
        for order, seed in (("random", 1), ("random", 2), ("time", 0)):
            assert program.run(case.inputs, order=order, seed=seed).matches_reference, (order, seed)
    return program


def check_launch(launch: Launch, machine: Config) -> None:
    """Every command within the machine's memories, and no engine faster than its own work."""
    known, image = run.passes(launch, machine), Image.of(launch, machine)
    segments = [(DDR_BASE, DDR_BASE + len(image.constants))]
    segments += [(s.address, s.address + s.stored.nbytes * image.batch) for s in (*image.inputs, *image.outputs)]
    work = Counter[str]()
    for step in known.program.steps:
        work[step.engine] += timing.cycles(step.command, machine)
        for operand in (*step.command.operands.values(), *step.command.results.values()):
            if isinstance(operand, Constant):
                continue
            tensor = as_tensor(operand)
            low, high = int(tensor.addresses.min()), int(tensor.addresses.max()) + tensor.dtype.bytes
            if tensor.is_local:
                lane = (tensor.addresses - LOCAL_BASE) % machine.lane_bytes
                assert 0 <= low - LOCAL_BASE and high - LOCAL_BASE <= machine.local_bytes, str(step)
                assert int(lane.max()) + tensor.dtype.bytes <= machine.lane_bytes, str(step)
            else:
                assert any(begin <= low and high <= end for begin, end in segments), str(step)
    assert work[TIU] > 0
    assert work[DMA] > 0
    assert max(work.values()) <= known.trace.cycles <= sum(work.values()) == known.serial.cycles
    assert known.trace.cycles <= launch.meta["scheduled"]


def check_many(cases: st.SearchStrategy[Case], limits: settings) -> int:
    """How many of the random cases ran on the machine at least in part."""
    on_machine = 0

    @given(case=cases, machine=machines())
    @limits
    def each(case: Case, machine: Config) -> None:
        nonlocal on_machine
        on_machine += bool(check(case, machine).launches)

    each()
    return on_machine


@pytest.mark.parametrize(("cases", "count"), [(layers(), 30), (networks(), 10)], ids=["layers", "networks"])
def test_cases_on_machines(cases: st.SearchStrategy[Case], count: int) -> None:
    assert check_many(cases, settings(FEW, max_examples=count)) > count // 3


@pytest.mark.slow
@pytest.mark.parametrize("cases", [layers(), networks()], ids=["layers", "networks"])
def test_many_cases_on_machines(cases: st.SearchStrategy[Case]) -> None:
    """New ones in every run; hypothesis prints what reproduces a failure."""
    assert check_many(cases, MANY) > MANY.max_examples // 3
