"""Protocols of targets with gateware: Verilog, comparisons with the simulator, and FPGA area."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from tilewright.array import Array
from tilewright.errors import ConfigError
from tilewright.install import hint
from tilewright.program.program import Launch, Program
from tilewright.targets.base import Config

if TYPE_CHECKING:
    from tilewright.hdl.model import Wave
    from tilewright.hdl.verilog import Rtl


@dataclass(frozen=True)
class CosimCase:
    """The comparison of a launch on the compiled gateware with the simulator. Each difference is a sentence.

    The differences are in the order in which they occurred.
    """

    name: str
    instructions: int
    cycles: int
    rtl_cycles: int
    mismatched_bytes: int
    differences: tuple[str, ...] = ()
    first_cycle: int | None = None  # the cycle of the first difference


#: A launch on RTL: runs it on the given RTL and on the simulator, compares the runs, and may write a waveform.
OnGateware: TypeAlias = "Callable[[Rtl, Wave | None], CosimCase]"


@runtime_checkable
class Gateware(Protocol):
    """A target with gateware. The methods raise ConfigError if a tool or a part of the machine is missing."""

    def excess(self, config: Config) -> str:
        """Return the reason why the design does not fit the configured board, with a remedy; "" if the design fits."""

    def rtl(self, config: Config) -> Mapping[str, str]:
        """Return the text of each file of a design for a board, by file name: Verilog, constraints, README."""

    def on_gateware(self, program: Program, launch: Launch, values: Mapping[str, Array]) -> OnGateware:
        """Return a launch, with one sample, on RTL."""


@runtime_checkable
class Occupies(Protocol):
    """A target that counts or estimates the FPGA cells of its gateware without synthesis."""

    def area(self, config: Config) -> dict[str, Any]:
        """Return the cells by kind, `lut`, `ff`, `dsp` and `bram36` (half a block has 18 Kbit), and their accuracy.

        `area` is the total of all kinds in percent of one FPGA, which is the same FPGA for all machines of the target.
        `estimate` lists the keys that are estimates, and `error` has the largest relative error of each measured count.
        Raises ConfigError if the gateware cannot be built.
        """


@contextmanager
def tools() -> Iterator[None]:
    """Return a context for importing gateware. Raises ConfigError if Amaranth or another package is missing."""
    try:
        yield
    except ImportError as error:
        raise ConfigError("gateware", f"needs {error.name}", hint("rtl")) from None
