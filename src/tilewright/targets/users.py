"""Optional protocols of targets that accept the user's programs (folders, ELF files, hosts in C, firmware) or CFU."""

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
    """A program that another compiler wrote. `findings` are defects of its files.

    `expected` has the first bytes that each output should have, uint8 [n], by the name of the DRAM segment.
    """

    program: Program
    expected: Mapping[str, Array]
    findings: tuple[Finding, ...]


@runtime_checkable
class Folders(Protocol):
    """A target that reads and writes programs as folders, in a format of other compilers and simulators."""

    def load(self, folder: Path, config: Config) -> Loaded:
        """Read a folder. Raises ProgramError, naming the file, if the folder is not a program for the machine."""

    def dump(self, program: Program, launch: Launch, values: Mapping[str, Array], end: str) -> Mapping[str, bytes]:
        """Return the files of a launch by name. `values` has one sample of each tensor that the launch reads.

        `end` is appended to the names, so that a folder can contain several launches. Raises ProgramError if the files
        cannot express the launch.
        """


class Sections(NamedTuple):
    """The sections of a program that ran on a processor. `result` has the figures in the order of `names`."""

    names: tuple[str, ...]
    result: LaunchResult


@dataclass(frozen=True)
class Execution:
    """The report of a program that ran on a target's processor: as text, as JSON values and as a speedscope profile.

    If there is a `program`, a page and a timeline can be made. The layers are the `sections` of the program, timed with
    the timing model `timing`. Without sections, the page and the timeline show a run of the program, with `findings`.
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
    """A target that compiles and runs a host in C."""

    def run_c(self, source: Path, config: Config, flags: Sequence[str]) -> Execution:
        """Compile a C file with further compiler arguments, and run it. Raises InputError if compiling fails."""


@runtime_checkable
class NamesCode(Protocol):
    """A target with machine files that may refer to files with the user's code.

    A saved program has only the names of these files. The code is loaded only if the user gives the machine file again,
    because an untrusted program file must not run code.
    """

    def with_code(self, program: Program, config: Config) -> Program:
        """Return a program with the code to which its machine file refers.

        Raises ProgramError if the program was made for another machine.
        """


class Firmware(NamedTuple):
    """The user's firmware: the folder or file, the compiler, and the kernel of each layer by the layer's name.

    `built_in` is the name of the built-in firmware with which it is compared.
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

        `cfu` is a list of Verilog files, or FILE.py:NAME for a class, or a function that makes an object for each run.
        Some registers may have no initial value in the Verilog. In each run, `states` additional copies of the unit
        start with other values in these registers. If the copies respond differently, the run has a finding. Raises
        InputError if a file cannot be read, and ConfigError if it cannot be compiled.
        """

    def with_gdb(self, port: int) -> AbstractContextManager[int]:
        """Return a context in which the next run of a program waits for GDB and is controlled by GDB.

        The port is on the loopback interface only (0: any free port). The value of the context is the port's number.
        Raises InputError if the port cannot be opened.
        """

    def new_firmware(self, folder: Path, config: Config) -> Sequence[str]:
        """Write a project of firmware for a machine; return the paths of its files in `folder`.

        Raises InputError if the folder exists and is not empty, or cannot be written.
        """

    def with_firmware(self, path: str | Path) -> AbstractContextManager[None]:
        """Return a context in which networks are compiled with the firmware at `path`: a project, or an ELF file.

        Raises InputError if `path` does not exist. In the context, `compile` raises InputError if the firmware cannot
        be compiled.
        """

    def built_in(self) -> AbstractContextManager[None]:
        """Return a context in which networks are compiled and run with the built-in firmware and CFU."""

    def firmware_of(self, program: Program) -> Firmware | None:
        """Return the user's firmware in a program, or None if the program has the built-in firmware."""


@runtime_checkable
class TakesHosts(Protocol):
    """A target with a library through which hosts in C use the machine."""

    def host_flags(self, config: Config) -> Mapping[str, Sequence[str]]:
        """Return the compiler arguments `cflags` and `libs` for a host in C that uses this machine.

        Raises InputError if the library for hosts cannot be built.
        """
