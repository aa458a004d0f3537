"""Tilewright runs quantised networks on accelerator designs without the hardware.

import tilewright as tw
graph = tw.load("model.tflite")
program = tw.compile(graph, target="vta")
result = program.run(inputs)              # result.outputs, .cycles, .layers, .findings
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # `typing` and `pathlib` would be imported before Ctrl-C is caught: __main__.py
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path
    from typing import Any

    from tilewright import run
    from tilewright.graph.ir import Graph
    from tilewright.graph.reference import run_node
    from tilewright.model import load
    from tilewright.program.program import Program
    from tilewright.sim.findings import Finding

__version__ = "0.1.0"
__all__ = ["Graph", "Program", "check", "compile", "load", "run", "run_node"]

#: Names that are imported when they are first used, so that `import tilewright` takes no time, and their modules.
_NAMES = {"Graph": "graph.ir", "Program": "program.program", "load": "model", "run_node": "graph.reference"}
#: Modules that are imported when they are first used.
_MODULES = {"array", "energy", "errors", "files", "graph", "model", "program", "report", "run", "sim", "targets"}


def __getattr__(name: str) -> Any:
    """Import a name of this package. Raises AttributeError if there is none."""
    if name in _NAMES:
        found = getattr(import_module(f"tilewright.{_NAMES[name]}"), name)
    elif name in _MODULES:
        found = import_module(f"tilewright.{name}")
    else:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES, *_MODULES})


def check(program: Program) -> tuple[Finding, ...]:
    """Return a program's findings: hazards in launches, and behaviour in which the target's implementations differ."""
    from tilewright import targets

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
    import json

    from tilewright import run, targets
    from tilewright.graph.ir import Graph
    from tilewright.graph.rounding import rounding_mode
    from tilewright.model import load

    graph = model if isinstance(model, Graph) else load(model, shapes, until)
    machine = targets.get(target)
    chosen, mode = machine.config(config, overrides or {}), rounding_mode(rounding or graph.rounding).name
    model_of_time = run.timing_model(machine, timing)
    planner = targets.takes_schedules(machine) if schedule is not None or search else None
    wanted = planner.schedule(schedule) if planner else None

    def make() -> Program:
        if planner and wanted:
            return planner.compile_scheduled(graph, chosen, mode, model_of_time, wanted, search)
        return machine.compile(graph, chosen, mode, model_of_time)

    if cache is False:
        return make()
    from pathlib import Path

    from tilewright.files import user_folder
    from tilewright.program.cache import Cache

    kept, sources = Cache(user_folder() if cache is True else Path(cache)), targets.folder(machine)
    planned = json.dumps([wanted.to_json(), search]) if wanted else ""
    return kept.program(graph, machine.name, chosen.digest(), mode, model_of_time, sources, make, planned)
