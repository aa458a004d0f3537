"""The contract that a target's object `TARGET` satisfies (see docs/new-target.md), and optional protocols.

The command line tests for an optional protocol by `isinstance`, and refuses a command whose protocol is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from tilewright.array import Array
from tilewright.graph.ir import Graph, Site
from tilewright.program.program import Configuration, Launch, Program
from tilewright.sim.events import Events
from tilewright.sim.findings import Finding
from tilewright.sim.passes import LaunchResult, RunOptions
from tilewright.sim.walk import Walk

__all__ = ["Config", "ConformCase", "LaunchResult", "Target", "TimingModel"]

Config: TypeAlias = Configuration


class Number(NamedTuple):
    """A number of a timing model that a what-if may change, and its least value. An integer stays an integer."""

    value: float
    least: float


@dataclass(frozen=True)
class TimingModel:
    """A named table of cycle counts, and the evidence for them. `numbers` are those that a what-if may change.

    A what-if has the name "NAME,KEY=VALUE,...": the model NAME with these numbers.
    """

    name: str
    evidence: str
    numbers: Mapping[str, Number] = field(default_factory=dict, compare=False)

    @property
    def values(self) -> dict[str, Any]:
        return {key: number.value for key, number in self.numbers.items()}


@dataclass(frozen=True)
class ConformCase:
    """The outcome of one golden vector; if it did not pass, `reason` says what differs.

    `counts` are further comparisons by name: how many agree exactly, and of how many.
    """

    name: str
    passed: bool
    reason: str = ""
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)


class Target(Protocol):
    """A machine: its configurations, compiler, simulation passes and golden vectors.

    `passes` names its simulation passes, of "order", "time" and "values". A request for another pass is refused.
    """

    name: str
    title: str
    presets: tuple[str, ...]
    timing_models: tuple[TimingModel, ...]
    passes: frozenset[str]

    def config(self, source: str | Path | Mapping[str, Any] | None, overrides: Mapping[str, str]) -> Config:
        """Read a preset, a JSON file or a mapping (None: the default preset). Raises ConfigError if it is invalid."""

    def describe(self, config: Config) -> dict[str, Any]:
        """Return sizes and peak for display, including `macs_per_cycle` and `clock_mhz`."""

    def header(self, config: Config) -> str:
        """Return a C header for gateware, drivers and runtimes: sizes, codes and instruction bit fields."""

    def compile(self, graph: Graph, config: Config, rounding: str, timing: str | None = None) -> Program:
        """Compile a network. Plans that depend on timing use the timing model `timing` (None: the first).

        Raises UnsupportedError only if neither the target nor the host can run a node.
        """

    def launch(
        self, program: Program, launch: Launch, values: Mapping[str, Array], options: RunOptions
    ) -> LaunchResult:
        """Run one launch on S samples. Raises MachineError if the program cannot run to its end."""

    def check(self, program: Program) -> Iterator[Finding]:
        """Yield findings without running the program: hazards, and behaviour that differs between implementations."""

    def disassemble(self, program: Program) -> str:
        """Return the program as text that `assemble` reads back exactly."""

    def assemble(self, text: str, config: Config) -> Program:
        """Assemble text into a bare program. Raises ProgramError, with line and column, if the text is wrong."""

    def explain(self, program: Program, timing: str | None = None) -> str:
        """Return a text dump of each compile stage: plans, volumes, counts and cycles per layer.

        `timing` names the timing model (None: the first). If cycles depend on the data, None gives no cycles, and a
        named timing model gives the cycles of a sample of zeros.
        """

    def conform(self, path: Path) -> ConformCase | Iterator[ConformCase]:
        """Replay one golden vector file; a file with many cases yields one outcome per case."""


class Drawable(Protocol):
    """A picture that can be shown as text, SVG or JSON."""

    def text(self) -> str: ...
    def svg(self) -> str: ...
    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class LayoutRequest:
    """The tensor to lay out, and how.

    `kind` is the layout's name. `start` is the lane of channel 0; `offset` is the start of the data in its lane, in
    bytes. `stride` is for a free layout, in elements; `width` is for a matrix, in columns per channel. `order`
    names the axes of `shape`, if they are not in the order of the layout.
    """

    kind: str
    shape: Sequence[int]
    dtype: str
    start: int = 0
    offset: int = 0
    stride: Sequence[int] | None = None
    width: int | None = None
    order: Sequence[str] = ()


@runtime_checkable
class Layouts(Protocol):
    """A target whose tensor layouts can be drawn."""

    def layout(self, wanted: LayoutRequest, config: Config) -> Drawable:
        """Return a drawing of where a tensor's elements lie. Raises InputError if the request is not possible."""


