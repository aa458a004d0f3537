"""The process behind VTADeviceRun of a C host.

The process runs the instructions in memory that it shares with the host.

The shared memory is the file with the descriptor 4. An offset in this file is an address of the machine. Pages that
were never touched are holes in the file.

$TILEWRIGHT_VTA_TIMING is the timing model. $TILEWRIGHT_VTA_SAVE is a program file, to which all runs are written.
"""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.native import serve
from tilewright.program.file import save
from tilewright.program.instruction import Raw
from tilewright.program.launch_image import CARRIED, DramSegment, LaunchImage
from tilewright.program.program import Launch, Program
from tilewright.targets.vta import TARGET
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa import text
from tilewright.targets.vta.isa.fields import INSN_BYTES, REGIONS, UOP_BYTES, Opcode
from tilewright.targets.vta.isa.instructions import InstructionBuffer, serial
from tilewright.targets.vta.isa.stream import decode
from tilewright.targets.vta.native.hostlib import REQUESTS
from tilewright.targets.vta.runtime.commands import segment_kind
from tilewright.targets.vta.runtime.session import Debug, RunResult, numbered, run_options
from tilewright.targets.vta.steps.moves import moves

SHARED = 4
#: A run: address of the instructions, bytes of the runtime's micro-ops, number of instructions, debug flags.
RUN = struct.Struct("<2Q2I")
#: The flag to print the cycles of a run (VTA_DEBUG_LOG_INSN).
LOG = 64
#: Maximum number of findings to print for a run.
SHOWN = 8


class Region(NamedTuple):
    """An allocation of the host. The runtime's micro-ops have the number -1, the runtime's instructions -2."""

    address: int
    size: int
    number: int

    @property
    def name(self) -> str:
        return {-1: "uop", -2: "insns"}.get(self.number, f"buffer{self.number}")

    @property
    def end(self) -> int:
        return self.address + self.size


