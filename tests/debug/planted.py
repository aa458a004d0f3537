"""The networks and faults of examples/faults.py, compiled once, for tests."""

from __future__ import annotations

import runpy
from functools import cache
from typing import Any

from tests.conftest import ROOT
from tilewright.array import Array
from tilewright.model import inputs
from tilewright.program.program import Program

_EXAMPLE = runpy.run_path(str(ROOT / "examples" / "faults.py"))
#: The faults by name: (launch, line, old, new, guilty, alu, section).
FAULTS: dict[str, Any] = _EXAMPLE["FAULTS"]
SCRIPTS = ROOT / "docs" / "debug"


@cache
def right(alu: str = "upstream", target: str = "vta") -> Program:
    """The network without a fault."""
    program: Program = _EXAMPLE["compiled"](alu, target)
    return program


def wrong(name: str) -> Program:
    """The network with a fault."""
    fault = FAULTS[name]
    program: Program = _EXAMPLE["planted"](right(fault.alu, fault.target), fault)
    return program


@cache
def sample() -> dict[str, Array]:
    """The first sample of the network."""
    graph = right().graph
    assert graph is not None
    found = inputs.read(str(ROOT / "examples" / "digits" / "samples.npz"), graph).values
    return {name: array[:1] for name, array in found.items()}
