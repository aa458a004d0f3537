"""The process that serves a host program in C: it simulates the machine, and reports at the end.

If $TILEWRIGHT_GEMMINI_SAVE names a file, all commands are saved to this file as a program. The report is printed,
unless $TILEWRIGHT_GEMMINI_REPORT names a file for the report as JSON.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError, TilewrightError
from tilewright.files import replacing
from tilewright.native import serve
from tilewright.program.file import save
from tilewright.program.launch_image import MAX_BYTES, Dram, DramSegment, LaunchImage
from tilewright.program.program import Program
from tilewright.targets.gemmini import TARGET
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.fields import raw
from tilewright.targets.gemmini.native.commands import RECORD, Range, RecordedCommands, united
from tilewright.targets.gemmini.native.execute import shown
from tilewright.targets.gemmini.native.hostlib import REQUESTS

RANGE = struct.Struct("<2Q")
COUNT = struct.Struct("<Q")


class Server(serve.Server):
    """Serve one host."""

    requests = REQUESTS

    def __init__(self, config: Config) -> None:
        self.commands = RecordedCommands(config)
        self.failed = False
        self._saved = os.environ.get("TILEWRIGHT_GEMMINI_SAVE", "")
        self._report = os.environ.get("TILEWRIGHT_GEMMINI_REPORT", "")
        self._kept: list[tuple[Range, Array]] = []
        self._asked = list[Range]()
        self._stored = list[Range]()
        self._memory = Dram([])
        self._content: list[tuple[Range, Array]] = []

    def status_of(self, error: TilewrightError) -> int:
        self.failed = True
        return super().status_of(error)

    def source(self, payload: bytes) -> bytes:
        self.commands.sources.append(payload.decode(errors="replace"))
        return b""

    def record(self, payload: bytes) -> bytes:
        self.commands.add(np.frombuffer(payload, RECORD))
        return b""

    def needed(self, _: bytes) -> bytes:
        self._asked = self.commands.needed()
        self._content = []
        return COUNT.pack(len(self._asked))

    def needed_ranges(self, _: bytes) -> bytes:
        return self._of_host(self._asked)

    def content(self, payload: bytes) -> bytes:
        """Receive the bytes of the next range. Raises MachineError if the range is not in the host's memory."""
        part = self._asked[len(self._content)]
        data = np.frombuffer(payload, np.uint8)
        if len(data) < part.size:
            raise self.commands.unknown(part)
        self._content.append((part, data))
        return b""

    def run(self, _: bytes) -> bytes:
        self._memory, self._stored = self.commands.run(self._content)
        if self._saved:
            self._kept += self._content
        return COUNT.pack(len(self._stored))

    def stored_ranges(self, _: bytes) -> bytes:
        return self._of_host(self._stored)

    def take(self, payload: bytes) -> bytes:
        """Return the bytes of a stored range. The payload is the number of the range."""
        address, size = self._stored[COUNT.unpack(payload)[0]]
        return self._memory.window(address, 1, size, 0, "take").tobytes()

    def _of_host(self, ranges: list[Range]) -> bytes:
        host = self.commands.addresses.host
        return b"".join(RANGE.pack(host(*part), part.size) for part in ranges)

    def cycles(self, _: bytes) -> bytes:
        return COUNT.pack(self.commands.cycles)

    def report(self) -> dict[str, Any]:
        """Return the report of all commands. Raises HazardError if the commands never end."""
        commands = self.commands
        passes = self.commands.passes
        return {
            "commands": len(commands.records),
            "cycles": passes.times.cycles,
            "macs": passes.macs,
            "findings": [
                finding.to_json() | {"steps": commands.placed(finding.steps), "places": commands.places(finding.steps)}
                for finding in commands.findings()
            ],
            "lines": commands.lines(),
        }

    def end(self) -> None:
        """Print or write the report, and save the program, unless no command was recorded or a request failed.

        Raises SystemExit if the report fails, which also makes the host program fail.
        """
        if self.failed or not len(self.commands.records):
            return
        try:
            report = self.report()
        except TilewrightError as error:
            raise SystemExit(f"tilewright: {error}") from None
        if self._report:
            with replacing(Path(self._report)) as file:
                file.write(json.dumps(report).encode())
        else:
            print(serve.shown(shown(report)), end="", file=sys.stderr)
        if self._saved:
            name = Path(self.commands.sources[0]).name if self.commands.sources else "program"
            save(program(name, self.commands, self._kept), Path(self._saved))


def main(connection: int, machine: str) -> None:
    """Serve requests on a socket until it is closed. `machine` is the path of the configuration file."""
    serve.serve(connection, lambda: Server(TARGET.config(machine, {})))


def program(name: str, commands: RecordedCommands, memory: list[tuple[Range, Array]]) -> Program:
    """Return all commands as a program of one launch with the name `name`.

    `memory` has the ranges of host memory at each fence with their bytes, uint8 [size]. The host may change memory
    between fences. The program does not contain these changes, so its values may differ, but cycles and hazards are the
    same. Raises ProgramError if the memory is too large for a program.
    """
    first, size = (np.array([getattr(part, name) for part, _ in memory], np.int64) for name in Range._fields)
    parts = united(first, first + size)
    if sum(part.size for part in parts) > MAX_BYTES:
        raise ProgramError("program", f"uses more than {MAX_BYTES >> 20} MiB of memory", "save a smaller one")
    data = [np.zeros(part.size, np.uint8) for part in parts]
    starts = [part.address for part in parts]
    for part, content in reversed(memory):  # in reverse order, so that the first content remains
        index = int(np.searchsorted(starts, part.address, side="right")) - 1
        at = part.address - starts[index]
        data[index][at : at + part.size] = content
    names = [f"memory{index}" for index in range(len(parts))]
    segments = tuple(DramSegment(name, *part, "inout") for name, part in zip(names, parts, strict=True))
    launch = LaunchImage(raw(commands.passes.cmds), segments, dict(zip(names, data, strict=True))).launch(name)
    return Program.bare("gemmini", commands.config, [launch])
