"""Runs a program step by step and compares each launch with the target's compiled gateware."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright import host, targets
from tilewright.array import Array
from tilewright.errors import ConfigError
from tilewright.graph import reference
from tilewright.program.program import HostStep, Program
from tilewright.targets.abilities import CosimCase, Gateware
from tilewright.targets.base import RunOptions


def cosim(program: Program, inputs: Mapping[str, Array] | None, engine: str) -> Iterator[CosimCase]:
    """Each launch on the first sample of `inputs` (None: a bare program).

    Raises ConfigError where the target has no gateware, HazardError for a program that cannot run.
    """
    target = targets.get(program.target)
    if not isinstance(target, Gateware):
        raise ConfigError(program.target, "has no gateware", "cosim needs one; `tilewright exec` runs the simulator")
    graph, values = program.graph, dict[str, Array]()
    if graph is not None and inputs is not None:
        values = {name: data[:1] for name, data in reference.check_inputs(graph, inputs).items()}
    for step in program.steps:
        if isinstance(step, HostStep):
            assert graph is not None
            values.update(host.run_node(graph, step.node, values, program.rounding))
            continue
        yield target.cosim(program, step, values, engine)
        if graph is not None:
            values.update(target.launch(program, step, values, RunOptions(check=False)).values)
