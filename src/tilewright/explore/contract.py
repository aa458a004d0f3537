"""What a target may offer to explorations, beside `Explores` (whatif.py) and `Occupies` (targets/gateware.py)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from tilewright.graph.ir import Graph
from tilewright.sim.events import Events
from tilewright.targets.base import Config


@runtime_checkable
class Remembers(Protocol):
    """A target whose compiler can use again what it found for other machines."""

    def remembering(self, folder: Path) -> AbstractContextManager[None]:
        """Keep what is found during a `with` block in a folder; other processes may use it at the same time."""


@runtime_checkable
class Bounded(Protocol):
    """A target that knows what every program of a network does at least, without compiling it."""

    def floor(self, graph: Graph, config: Config, rounding: str, timing: str, host: Collection[str]) -> Events:
        """Return events of which every program has at least as many, its cycles included.

        The host may run the nodes `host`; the machine runs all others.
        """


@runtime_checkable
class Spaces(Protocol):
    """A target that offers spaces of machines to explore, by name, each in the form of a space's file."""

    spaces: Mapping[str, Mapping[str, Any]]
