"""The launches of a session: the values before each launch, and the states of the machine during the launch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilewright import targets
from tilewright.array import Array
from tilewright.debug.compare import golden
from tilewright.errors import InputError, MachineError
from tilewright.graph import reference
from tilewright.graph.ir import Graph
from tilewright.program.program import HostStep, Launch, Program
from tilewright.sim.order import sequence_by_time
from tilewright.sim.passes import RunOptions
from tilewright.sim.walk import State, Walk
from tilewright.targets.base import Walks
from tilewright.targets.users import Processor

#: The orders of execution that a session offers.
ORDERS = ("stream", "time")
#: The initial number of instructions between checkpoints. Whenever checkpoints exceed BUDGET bytes, the number doubles.
CHECKPOINT_DISTANCE = 32
BUDGET = 1 << 28


class History:
    """The state of a launch at any position, if its instructions run in the order `sequence`, int64 [n].

    Position p is the moment before the p-th instruction of `sequence`. A machine cannot run backwards: to go back, the
    history copies the last checkpoint before the wanted position and executes from there. A checkpoint is a copy of the
    on-chip memories; checkpoints share unchanged bytes of DRAM.
    """

    def __init__(self, walk: Walk, sequence: Array) -> None:
        self.sequence = sequence
        self.position = 0
        self.state: State = walk.start()
        self._distance = CHECKPOINT_DISTANCE
        self._checkpoints: dict[int, State] = {0: self.state.copy()}
        self._bytes = {0: self._checkpoints[0].nbytes}

    def move(self, position: int) -> State:
        """Move to `position` (0..n), and return the state at this position."""
        positions = sorted(self._checkpoints)
        nearest = positions[bisect_right(positions, position) - 1]
        # Continue from the present state, unless it is after the position, or a checkpoint is nearer to the position.
        if position < self.position or nearest > self.position:
            self.state = self._checkpoints[nearest].copy()
            self.position = nearest
        while self.position < position:
            stop = min(position, self.position - self.position % self._distance + self._distance)
            self.state.execute(self.sequence[self.position : stop])
            self.position = stop
            if stop % self._distance == 0 and stop not in self._checkpoints:
                self._add_checkpoint()
        return self.state

    def _add_checkpoint(self) -> None:
        self._checkpoints[self.position] = checkpoint = self.state.copy()
        self._bytes[self.position] = checkpoint.nbytes
        while len(self._checkpoints) > 2 and sum(self._bytes.values()) > BUDGET:
            # Keep every second checkpoint, so that checkpoints stay evenly spread over the launch.
            self._distance *= 2
            self._checkpoints = {at: state for at, state in self._checkpoints.items() if at % self._distance == 0}
            self._bytes = {at: self._bytes[at] for at in self._checkpoints}


@dataclass(frozen=True, eq=False)
class OpenLaunch:
    """A launch that is open in a session, and the last position that it can reach.

    `position_of` int64 [n] is the position of each instruction in the order of execution (-1: never executed).
    """

    index: int
    walk: Walk
    history: History
    last: int
    position_of: Array

    @property
    def stuck(self) -> str:
        """The reason why some instructions cannot run; "" if all can run."""
        if self.last < len(self.history.sequence):
            return self.walk.refused[int(self.history.sequence[self.last])]
        if self.last < len(self.walk.table):
            findings = self.walk.order.findings
            return f"the launch deadlocks: {findings[0].message}" if findings else "the launch deadlocks"
        return ""


class Launches(ABC):
    """The launches of a session, which are opened on demand.

    `graph` is the network, or None for a program without a network. `computed` has the names of the tensors that
    launches compute.
    """

    graph: Graph | None = None
    computed: frozenset[str] = frozenset()

    def __init__(self, names: Sequence[str], title: str, order: str) -> None:
        """Prepare the launches. `title` names the program and machine. Raises InputError for an unknown order."""
        if order not in ORDERS:
            raise InputError("order", f"there is no order '{order}'", f"choose one of {', '.join(ORDERS)}")
        self.names = tuple(names)
        self.title = title
        self._order = order

    def number(self, name: str) -> int:
        """Return the index of a launch, given by its number or name. Raises InputError for an unknown launch."""
        names = self.names
        if name in names:
            return names.index(name)
        if name.isdecimal() and len(name) < 9 and int(name) < len(names):
            return int(name)
        raise InputError(f"launch '{name}'", "there is none", f"0..{len(names) - 1}, or a name: {', '.join(names[:8])}")

    def of_layer(self, name: str) -> int:
        """Return the index of the launch that computes a layer. Raises InputError if no launch computes the layer."""
        return 0

    @abstractmethod
    def walk(self, index: int) -> Walk:
        """Return a launch. Raises MachineError if an earlier launch cannot run to its end."""

    def open(self, index: int) -> OpenLaunch:
        """Return a launch at its first instruction.

        Raises MachineError as `walk` does, and if the order is "time" and the launch has no times.
        """
        walk = self.walk(index)
        sequence = walk.order.sequence
        # Both orders respect all tokens, so they give the same values unless the program has a race.
        if self._order == "time":
            if walk.trace is None:
                raise MachineError(f"launch '{walk.name}'", "has no times: it cannot run to its end", "order stream")
            sequence = sequence_by_time(walk.order, walk.trace.start)
        position_of = np.full(len(walk.table), -1, np.int64)
        position_of[sequence] = np.arange(len(sequence))
        bad = [int(position_of[step]) for step in walk.refused if position_of[step] >= 0]
        return OpenLaunch(index, walk, History(walk, sequence), min(bad, default=len(sequence)), position_of)

    @property
    def golden(self) -> dict[str, Array]:
        """The reference's value of every tensor of the network, (1, *shape). Raises InputError without a network."""
        raise InputError("differs", "this program has no network", "there is no reference to compare with")


