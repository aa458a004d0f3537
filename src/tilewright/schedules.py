"""Compare the cycles of a user's schedule with the cycles of the schedule that the compiler finds, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from tilewright import targets
from tilewright.errors import InputError, option
from tilewright.graph.ir import Graph
from tilewright.program.program import Program
from tilewright.run import layer_cycles
from tilewright.targets.base import Config, Target


class UserSchedule(Protocol):
    """The plans for the layers of a network: a schedule that a user wrote, or the schedule of a compiled program."""

    def to_json(self) -> dict[str, Any]: ...
    def text(self) -> str: ...


@runtime_checkable
class TakesSchedules(Protocol):
    """A target whose compiler takes schedules of layers from the user."""

    def schedule(self, source: object) -> UserSchedule:
        """Read a schedule from a file, from JSON values, or from a Python object. Raises InputError for other forms."""

    def compile_scheduled(
        self, graph: Graph, config: Config, rounding: str, timing: str | None, schedule: UserSchedule, search: bool
    ) -> Program:
        """Compile a network with a user's schedule. The compiler plans the layers that the schedule does not name.

        With `search`, a search starts from the schedule, so that the result is at least as fast. Raises InputError if
        the schedule is for another network or machine, or breaks a rule.
        """

    def schedule_of(self, program: Program) -> UserSchedule:
        """Return the schedule of all layers of a program. Compiling with this schedule gives the same program."""


def takes_schedules(target: Target, where: str = "schedule") -> TakesSchedules:
    """Return `target` if it accepts schedules. Raises InputError, naming `where`, for any other target."""
    if not isinstance(target, TakesSchedules):
        raise InputError(
            where, f"{target.name} takes no schedules of layers", f"choose {option('-t vta', 'the target vta')}"
        )
    return target


@dataclass(frozen=True)
class Row:
    """A layer's cycles with its plan in the program, and its cycles with the plan that the search finds (`searched`).

    `searched` is None if the search assigns the layer to another launch. `plan` is the source of the plan: "given" by
    the user's schedule, "searched" by the compiler, or "" for a layer without a plan.
    """

    layer: str
    plan: str
    cycles: int
    searched: int | None


@dataclass(frozen=True)
class ScheduleComparison:
    """The layers of a program, and the cycles of this program and of the program that the search finds."""

    rows: tuple[Row, ...]
    cycles: int
    searched: int

    def to_json(self) -> dict[str, Any]:
        return {"layers": [vars(row) for row in self.rows], "cycles": self.cycles, "searched": self.searched}


def compare(program: Program, searched: Program, wanted: UserSchedule, timing: str | None) -> ScheduleComparison:
    """Compare `program`, which was compiled with the schedule `wanted`, with the program `searched`.

    Raises MachineError if a launch cannot run to its end.
    """
    final = _plans(takes_schedules(targets.get(program.target)).schedule_of(program))
    given = _plans(wanted)
    layers = layer_cycles(program, timing)
    best = layer_cycles(searched, timing)
    rows = []
    for name, cycles in layers.items():
        same = name in given and given[name] == final.get(name)
        plan = "given" if same else "searched" if name in final else ""
        rows.append(Row(name, plan, cycles, best.get(name)))
    return ScheduleComparison(tuple(rows), sum(layers.values()), sum(best.values()))


def _plans(schedule: UserSchedule) -> Mapping[str, Any]:
    only = ("nodes", "of", "alone")
    layers = schedule.to_json()["layers"]
    return {layer["layer"]: {key: value for key, value in layer.items() if key not in only} for layer in layers}
