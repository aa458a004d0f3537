"""A compiled network: launches of the machine, and steps of the host between launches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from tilewright.array import Array
from tilewright.errors import plain
from tilewright.graph.ir import Graph

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Launch:
    """One run of the machine, which computes `nodes` of the graph.

    The target defines `meta` (JSON values) and `arrays`: instruction streams, DRAM layout, data, and the places of
    graph tensors.
    """

    name: str
    nodes: tuple[str, ...]
    meta: Mapping[str, Any]
    arrays: Mapping[str, Array]

    def __repr__(self) -> str:
        size = sum(array.nbytes for array in self.arrays.values())
        nodes = f"{len(self.nodes)} {'node' if len(self.nodes) == 1 else 'nodes'}"
        return plain(f"<Launch {self.name}: {nodes}, {len(self.arrays)} arrays of {size:,} bytes>")


class Configuration(Protocol):
    """The configuration of a machine, a frozen dataclass. Its constructor raises ConfigError for illegal values."""

    @classmethod
    def read(cls, source: str | Path | Mapping[str, Any] | None, overrides: Mapping[str, str]) -> Self: ...
    def to_dict(self) -> dict[str, Any]: ...
    def digest(self) -> str: ...


@dataclass(frozen=True)
class HostStep:
    """A graph node that the host runs, with the reason why it does not run on the target."""

    node: str
    reason: str

    @property
    def name(self) -> str:
        return self.node


def grouped(lowered: Mapping[str, T | str]) -> Iterator[tuple[HostStep, ...] | dict[str, T]]:
    """Yield groups of consecutive nodes that all run on the host, or all on the target.

    `lowered` maps the name of each node to an object of the target, or to the reason (text) why the host runs the node.
    A group is a tuple of host steps, or a dict {node: object of the target}.
    """
    for on_host, names in groupby(lowered, key=lambda name: isinstance(lowered[name], str)):
        if on_host:
            yield tuple(HostStep(name, str(lowered[name])) for name in names)
        else:
            yield {name: item for name in names if not isinstance(item := lowered[name], str)}


@dataclass(frozen=True, eq=False)
class Program:
    """A compiled program. `config` is the machine's configuration as JSON values, and `digest` is its hash.

    `graph` is None for a program without a network (assembled text), whose launches have no nodes.
    """

    target: str
    config: Mapping[str, Any]
    digest: str
    rounding: str
    graph: Graph | None
    steps: tuple[Launch | HostStep, ...]

    @classmethod
    def bare(cls, target: str, config: Configuration, launches: Iterable[Launch]) -> Self:
        """Return a program without a network, such as assembled text."""
        return cls(target, config.to_dict(), config.digest(), "tflm", None, tuple(launches))

    def outline(self) -> dict[str, Any]:
        """Return the steps as JSON values: where each step runs, and the reason if it runs on the host."""
        steps = [
            {"name": step.name, "where": self.target, "nodes": list(step.nodes)}
            if isinstance(step, Launch)
            else {"name": step.name, "where": "host", "nodes": [step.node], "reason": step.reason}
            for step in self.steps
        ]
        model = self.graph.name if self.graph else None
        return {"model": model, "target": self.target, "config": dict(self.config), "steps": steps}

    @property
    def launches(self) -> tuple[Launch, ...]:
        return tuple(step for step in self.steps if isinstance(step, Launch))

    def __repr__(self) -> str:
        launches = self.launches
        name = f"{self.graph.name} for {self.target}" if self.graph else f"for {self.target}, without a network"
        return plain(f"<Program {name}: {len(launches)} launches, {len(self.steps) - len(launches)} host steps>")
