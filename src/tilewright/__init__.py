"""Tilewright runs quantised networks on accelerator designs without the hardware.

import tilewright as tw
graph = tw.load("model.tflite")
program = tw.compile(graph, target="vta")
result = program.run(inputs)              # result.outputs, .cycles, .layers, .findings
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright import run, targets
from tilewright.graph.ir import Graph
from tilewright.graph.reference import run_node
from tilewright.graph.rounding import rounding_mode
from tilewright.model import load
from tilewright.program.program import Program
from tilewright.sim.findings import Finding


def check(program: Program) -> tuple[Finding, ...]:
    """Return a program's findings: hazards in launches, and behaviour in which the target's implementations differ."""
    return tuple(targets.get(program.target).check(program))


__version__ = "0.1.0"
__all__ = ["Graph", "Program", "check", "compile", "load", "run", "run_node"]


def compile(
    model: str | Path | Graph,
    target: str = "vta",
    config: str | Path | Mapping[str, Any] | None = None,
    overrides: Mapping[str, str] | None = None,
    rounding: str | None = None,
    cache: bool | str | Path = False,
    timing: str | None = None,
) -> Program:
    """Compile a network for a target. `config` is a preset's name, a JSON file, or the content of such a file.

    `rounding` names a rounding mode [default: the model's own]. `timing` names the timing model that the compiler plans
    for [default: the target's first]. `cache` reuses programs compiled before: True keeps them in the user's cache
    folder ($TILEWRIGHT_CACHE_DIR, else ~/.cache/tilewright); a path names another folder.
    """
    graph = model if isinstance(model, Graph) else load(model)
    machine = targets.get(target)
    chosen, mode = machine.config(config, overrides or {}), rounding_mode(rounding or graph.rounding).name
    model_of_time = run.timing_model(machine, timing)
    if cache is False:
        return machine.compile(graph, chosen, mode, model_of_time)
    from tilewright.files import user_folder
    from tilewright.program.cache import Cache

    kept, sources = Cache(user_folder() if cache is True else Path(cache)), targets.folder(machine)
    made_from = (machine.name, chosen.digest(), mode, model_of_time)
    return kept.program(graph, *made_from, sources, lambda: machine.compile(graph, chosen, mode, model_of_time))