@runtime_checkable
class Approximates(Protocol):
    """A target that can compute real numbers in its own number format, which is not bit-exact to the reference."""

    def takes_real(self, config: Config) -> bool:
        """Return whether a machine with this configuration computes real numbers."""

    def approximates(self, program: Program) -> bool:
        """Return whether this program computes real numbers: the run then reports a deviation instead of a match."""


@runtime_checkable
class Offers(Protocol):
    """A target of which another configuration may take layers that the host computes otherwise.

    `offers` are values of `--set` that may bring such layers, the smallest change of the machine first.
    """

    offers: tuple[str, ...]

    def takes(self, site: Site, config: Config, rounding: str) -> bool:
        """Return whether a machine with this configuration takes a node of a network, judged by the node alone."""


@runtime_checkable
class Batches(Protocol):
    """A target whose launches can take several samples at a time."""

    def samples_a_launch(self, program: Program) -> int:
        """Return how many samples a launch takes. With fewer, it is padded and takes as many cycles as a full one."""


@dataclass(frozen=True)
class Change:
    """A change of a machine that may save cycles; `text` describes it.

    `set` are configuration keys to set, `timing` numbers of the timing model. With `recompile`, the network must be
    compiled for the changed machine; otherwise all keys in `set` only change time.
    """

    text: str
    set: Mapping[str, int | str] = field(default_factory=dict)
    timing: Mapping[str, float] = field(default_factory=dict)
    recompile: bool = False


@runtime_checkable
class Explores(Protocol):
    """A target that offers changes of its machines, for what-ifs.

    `time_needs_values` says whether a launch can only be timed together with its values. If it can be timed alone,
    `launch` must accept `values` without tensors if `options.values` is false.
    """

    time_needs_values: bool

    def changes(self, config: Config, timing: TimingModel) -> Iterable[Change]:
        """Yield changes of a machine and of its timing model. A change may turn out to be illegal: it is left out."""


@runtime_checkable
class Remembers(Protocol):
    """A target whose compiler can use again what it found for other machines."""

    def remembering(self, folder: Path) -> AbstractContextManager[None]:
        """Keep what is found during a `with` block in a folder; other processes may use it at the same time."""


class UserSchedule(Protocol):
    """How layers of a network are to be compiled: a schedule that a user wrote, or that of a compiled program."""

    def to_json(self) -> dict[str, Any]: ...
    def text(self) -> str: ...


@runtime_checkable
class TakesSchedules(Protocol):
    """A target whose compiler takes schedules of layers from the user."""

    def schedule(self, source: object) -> UserSchedule:
        """Read a file, its JSON values, or a schedule in Python. Raises InputError if it has another form."""

    def compile_scheduled(
        self, graph: Graph, config: Config, rounding: str, timing: str | None, schedule: UserSchedule, search: bool
    ) -> Program:
        """Compile a network with a user's schedule; the compiler plans layers that it does not name.

        With `search`, the compiler's search starts from the schedule: the program takes no more cycles.
        Raises InputError if the schedule is of another network or machine, or breaks a rule.
        """

    def schedule_of(self, program: Program) -> UserSchedule:
        """Return the schedule of all layers of a program: compiled with it, the network becomes the same program."""


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