class Server(serve.Server):
    """Runs instructions for one host on the machine `config`, in the memory behind the file descriptor `file`."""

    requests = REQUESTS

    def __init__(self, config: Config, file: int) -> None:
        self.config = config
        self.file = file
        self.options = run_options(self.config, os.environ.get("TILEWRIGHT_VTA_TIMING") or None, check=True)
        self._saved = os.environ.get("TILEWRIGHT_VTA_SAVE", "")
        self._launches: list[Launch] = []
        self._count = 0
        self._last = (0, 0)  # cycles and findings of the last run that did not fail

    def run(self, payload: bytes) -> bytes:
        """Run instructions that lie in the host's allocations, and return the findings as text.

        Raises ProgramError for instructions that the machine does not have, HazardError if the run does not end.
        """
        address, uops, count, debug = RUN.unpack_from(payload)
        regions = [Region(*fields) for fields in struct.iter_unpack("<2Qq", payload[RUN.size :])]
        name = f"launch{self._count}"
        self._count += 1
        launch, stored = self._launch(name, self._code(address, count, regions, debug), regions, uops)
        if debug & Debug.DUMP_INSN:
            listed = text.instructions(launch.arrays["insns"], self.config)
            print(f"# {name}\n{numbered('.insn', listed)}", end="", flush=True)
        if self._saved:
            self._launches.append(launch)
        result = TARGET.launch(self._program((launch,)), launch, {}, self.options)
        for region in stored:
            os.pwrite(self.file, result.values[region.name][0], region.address)
        run = RunResult.of(result)
        self._last = run.cycles, len(run.findings)
        lines = [str(finding.inside(name)) for finding in run.findings[:SHOWN]]
        if len(run.findings) > SHOWN:
            lines.append(f"... and {len(run.findings) - SHOWN} more findings in {name}")
        if debug & LOG:
            lines.append(f"{name}: {run.cycles} cycles, {count} instructions, {run.macs} multiply-accumulates")
        return serve.shown(lines).encode()

    def result(self, _: bytes) -> bytes:
        return struct.pack("<2Q", *self._last)

    def uops(self, payload: bytes) -> bytes:
        code = np.frombuffer(payload, np.uint8).reshape(-1, UOP_BYTES)
        print(numbered(".uop", text.micro_ops(code, self.config)), end="", flush=True)
        return b""

    def end(self) -> None:
        """Write the runs to a program file, if the environment names one."""
        if self._launches:
            save(self._program(tuple(self._launches)), Path(self._saved))

    def _program(self, launches: tuple[Launch, ...]) -> Program:
        return Program.bare(TARGET.name, self.config, launches)

    def _code(self, address: int, count: int, regions: list[Region], debug: int) -> Raw:
        """Return `count` instructions from an address on, uint8 [n, 16]. Raises ProgramError if they lack FINISH."""
        size = count * INSN_BYTES
        where = f"{count} instructions at {address:#x}"
        if not any(region.address <= address and address + size <= region.end for region in regions):
            raise ProgramError(where, "are not inside one allocation", "give the address from VTAMemGetPhyAddr")
        code = self._bytes(address, size).reshape(-1, INSN_BYTES)
        if not (decode(code, self.config).opcode == Opcode.FINISH).any():
            raise ProgramError(where, "have no FINISH, so the host would wait for ever", "end them with FINISH")
        if debug & Debug.FORCE_SERIAL:
            # Without the FINISH at the end, which `serial` adds again.
            recorded = InstructionBuffer.of(code[:-1], self.config)
            return serial(recorded).encode()
        return code

    def _launch(self, name: str, code: Raw, regions: list[Region], uops: int) -> tuple[Launch, list[Region]]:
        """Return a launch with the allocations that its instructions load or store, and the stored allocations.

        An allocation that was never written has the kind `output`, so that a load from it is a finding.
        """
        # The runtime's micro-op area only counts up to its last micro-op.
        filled = [region._replace(size=uops) if region.number == -1 else region for region in regions]
        filled = [region for region in filled if region.size]
        loads, stores = self._moved(code, filled)
        segments = list[DramSegment]()
        data = dict[str, Array]()
        stored = list[Region]()
        for region, is_loaded, is_stored in zip(filled, loads, stores, strict=True):
            if not is_loaded and not is_stored:
                continue
            kind = segment_kind(self._written(region), bool(is_stored))
            segments.append(DramSegment(region.name, region.address, region.size, kind))
            if kind in CARRIED:
                data[region.name] = self._bytes(region.address, region.size)
            if is_stored:
                stored.append(region)
        return LaunchImage(code, tuple(segments), data, dict.fromkeys(REGIONS, 0)).launch(name), stored

    def _moved(self, code: Raw, regions: list[Region]) -> tuple[Array, Array]:
        """Return whether each region is loaded from, and stored to, bool [regions] each. Regions ascend."""
        stream = decode(code, self.config)
        moved = moves(stream, self.config, dict.fromkeys(REGIONS, 0))
        # A transfer may touch several regions, first..last-1. To count touches, add 1 at `first` and -1 at `last`, then
        # sum.
        first = np.searchsorted([region.end for region in regions], moved.address, side="right")
        last = np.searchsorted([region.address for region in regions], moved.dram_end, side="left")

        def covered(mine: Array) -> Array:
            ends = [np.bincount(at[mine], minlength=len(regions) + 1) for at in (first, np.maximum(first, last))]
            return np.cumsum(ends[0] - ends[1])[: len(regions)] > 0

        return covered(moved.transfers & ~moved.stores), covered(moved.stores)

    def _bytes(self, address: int, size: int) -> Array:
        return np.frombuffer(os.pread(self.file, size, address), np.uint8)

    def _written(self, region: Region) -> bool:
        """Whether the host or the machine has written a region (True on systems that do not show holes in files)."""
        if not hasattr(os, "SEEK_DATA"):
            return True
        try:
            return os.lseek(self.file, region.address, os.SEEK_DATA) < region.end
        except OSError as error:
            return error.errno != errno.ENXIO  # ENXIO: only holes follow


def main(connection: int, machine: str) -> None:
    """Answer requests from a socket until the socket is closed. `machine`: the file of the configuration."""
    serve.serve(connection, lambda: Server(TARGET.config(machine, {}), SHARED))
