"""The functions that users call. Below the command line, only this module uses compilers, runs and the debugger."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tilewright import run as runs
from tilewright import targets
from tilewright.array import Array
from tilewright.files import user_folder
from tilewright.graph.ir import Graph
from tilewright.graph.rounding import rounding_mode
from tilewright.model import load
from tilewright.program import program as data
from tilewright.program.cache import Cache
from tilewright.report.result import RunResult
from tilewright.schedules import takes_schedules
from tilewright.sim.findings import Finding

if TYPE_CHECKING:
    from tilewright.debug.session import Session


class Program(data.Program):
    """A compiled program with the methods that run and debug it."""

    @classmethod
    def of(cls, program: data.Program) -> Self:
        """Convert a program from a compiler or a program file to an object of this class."""
        return cls(**{field.name: getattr(program, field.name) for field in fields(data.Program)})

    def run(
        self,
        inputs: Array | Mapping[str, Array],
        *,
        timing: str | None = None,
        check: bool = True,
        compare: bool = True,
        order: str = "stream",
        seed: int = 0,
        progress: Callable[[int, int, str], None] | None = None,
        reset: bool = False,
    ) -> RunResult:
        """Run S samples. `inputs` is an array (S, ...), or one array for each input of the network, by name.

        A network with states (a stream) runs the samples in the given order. With `reset`, each sample starts from the
        initial states.

        `timing` names a timing model (None: the target's first). `check` enables the search for hazards. `compare`
        compares the outputs with the integer reference. `order` is the order in which the machine's values are
        computed: "stream", "time", or "random" with `seed`. `progress` is called before each step with the number of
        finished steps, the number of all steps, and the step's name. Raises the errors of `tilewright.run.run`.
        """
        return runs.run(
            self,
            inputs,
            timing=timing,
            check=check,
            compare=compare,
            order=order,
            seed=seed,
            progress=progress,
            reset=reset,
        )

    def debug(
        self, inputs: Array | Mapping[str, Array] | None = None, *, order: str = "stream", timing: str | None = None
    ) -> Session:
        """Open a debugging session with the first sample of `inputs` (None for a program without a network).

        `order` is the order in which instructions run: "stream" or "time". Raises the errors of `debug.session`.
        """
        from tilewright.debug.session import Session

        return Session(self, inputs, order, timing)


def check(program: data.Program) -> tuple[Finding, ...]:
    """Return a program's findings: hazards, and behaviour that differs between implementations of the target."""
    return tuple(targets.get(program.target).check(program))


def compile(
    model: str | Path | Graph,
    target: str = "vta",
    config: str | Path | Mapping[str, Any] | None = None,
    overrides: Mapping[str, str] | None = None,
    rounding: str | None = None,
    cache: bool | str | Path = False,
    timing: str | None = None,
    schedule: object = None,
    search: bool = False,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    until: Collection[str] = (),
) -> Program:
    """Compile a network for a target. `config` is a preset's name, a JSON file, or the content of such a file.

    `rounding` names a rounding mode [default: the model's own]. `timing` names the timing model that the compiler plans
    for [default: the target's first]. `cache` is a folder of compiled programs to reuse; True stands for the user's
    cache folder ($TILEWRIGHT_CACHE_DIR, else ~/.cache/tilewright).

    `schedule` has the plans of layers, for targets that accept schedules (vta): a file that `explain --save-schedule`
    wrote, its JSON values, or a `tilewright.targets.vta.schedule.Schedule`. With `search`, the compiler searches for
    better plans than those of the schedule. Raises InputError if the schedule is for another network or machine, or
    breaks a rule.

    `shapes` has input shapes, such as {"x": (1, 3, 224, 224)}, for an ONNX file with undefined extents. `until` names
    values of an ONNX file that become the outputs of the network: only the nodes that compute these values are read.
    """
    graph = model if isinstance(model, Graph) else load(model, shapes, until)
    machine = targets.get(target)
    chosen = machine.config(config, overrides or {})
    mode = rounding_mode(rounding or graph.rounding).name
    model_of_time = runs.timing_model(machine, timing, chosen)
    planner = takes_schedules(machine) if schedule is not None or search else None
    wanted = planner.schedule(schedule) if planner else None

    def make() -> data.Program:
        if planner and wanted:
            return planner.compile_scheduled(graph, chosen, mode, model_of_time, wanted, search)
        return machine.compile(graph, chosen, mode, model_of_time)

    if cache is False:
        return Program.of(make())
    kept = Cache(user_folder() if cache is True else Path(cache))
    planned = json.dumps([wanted.to_json(), search]) if wanted else ""
    made_from = machine.name, chosen.digest(), mode, model_of_time or "", planned
    return Program.of(kept.program(graph, made_from, targets.folder(machine), make))
