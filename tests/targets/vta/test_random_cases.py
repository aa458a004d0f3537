"""Any layer on any machine: the reference's codes, no hazard, within every memory, never faster than its own work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.targets.vta.capacity import check_capacity
from tests.targets.vta.cases import Case, layers, machines, networks
from tests.targets.vta.networks import Builder
from tests.targets.vta.promises import check
from tilewright import targets
from tilewright.graph.ops import Conv2D
from tilewright.targets.vta.compiler.compiler import compile_graph
from tilewright.targets.vta.config import PRESETS, Config

pytestmark = pytest.mark.usefixtures("brief_search")

VTA = targets.get("vta")
FEW = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
MANY = settings(FEW, max_examples=2000, derandomize=False, print_blob=True)


def check_many(cases: st.SearchStrategy[Case], limits: settings, folder: Path) -> int:
    """How many of the random cases ran on the machine at least in part."""
    on_machine = 0

    @given(case=cases, machine=machines())
    @limits
    def each(case: Case, machine: Config) -> None:
        nonlocal on_machine
        program = check(case, machine, folder)
        on_machine += bool(program and program.launches)

    each()
    return on_machine


@pytest.mark.parametrize(("cases", "count"), [(layers(), 20), (networks(), 12)], ids=["layers", "networks"])
def test_cases_on_machines(cases: st.SearchStrategy[Case], count: int, tmp_path: Path) -> None:
    assert check_many(cases, settings(FEW, max_examples=count), tmp_path) > count // 3


@pytest.mark.slow
@pytest.mark.parametrize("cases", [layers(), networks()], ids=["layers", "networks"])
def test_many_cases_on_machines(cases: st.SearchStrategy[Case], tmp_path: Path) -> None:
    """New ones in every run; hypothesis prints what reproduces a failure."""
    assert check_many(cases, MANY, tmp_path) > MANY.max_examples // 3


@pytest.mark.parametrize("memory", ["uop", "inp", "wgt", "acc", "out", "par"])
def test_a_memory_that_is_too_small_is_noticed(memory: str) -> None:
    """What the capacity check is worth: the same program, judged by a machine with one tile in that memory."""
    builder = Builder(np.random.default_rng(1))
    builder.linear(Conv2D("none"), builder.given((1, 4, 4, 32)), (32, 1, 1, 32), 0)
    machine = replace(PRESETS["pynq"], alu="fused")
    (launch,) = compile_graph(builder.graph(), machine, "tflm").launches
    check_capacity(launch, machine)
    machine.__dict__[memory] = getattr(machine, memory)._replace(index_bits=0)
    with pytest.raises(AssertionError):
        check_capacity(launch, machine)