class Loaded(NamedTuple):
    """A program that another compiler wrote, the first bytes that outputs must have (uint8 [n]), and findings about it.

    Outputs go by the name of their DRAM segment.
    """

    program: Program
    expected: Mapping[str, Array]
    findings: tuple[Finding, ...]


@runtime_checkable
class Folders(Protocol):
    """A target with programs in the form of folders, which other compilers and simulators share."""

    def load(self, folder: Path, config: Config) -> Loaded:
        """Read a folder. Raises ProgramError, naming the file, if it is not a program of the machine."""

    def dump(self, program: Program, launch: Launch, values: Mapping[str, Array], end: str) -> Mapping[str, bytes]:
        """Return the files of a launch by name, with the data for `values`, one sample of the tensors that it reads.

        `end` distinguishes the launches of a folder. Raises ProgramError if the form cannot hold the launch.
        """


class Sections(NamedTuple):
    """The sections of a program that ran on a processor. `result` has the figures of each, in the order of `names`."""

    names: tuple[str, ...]
    result: LaunchResult


@dataclass(frozen=True)
class Execution:
    """The report of a program that ran on a target's processor: as text, as JSON values and as a speedscope profile.

    `program` is what ran (None: there is nothing to show). A page and a timeline show its `sections` as layers, in the
    timing model `timing`. Without sections, they show a run of the program, with `findings`.
    """

    text: str
    data: Mapping[str, Any]
    passed: bool
    speedscope: Mapping[str, Any]
    program: Program | None = None
    timing: str | None = None
    sections: Callable[[], Sections] | None = None
    findings: tuple[Finding, ...] = ()


@runtime_checkable
class Executes(Protocol):
    """A target with a processor that runs ELF files."""

    def execute(self, path: Path, config: Config, timing: str | None, limit: int | None) -> Execution:
        """Run an ELF file to its end or for `limit` instructions. Raises ProgramError if the file cannot be loaded."""


@runtime_checkable
class TakesC(Protocol):
    """A target whose kernels can be written in C."""

    def firmware(self, sources: Sequence[Path], output: Path, flags: Sequence[str]) -> str:
        """Compile kernels in C to a firmware, and return the compiler's warnings.

        `flags` are further arguments of the compiler. Raises InputError if a source does not compile.
        """


@runtime_checkable
class TakesHosts(Protocol):
    """A target that hosts in C use through a library."""

    def host_flags(self, config: Config) -> Mapping[str, Sequence[str]]:
        """Return the compiler's arguments for a host in C of a machine, by kind: `cflags` and `libs`.

        Raises InputError if the library that hosts are linked with cannot be made.
        """


@runtime_checkable
class RunsC(Protocol):
    """A target that compiles a host in C, and runs it."""

    def run_c(self, source: Path, config: Config, flags: Sequence[str]) -> Execution:
        """Run a C file, compiled with further arguments of the compiler. Raises InputError if it does not compile."""


@runtime_checkable
class TakesCfu(Protocol):
    """A target whose custom function unit can be replaced."""

    def with_cfu(self, cfu: Sequence[str | Path] | Callable[[], Any], states: int = 0) -> AbstractContextManager[None]:
        """Return a context in which runs use another custom function unit.

        `cfu` are Verilog files, names a class as FILE.py:NAME, or makes an object for each run. In each
        run, `states` more instances start from other values where the Verilog gives none; a run whose answers depend on
        them has a finding. Raises InputError if a file cannot be read, ConfigError if it cannot be compiled.
        """


@runtime_checkable
class Debugs(Protocol):
    """A target whose processor a debugger can control."""

    def with_gdb(self, port: int) -> AbstractContextManager[int]:
        """Return a context in which the next run of a program waits for GDB, and is controlled by it.

        The port is on the loopback interface only; 0 stands for any free one. The context yields the port's number.
        Raises InputError if the port cannot be opened.
        """


