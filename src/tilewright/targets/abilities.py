"""What some targets have beside the contract: the command line asks by `isinstance` and refuses where it is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from tilewright.array import Array
from tilewright.program.program import Launch, Program
from tilewright.targets.base import Config


class Drawable(Protocol):
    """Something to show."""

    def text(self) -> str: ...
    def svg(self) -> str: ...
    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class LayoutRequest:
    """What to lay out: `kind` is the layout's name; `start` the lane of channel 0; `offset` bytes from the beginning of
    its lane; `stride` of a free layout, in elements; `width` of a matrix, in columns a channel.
    """

    kind: str
    shape: Sequence[int]
    dtype: str
    start: int = 0
    offset: int = 0
    stride: Sequence[int] | None = None
    width: int | None = None


@runtime_checkable
class Layouts(Protocol):
    """A machine whose layouts of tensors can be drawn."""

    def layout(self, wanted: LayoutRequest, config: Config) -> Drawable:
        """Where the elements of a tensor lie. Raises InputError."""


@runtime_checkable
class Approximates(Protocol):
    """A target that can compute real numbers in a type of its own, not bit for bit as the reference does.

    `real_option` is the option of the command line that makes a machine do so.
    """

    real_option: str

    def takes_real(self, config: Config) -> bool:
        """Whether a machine computes real numbers."""

    def approximates(self, program: Program) -> bool:
        """Whether it does so in this program: outputs then have a deviation from the reference instead of a match."""


@runtime_checkable
class Batches(Protocol):
    """A target whose launches can take several samples at a time."""

    def samples_a_launch(self, program: Program) -> int:
        """How many; those that are missing are filled up, so that parts of them cost as much as all."""


@dataclass(frozen=True)
class Execution:
    """What a program for a target's own processor did: for people, as JSON values, and as a speedscope profile."""

    text: str
    data: Mapping[str, Any]
    passed: bool
    speedscope: Mapping[str, Any]


@runtime_checkable
class Executes(Protocol):
    """A target with a processor: it runs ELF files as they are. Not part of every target's contract."""

    def execute(self, path: Path, config: Config, timing: str | None, limit: int | None) -> Execution:
        """Run a file to its end, or to `limit` instructions. Raises ProgramError for one that it cannot load."""


@dataclass(frozen=True)
class CosimCase:
    """One launch on the compiled gateware and on the simulator; `differences`, the first one first, are sentences."""

    name: str
    instructions: int
    cycles: int
    rtl_cycles: int
    mismatched_bytes: int
    differences: tuple[str, ...] = ()
    first_cycle: int | None = None  # of the first difference


@runtime_checkable
class Gateware(Protocol):
    """What a target with gateware has besides. It raises ConfigError where tools or parts of a machine are missing."""

    def excess(self, config: Config) -> str:
        """Why a design does not fit the board that the configuration names, and what to set; empty where it fits."""

    def rtl(self, config: Config) -> Mapping[str, str]:
        """The files of a design for a board, by name: Verilog, constraints, README."""

    def cosim(self, program: Program, launch: Launch, values: Mapping[str, Array], engine: str) -> CosimCase:
        """Compare one launch on one sample."""

    def waveform(
        self,
        program: Program,
        launch: Launch,
        values: Mapping[str, Array],
        path: Path,
        cycles: tuple[int, int] | None,
    ) -> None:
        """Write the gateware's signals (VCD) in some cycles of one launch on one sample; None: in all."""
