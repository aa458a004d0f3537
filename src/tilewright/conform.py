"""Compares a target with golden vectors, and the simulator with the target's compiled gateware, launch by launch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright import targets
from tilewright.array import Array
from tilewright.errors import ConfigError, InputError, TilewrightError
from tilewright.files import regular, write_folder
from tilewright.graph import reference
from tilewright.program.program import HostStep, Launch, Program
from tilewright.sim.passes import RunOptions
from tilewright.targets.base import ConformCase, Target
from tilewright.targets.gateware import CosimCase, Gateware, OnGateware
from tilewright.targets.users import Folders

if TYPE_CHECKING:
    from tilewright.hdl.verilog import Rtl

#: Cycles that a waveform shows before and after the first difference.
AROUND = 100
#: A cycle that no launch reaches.
LAST = 1 << 40


def replay(target: Target, paths: Sequence[str | Path]) -> Iterator[ConformCase]:
    """Run a target on golden vectors and yield one result per vector. Folders are searched for .npz files.

    An unreadable vector counts as failed. Raises InputError if a path is neither a file nor a folder, or if
    a folder contains no .npz file.
    """
    for path in _vectors(paths):
        try:
            cases = target.conform(path)
            yield from (cases,) if isinstance(cases, ConformCase) else cases
        except TilewrightError as error:
            yield ConformCase(path.stem, False, str(error))


def _vectors(paths: Sequence[str | Path]) -> list[Path]:
    paths_once: dict[Path, None] = {}
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(path.rglob("*.npz"))
            if not inside:
                raise InputError(path, "is a folder without .npz files", "give a folder with golden vectors")
            paths_once.update(dict.fromkeys(inside))
        else:
            paths_once[regular(path)] = None
    return list(paths_once)


@dataclass(frozen=True)
class Wave:
    """The waveform file for the first launch in which gateware and simulator differ.

    By default, the waveform shows the cycles around the first difference, and no file is written if no launch differs.
    `whole` selects all cycles of the launch, or of the first launch if no launch differs.
    """

    path: Path
    whole: bool = False


def cosim(
    program: Program, inputs: Mapping[str, Array] | None, rtl: Rtl, wave: Wave | None = None
) -> Iterator[CosimCase]:
    """Run each launch of a program on RTL and on the simulator, and yield the comparison.

    `rtl` is an engine for the target's gateware, or the user's Verilog. Only the first sample of `inputs` is run;
    `inputs` is None for a program without a network. Raises ConfigError if the target has no gateware, and MachineError
    if the program cannot run.
    """
    target = targets.get(program.target)
    if not isinstance(target, Gateware):
        raise ConfigError(program.target, "has no gateware to compare", "`tilewright exec` runs the simulator")
    from tilewright.hdl.model import Wave as Span

    first: OnGateware | None = None
    waved = False
    shows: Rtl = "cxxrtl" if isinstance(rtl, str) else rtl  # our Verilator build of gateware has no waveforms
    for step, values in launched(program, inputs):
        run = target.on_gateware(program, step, values)
        case = run(rtl, None)
        if wave and not waved and case.first_cycle is not None:
            around = max(0, case.first_cycle - AROUND), case.first_cycle + AROUND
            run(shows, Span(wave.path, *((0, LAST) if wave.whole else around)))
            waved = True
        # If no launch differs, `whole` asks for the first launch.
        first = first or run
        yield case
    if wave and wave.whole and not waved and first:
        first(shows, Span(wave.path, 0, LAST))


def launched(program: Program, inputs: Mapping[str, Array] | None) -> Iterator[tuple[Launch, dict[str, Array]]]:
    """Run the first sample. Yield each launch and the tensors before it. Raises MachineError if a launch cannot run."""
    graph = program.graph
    values = dict[str, Array]()
    if graph is not None and inputs is not None:
        values = {name: data[:1] for name, data in reference.check_inputs(graph, inputs).items()}
        values |= reference.states(graph, values, None)
    for step in program.steps:
        if isinstance(step, HostStep):
            assert graph is not None
            values.update(reference.run_node(graph, step.node, values, program.rounding))
            continue
        yield step, dict(values)
        if graph is not None:
            result = targets.get(program.target).launch(program, step, values, RunOptions(check=False))
            values.update(result.values)


def dump(program: Program, inputs: Mapping[str, Array], folder: str | Path) -> None:
    """Write a program's launches, with the data of the first sample, as files for the simulators of other compilers.

    Raises ConfigError if the target has no such file format, and ProgramError if the format cannot express a launch.
    """
    target = targets.get(program.target)
    if not isinstance(target, Folders):
        raise ConfigError(program.target, "has no folders of raw binaries", "compile for vta")
    alone = len(program.launches) == 1
    files = dict[str, bytes]()
    for number, (launch, values) in enumerate(launched(program, inputs), 1):
        files |= target.dump(program, launch, values, "" if alone else f"_L{number}")
    write_folder(folder, files)
