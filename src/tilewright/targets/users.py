"""Protocols of targets for programs and parts that users bring: folders, ELF files, hosts in C, firmware, a CFU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from tilewright.array import Array
from tilewright.program.program import Launch, Program
from tilewright.sim.findings import Finding
from tilewright.targets.base import Config, LaunchResult


class Loaded(NamedTuple):
    """A program that another compiler wrote.

    `expected` has the first bytes of each output, uint8 [n], by the name of the DRAM segment. `findings` are about the
    files.
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
        """Return the files of a launch by name. `values` has one sample of each tensor that the launch reads.

        `end` is appended to the names, to distinguish the launches in a folder. Raises ProgramError if the files cannot
        express the launch.
        """


class Sections(NamedTuple):
    """The sections of a program that ran on a processor. `result` has the figures of each, in the order of `names`."""

    names: tuple[str, ...]
    result: LaunchResult


@dataclass(frozen=True)
class Execution:
    """The report of a program that ran on a target's processor: as text, as JSON values and as a speedscope profile.

    A page and a timeline need a `program` (None: there is nothing to show). They show its `sections` as layers, timed
    by the timing model `timing`. Without sections, they show a run of the program, with `findings`.
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
class RunsC(Protocol):
    """A target that compiles a host in C, and runs it."""

    def run_c(self, source: Path, config: Config, flags: Sequence[str]) -> Execution:
        """Run a C file, compiled with further arguments of the compiler. Raises InputError if it does not compile."""


@runtime_checkable
class NamesCode(Protocol):
    """A target whose machine files may name files with code of the user's.

    A saved program has only the name of such code. It is loaded only if the user gives the machine file again: a
    program file of a stranger must not run code.
    """

    def with_code(self, program: Program, config: Config) -> Program:
        """Return a program with the code that a machine's file names.

        Raises ProgramError if the program was made for another machine.
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
class Processor(Protocol):
    """A target with a processor that runs ELF files and firmware, and a custom function unit that can be replaced."""

    def execute(self, path: Path, config: Config, timing: str | None, limit: int | None) -> Execution:
        """Run an ELF file to its end or for `limit` instructions. Raises ProgramError if the file cannot be loaded."""

    def with_cfu(self, cfu: Sequence[str | Path] | Callable[[], Any], states: int = 0) -> AbstractContextManager[None]:
        """Return a context in which runs use another custom function unit.

        `cfu` are Verilog files, or FILE.py:NAME for a class, or a function that makes an object for each run.
        In each run, `states` twins start from other values where the Verilog gives no initial value; a run whose
        answers depend on these has a finding. Raises InputError if a file cannot be read, ConfigError if it cannot be
        compiled.
        """

    def with_gdb(self, port: int) -> AbstractContextManager[int]:
        """Return a context in which the next run of a program waits for GDB, which then controls it.

        The port is on the loopback interface only; 0 stands for any free one. The context yields the port's number.
        Raises InputError if the port cannot be opened.
        """

    def new_firmware(self, folder: Path, config: Config) -> Sequence[str]:
        """Write a project of firmware for a machine; return the paths of its files in `folder`.

        Raises InputError if the folder exists and is not empty, or cannot be written.
        """

    def with_firmware(self, path: str | Path) -> AbstractContextManager[None]:
        """Return a context in which networks are compiled with the firmware at `path`: a project, or an ELF file.

        Raises InputError if there is none. In the context, `compile` raises InputError if it cannot be compiled.
        """

    def built_in(self) -> AbstractContextManager[None]:
        """Return a context in which networks are compiled and run with the built-in firmware and CFU."""

    def firmware_of(self, program: Program) -> Firmware | None:
        """Return the user's firmware of a program; None if it was compiled outside of such a context."""


@runtime_checkable
class TakesHosts(Protocol):
    """A target that hosts in C use through a library."""

    def host_flags(self, config: Config) -> Mapping[str, Sequence[str]]:
        """Return the compiler's arguments for a host in C of a machine, by kind: `cflags` and `libs`.

        Raises InputError if the library that hosts are linked with cannot be made.
        """
