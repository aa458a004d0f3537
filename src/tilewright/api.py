"""The functions that users call: the only module below the command line that knows programs, runs and the debugger."""

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
        """Return a program, as the compilers and program files give it, as an object of this class."""
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
        """Run S samples through the program: an array (S, ...), or one array for each input of the network by name.

        A network with states (a stream) takes the samples in their order; with `reset`, every sample starts from the
        initial states.

        `timing` names a timing model (None: the target's first). `check` looks for hazards. `compare` compares the
        outputs with the integer reference. `order` is the order in which the machine's values are computed: "stream",
        "time", or "random" with `seed`. `progress` is called before each step, with the number of steps done, their
        total and the step's name. Raises the errors of `tilewright.run.run`.
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
        """Open a debugging session with the first of the samples `inputs` (None for a program without a network).

        `order` is the order in which instructions run: "stream" or "time". Raises the errors of `debug.session`.
        """
        from tilewright.debug.session import Session

        return Session(self, inputs, order, timing)


def check(program: data.Program) -> tuple[Finding, ...]:
    """Return a program's findings: hazards in launches, and behaviour in which the target's implementations differ."""
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
    for [default: the target's first]. `cache` reuses programs compiled before: True keeps them in the user's cache
    folder ($TILEWRIGHT_CACHE_DIR, else ~/.cache/tilewright); a path names another folder.

    `schedule` gives plans of layers, on targets that take them (vta): a file that `explain --save-schedule` wrote, its
    JSON values, or a `tilewright.targets.vta.schedule.Schedule`. With `search`, it is only where the search starts.
    Raises InputError if the schedule is of another network or machine, or breaks a rule.

    `shapes` gives the shapes of inputs of an ONNX file that leaves extents open, such as {"x": (1, 3, 224, 224)}.
    `until` names values of an ONNX file that are the outputs in place of its own: what they do not need is not read.
    """
    graph = model if isinstance(model, Graph) else load(model, shapes, until)
    machine = targets.get(target)
    chosen = machine.config(config, overrides or {})
    mode = rounding_mode(rounding or graph.rounding).name
    model_of_time = runs.timing_model(machine, timing)
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