class SingleLaunch(Launches):
    """A launch that is not part of a program and has no network, such as a single kernel."""

    def __init__(self, walk: Walk, title: str, order: str) -> None:
        super().__init__((walk.name,), title, order)
        self._walk = walk

    def walk(self, index: int) -> Walk:
        return self._walk


class ProgramLaunches(Launches):
    """The launches of a program, opened on demand with one sample; `values` are the network's inputs, (1, *shape)."""

    def __init__(self, program: Program, values: Mapping[str, Array], order: str, timing: str | None) -> None:
        """Prepare a program. Raises InputError if the target has no debugger, or if the order is unknown."""
        self.program = program
        self._timing = timing
        machine = targets.get(program.target)
        if not isinstance(machine, Walks):
            remedy = "choose another target"
            if isinstance(machine, Processor):
                remedy = f"its processor is debugged by GDB: tilewright exec FILE.elf -t {program.target} --gdb PORT"
            raise InputError("debug", f"{program.target} has no walk of its instructions", remedy)
        title = f"{program.graph.name if program.graph else 'program'} on {program.target}"
        super().__init__([launch.name for launch in program.launches], title, order)
        if not program.launches:
            raise InputError(
                "debug", "the program has no launch: the host runs every layer", "see `tilewright explain`"
            )
        self._machine: Walks = machine
        self.graph = program.graph
        graph = program.graph
        nodes = [node for launch in program.launches for node in launch.nodes]
        self.computed = frozenset(name for node in nodes for name in graph.node(node).outputs) if graph else frozenset()
        #: For each launch that was reached so far: the next step to run, and the values before this step.
        self._progress: list[tuple[int, dict[str, Array]]] = [(0, dict(values))]

    def of_layer(self, name: str) -> int:
        """Return the index of the launch that computes a layer. Raises InputError for a layer on the host."""
        for index, launch in enumerate(self.program.launches):
            # A launch without nodes has one layer with its own name.
            if name in (launch.nodes or (launch.name,)):
                return index
        for step in self.program.steps:
            if isinstance(step, HostStep) and step.node == name:
                raise InputError(
                    f"layer '{name}'", f"runs on the host: {step.reason}", "choose a layer that runs on the machine"
                )
        nodes = [node for launch in self.program.launches for node in launch.nodes or (launch.name,)]
        raise InputError(f"layer '{name}'", "there is none", f"there are {', '.join(nodes[:8])}")

    def walk(self, index: int) -> Walk:
        launch = self.program.launches[index]
        values = self._values(index)
        return self._machine.walk(self.program, launch, values, self._timing)

    @cached_property
    def golden(self) -> dict[str, Array]:
        if self.program.graph is None:
            return super().golden
        return golden(self.program, self.program.graph, self._progress[0][1])

    def _values(self, index: int) -> dict[str, Array]:
        # First, run all earlier launches and host steps that have not run yet.
        while len(self._progress) <= index:
            at, values = self._progress[-1]
            at, values = self._host(at, values)
            launch = self.program.steps[at]
            assert isinstance(launch, Launch)
            machine = targets.get(self.program.target)
            result = machine.launch(self.program, launch, values, RunOptions(check=False))
            self._progress[-1] = at, values
            self._progress.append((at + 1, {**values, **result.values}))
        at, values = self._host(*self._progress[index])
        self._progress[index] = at, values
        return values

    def _host(self, at: int, values: dict[str, Array]) -> tuple[int, dict[str, Array]]:
        graph = self.program.graph
        steps = self.program.steps
        values = dict(values)
        while at < len(steps) and isinstance(step := steps[at], HostStep):
            assert graph is not None
            values |= reference.run_node(graph, step.node, values, self.program.rounding)
            at += 1
        return at, values
