"""Handwritten programs in Python, with the macros of gemmini.h.

with Gemmini() as g:
    a, b = g.to_device(left), g.to_device(right)  # int8 matrices
    c = g.empty((16, 16), "int8")
    g.gemmini_config_ex(WEIGHT_STATIONARY, NO_ACTIVATION, 0)
    g.gemmini_config_ld(16)
    g.gemmini_config_st(16)
    g.gemmini_mvin(a.address, spad(0))
    g.gemmini_mvin(b.address, spad(16))
    g.gemmini_preload(spad(16), acc(0))
    g.gemmini_compute_preloaded(spad(0), GARBAGE_ADDR)
    g.gemmini_mvout(c.address, acc(0))
    g.gemmini_fence()
    print(g.run().cycles, c.data)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.program.launch_image import MAX_ADDRESS, DramSegment, LaunchImage
from tilewright.program.program import Program
from tilewright.sim.findings import Finding
from tilewright.sim.passes import RunOptions
from tilewright.sim.steps import Trace
from tilewright.targets.gemmini import TARGET
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.fields import raw
from tilewright.targets.gemmini.isa.macros import (
    GARBAGE_ADDR,
    IGELU,
    LAYERNORM,
    NO_ACTIVATION,
    OUTPUT_STATIONARY,
    RELU,
    SOFTMAX,
    WEIGHT_STATIONARY,
    Commands,
    acc,
    spad,
)

__all__ = [
    "GARBAGE_ADDR",
    "IGELU",
    "LAYERNORM",
    "NO_ACTIVATION",
    "OUTPUT_STATIONARY",
    "RELU",
    "SOFTMAX",
    "WEIGHT_STATIONARY",
    "Buffer",
    "Commands",
    "Gemmini",
    "RunResult",
    "acc",
    "spad",
]


#: The address of the first buffer, which is the start of DRAM in Chipyard's SoCs, and the alignment of buffers.
BASE = 0x8000_0000
ALIGN = 64


@dataclass(frozen=True, eq=False)
class Buffer:
    """An array in DRAM at byte `address`. `data` is the host's copy, which each run updates."""

    name: str
    address: int
    data: Array


@dataclass(frozen=True)
class RunResult:
    """The outcome of a run: cycles, findings, multiply-accumulates, and the times of all primitive commands."""

    cycles: int
    findings: tuple[Finding, ...]
    macs: int
    trace: Trace | None


class Gemmini(Commands):
    """A Gemmini with its DRAM. `config` is a Config or the name of a preset.

    `run` executes the commands and clears them. Each run starts with zeros in the on-chip memories. DRAM keeps its
    content between runs.
    """

    def __init__(self, config: Config | str | None = None) -> None:
        super().__init__(config if isinstance(config, Config) else TARGET.config(config, {}))
        self._buffers: list[Buffer] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._buffers.clear()
        self._rows.clear()

    def to_device(self, array: Array, name: str = "") -> Buffer:
        """Return a new buffer with a copy of an array.

        Raises ProgramError if the array is empty or too large for DRAM, or if a buffer already has this name.
        """
        last = self._buffers[-1] if self._buffers else None
        address = BASE if last is None else last.address + -(-max(last.data.nbytes, 1) // ALIGN) * ALIGN
        if not array.nbytes or address + array.nbytes > MAX_ADDRESS:
            reason = "is empty" if not array.nbytes else f"does not fit below {MAX_ADDRESS:#x}"
            raise ProgramError("to_device", f"the array {reason}", "use a smaller array with at least one element")
        name = name or f"buffer{len(self._buffers)}"
        if name in {buffer.name for buffer in self._buffers}:
            raise ProgramError("to_device", f"a buffer named '{name}' already exists", "choose another name")
        self._buffers.append(Buffer(name, address, np.array(array, order="C")))
        return self._buffers[-1]

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike, name: str = "") -> Buffer:
        return self.to_device(np.zeros(shape, dtype), name)

    def program(self, name: str = "program") -> Program:
        """Return the commands and the content of DRAM as a program for `file.save`, `check`, `debug` or `exec`.

        Raises ProgramError if there are no commands.
        """
        if not self._rows:
            raise ProgramError("program", "there are no commands", "call a macro first")
        segments = tuple(
            DramSegment(buffer.name, buffer.address, buffer.data.nbytes, "inout") for buffer in self._buffers
        )
        held = {buffer.name: buffer.data.reshape(-1).view(np.uint8) for buffer in self._buffers}
        return Program.bare(TARGET.name, self.config, [LaunchImage(raw(self.array), segments, held).launch(name)])

    def run(self, check: bool = True, timing: bool = True) -> RunResult:
        """Execute the commands since the last run, and update all buffers.

        Raises HazardError if the program would stop or access rows outside of the memories, and MachineError for a DRAM
        access outside of the buffers. The result contains all other hazards. The values of a program with hazards are
        those of an execution in program order.
        """
        program = self.program()
        options = RunOptions(TARGET.timing_models[0].name if timing else None, check)
        result = TARGET.launch(program, program.launches[0], {}, options)
        for buffer in self._buffers:
            buffer.data.reshape(-1).view(np.uint8)[:] = result.values[buffer.name].reshape(-1)
        self._rows.clear()
        return RunResult(result.total.cycles, result.findings, result.total.executed_macs, result.trace)
