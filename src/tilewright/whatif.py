"""What-ifs: the cycles of a network on changed machines, measured by timing the network on each machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol, runtime_checkable

from tilewright import targets
from tilewright.array import Array
from tilewright.errors import ConfigError, TilewrightError, option
from tilewright.program.program import Program
from tilewright.report.metrics import RECOMPILED, SAME, Result, UserKernels, WhatIf
from tilewright.run import layer_cycles, run
from tilewright.targets import given
from tilewright.targets.base import Change, Config, TimingModel
from tilewright.targets.users import Processor

#: A function that gets changed configuration keys and returns the network compiled for the changed machine.
Compile = Callable[[Mapping[str, str]], Program]


@runtime_checkable
class Explores(Protocol):
    """A target that offers changes of its machines, for what-ifs.

    `time_needs_values` is true if the cycles of a launch depend on its values. If it is false, a call of `launch` with
    `options.values` false gets no tensors in `values`.
    """

    time_needs_values: bool

    def changes(self, config: Config, timing: TimingModel) -> Iterable[Change]:
        """Yield changes of a machine and of its timing model. The caller ignores changes to illegal machines."""


def whatifs(
    program: Program,
    result: Result,
    inputs: Array | Mapping[str, Array] | None = None,
    *,
    recompile: bool | Compile = False,
) -> tuple[WhatIf, ...]:
    """Return the cycles of a program on each changed machine that its target offers, in ascending order of cycles.

    The timing model is that of `result`, a result of the program. `recompile` (True, or a function that compiles)
    includes machines for which the network must be compiled again. If the cycles depend on values, the first sample of
    `inputs` is run, and without inputs the result is empty. Illegal machines, machines that cannot run the program, and
    machines that run fewer layers are left out.
    """
    target = targets.get(program.target)
    if not isinstance(target, Explores) or not result.cycles:
        return ()
    if target.time_needs_values and inputs is None:
        return ()
    compile_: Compile | None = None
    if recompile and program.graph is not None:
        compile_ = recompile if callable(recompile) else lambda overrides: _compiled(program, overrides, result.timing)
    config = target.config(program.config, {})
    model = given.timing_model(target.timing_models, result.timing, target.name)
    answers = []
    for change in target.changes(config, model):
        if change.recompile and compile_ is None:
            continue
        if answer := _tried(program, result, change, inputs if target.time_needs_values else None, compile_):
            answers.append(answer)
    return tuple(sorted(answers, key=lambda whatif: whatif.cycles))


def beside_built_in(program: Program, inputs: Mapping[str, Array], timing: str | None) -> UserKernels | None:
    """Return the kernels of the user's firmware beside the built-in kernels, or None for the built-in firmware."""
    target = targets.get(program.target)
    if not isinstance(target, Processor) or (firmware := target.firmware_of(program)) is None:
        return None
    # Cycles are per sample, so one sample is enough.
    first = {name: array[:1] for name, array in inputs.items()}
    with target.built_in():
        result = run(_compiled(program, {}, None), first, timing=timing, check=False, compare=False)
    cycles = {layer.name: layer.cycles for layer in result.layers if layer.name in firmware.kernels}
    return UserKernels(firmware.path, firmware.compiler, firmware.built_in, firmware.kernels, cycles)


def on_machine(program: Program, overrides: Mapping[str, str]) -> Program:
    """Return the same program for a changed machine. `overrides` has the changed configuration keys and their values.

    Raises ConfigError if a key or value is illegal, or if the compiler could generate other code for the new value.
    """
    target = targets.get(program.target)
    config = target.config(program.config, {})
    given.require_digest(program, config)
    changed = target.config(config.to_dict(), overrides)
    keys = given.only_time(config)
    for key, value in overrides.items():
        if key not in keys:
            others = f"; the keys of {target.name} that only change time are {', '.join(keys)}" if keys else ""
            changes = f"{key}={value}{others}"
            again = option(f"--set {changes}", f"the override {changes}")
            remedy = f"compile the model again with {again}"
            raise ConfigError(
                option("--set", "overrides"), f"a program compiled for another {key} may be another program", remedy
            )
    return replace(program, config=changed.to_dict(), digest=changed.digest())


def what_if_timing(timing: str, numbers: Mapping[str, float]) -> str:
    """Return the name of a timing model with some numbers changed, such as "tilewright,alu=1"."""
    name, *changes = timing.split(",")
    settings = dict(change.split("=", 1) for change in changes) | {key: repr(value) for key, value in numbers.items()}
    return ",".join([name, *(f"{key}={value}" for key, value in settings.items())])


def _tried(
    program: Program,
    result: Result,
    change: Change,
    inputs: Array | Mapping[str, Array] | None,
    compile_: Compile | None,
) -> WhatIf | None:
    overrides = {key: str(value) for key, value in change.set.items()}
    timing = what_if_timing(result.timing, change.timing)
    try:
        if change.recompile:
            assert compile_ is not None
            changed = compile_(overrides)
            if not _nodes(program) <= _nodes(changed):
                return None  # the machine takes fewer cycles only because the host runs more layers
        else:
            changed = on_machine(program, overrides)
        layers = layer_cycles(changed, timing) if inputs is None else _run(changed, inputs, timing)
    except TilewrightError:
        return None  # the machine is illegal, or cannot run the network
    how = RECOMPILED if change.recompile else SAME
    return WhatIf(change.text, change.set, change.timing, sum(layers.values()), how, layers)


def _run(program: Program, inputs: Array | Mapping[str, Array], timing: str) -> dict[str, int]:
    first = {name: array[:1] for name, array in inputs.items()} if isinstance(inputs, Mapping) else inputs[:1]
    result = run(program, first, timing=timing, check=False, compare=False)
    return {layer.name: layer.cycles for layer in result.layers if layer.where == program.target}


def _nodes(program: Program) -> set[str]:
    return {node for launch in program.launches for node in launch.nodes}


def _compiled(program: Program, overrides: Mapping[str, str], timing: str | None) -> Program:
    assert program.graph is not None
    target = targets.get(program.target)
    return target.compile(program.graph, target.config(program.config, overrides), program.rounding, timing)
