"""Tilewright runs quantised networks on accelerator designs without the hardware.

import tilewright as tw
graph = tw.load("model.tflite")
program = tw.compile(graph, target="vta")
result = program.run(inputs)              # result.outputs, .cycles, .layers, .findings
"""

from __future__ import annotations

from importlib import import_module

#: Not from `typing`: importing it takes time in which __main__.py does not handle Ctrl-C yet.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tilewright import run
    from tilewright.api import Program, check, compile
    from tilewright.graph.ir import Graph
    from tilewright.graph.reference import run_node
    from tilewright.model import load

__version__ = "0.1.0"
__all__ = ["Graph", "Program", "check", "compile", "load", "run", "run_node"]

#: The module of each name that is imported at first use. `import tilewright` itself then imports no other module.
_NAMES = {
    "Graph": "graph.ir",
    "Program": "api",
    "check": "api",
    "compile": "api",
    "load": "model",
    "run_node": "graph.reference",
}
#: Modules that are imported when they are first used.
_MODULES = {"array", "energy", "errors", "files", "graph", "model", "program", "report", "run", "sim", "targets"}


def __getattr__(name: str) -> Any:
    """Import a name of this package. Raises AttributeError if the package has no such name."""
    if name in _NAMES:
        value = getattr(import_module(f"tilewright.{_NAMES[name]}"), name)
    elif name in _MODULES:
        value = import_module(f"tilewright.{name}")
    else:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES, *_MODULES})
