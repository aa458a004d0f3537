"""What every compiled network promises, checked on one program."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.program.comparing import same
from tests.targets.vta.capacity import check_capacity
from tests.targets.vta.cases import Case
from tests.targets.vta.random_graphs import check_queues
from tilewright import targets
from tilewright.errors import ConfigError
from tilewright.program import file
from tilewright.program.program import HostStep, Launch, Program
from tilewright.run import run
from tilewright.sim.passes import RunOptions
from tilewright.targets.vta.compiler.compiler import TOKENS, compile_graph
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.isa.stream import decode, image_of
from tilewright.targets.vta.passes import run_passes
from tilewright.targets.vta.steps.elaborate import elaborate
from tilewright.targets.vta.steps.portability import portability, write_distance
from tilewright.targets.vta.timing import MODELS
from tilewright.targets.vta.timing.limits import Limits, of_layers, summed

VTA = targets.get("vta")


def check(case: Case, machine: Config, folder: Path) -> Program | None:
    """All that a compiled network promises; None where the machine is refused."""
    try:
        program = compile_graph(case.graph, machine, case.rounding)
    except ConfigError as error:
        assert machine.token_depth < TOKENS and "token_depth" in str(error)
        return None
    check_program(program, case, machine, folder)
    return program


def check_program(program: Program, case: Case, machine: Config, folder: Path) -> None:
    """All that a compiled network promises."""
    assert all(step.reason for step in program.steps if isinstance(step, HostStep))
    result = run(program, case.inputs)
    assert result.matches_reference
    assert [str(finding) for finding in result.findings] == []
    assert [str(finding) for finding in VTA.check(program)] == []
    check_time(program, machine)
    for launch in program.launches:
        check_capacity(launch, machine)
    other = run(program, case.inputs, order="random", seed=1, check=False)
    assert other.matches_reference
    file.save(program, folder / "p.twp")
    again = file.load(folder / "p.twp")
    assert same(program, again)
    repeated = run(again, case.inputs, compare=False)
    for name, codes in result.outputs.items():
        np.testing.assert_array_equal(repeated.outputs[name], codes)
    assert repeated.cycles == result.cycles


def limits(program: Program, timing: str) -> dict[str, Limits]:
    """The limits of each layer that runs on the machine, by node name."""
    config = Config.from_json(program.config)
    found: dict[str, Limits] = {}
    for launch in program.launches:
        image = image_of(launch)
        elaborated = elaborate(decode(image.insns, config), config, image.dram({}, 1), image.bases)
        found |= dict(zip(launch.nodes, of_layers(elaborated, image.layer, len(launch.nodes), timing), strict=True))
    return found


def check_time(program: Program, machine: Config) -> None:
    """Under every timing model: no launch takes less than its units' or the DRAM port's work, no queue overflows."""
    for model in MODELS:
        work = limits(program, model)
        for launch in program.launches:
            image = image_of(launch)
            options = RunOptions(timing=model, check=False, values=False)
            trace = run_passes(image.insns, machine, image.dram({}, 1), image.bases, 1, options).trace
            assert trace
            assert summed([work[name] for name in launch.nodes]).bound <= trace.cycles, f"{launch.name}, {model}"
            if MODELS[model].tokens_wait:
                check_queues(trace)


def assert_portable(launch: Launch) -> None:
    """All of upstream's implementations agree on it."""
    image, config = image_of(launch), PRESETS["pynq"]
    options = RunOptions(values=False)
    passes = run_passes(image.insns, config, image.dram({}, 1), image.bases, 1, options)
    assert portability(passes.elaborated, passes.order.sequence) == []
    assert write_distance(passes.elaborated) == []