@runtime_checkable
class NamesCode(Protocol):
    """A target whose machine files may name code of the user's. Program files name it too, but never lead to it."""

    def with_code(self, program: Program, config: Config) -> Program:
        """Return a program with the code that a machine's file names.

        Raises ProgramError if the program was made for another machine.
        """


@runtime_checkable
class Walks(Protocol):
    """A target whose launches can be run instruction by instruction, forwards and back (`tilewright debug`)."""

    def walk(self, program: Program, launch: Launch, values: Mapping[str, Array], timing: str | None) -> Walk:
        """Return a launch with its inputs: `values` has one sample, (1, *shape), of each tensor that it reads.

        `timing` names the timing model (None: the first). Raises ProgramError if the launch is malformed. A launch with
        hazards is no error: it can be walked up to the instruction that cannot run.
        """


class Firmware(NamedTuple):
    """Firmware of the user's: its folder or file, its compiler, and the kernel of each layer by the layer's name.

    `built_in` is the name of the firmware that comes with the machine, to compare it with.
    """

    path: str
    compiler: str
    built_in: str
    kernels: Mapping[str, str]


@runtime_checkable
class TakesFirmware(Protocol):
    """A target whose processor can run networks with firmware of the user's own."""

    def new_firmware(self, folder: Path, config: Config) -> Sequence[str]:
        """Write a project of firmware for a machine; return the paths of its files in `folder`.

        Raises InputError if the folder exists and is not empty, or cannot be written.
        """

    def with_firmware(self, path: str | Path) -> AbstractContextManager[None]:
        """Return a context in which networks are compiled with the firmware at `path`: a project, or an ELF file.

        Raises InputError if there is none. In the context, `compile` raises InputError if it cannot be compiled.
        """

    def built_in(self) -> AbstractContextManager[None]:
        """Return a context in which networks are compiled and run with what is built in, in place of the user's."""

    def kernels(self, program: Program) -> Firmware:
        """Return the firmware of a program that was compiled in such a context."""


@runtime_checkable
class Occupies(Protocol):
    """A target of which the cells that its gateware takes on an FPGA are known without synthesis."""

    def area(self, config: Config) -> dict[str, Any]:
        """Return `lut`, `ff`, `dsp`, `bram36` (a half is a block of 18 Kbit), and what is known of these counts.

        `area` is one number for all of them, in percent of one FPGA that the target chooses for all its machines.
        `estimate` lists the numbers that are estimates, and `error` has the largest relative error found of each count.
        Raises ConfigError if the gateware cannot be built.
        """


@dataclass(frozen=True)
class CosimCase:
    """One launch on the compiled gateware, compared with the simulator. `differences` are sentences, earliest first."""

    name: str
    instructions: int
    cycles: int
    rtl_cycles: int
    mismatched_bytes: int
    differences: tuple[str, ...] = ()
    first_cycle: int | None = None  # of the first difference


class OnGateware(NamedTuple):
    """A launch on the gateware. `compare` runs it on an RTL engine and on the simulator, and compares them.

    `waveform` runs it and writes a waveform (VCD) of its cycles from a first to a last one (None: of all).
    """

    compare: Callable[[str], CosimCase]
    waveform: Callable[[Path, tuple[int, int] | None], None]


@runtime_checkable
class Gateware(Protocol):
    """A target with gateware. The methods raise ConfigError if a tool or a part of the machine is missing."""

    def excess(self, config: Config) -> str:
        """Return why the design does not fit the configured board, and what to set; empty if it fits."""

    def rtl(self, config: Config) -> Mapping[str, str]:
        """Return the text of each file of a design for a board, by file name: Verilog, constraints, README."""

    def on_gateware(self, program: Program, launch: Launch, values: Mapping[str, Array]) -> OnGateware:
        """Return what can be done with one launch on one sample on the gateware."""
