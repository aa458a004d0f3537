"""The commands of a host as a program, with the memory as the machine found it."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.program.launch_image import MAX_BYTES, DramSegment, LaunchImage
from tilewright.program.program import Program
from tilewright.targets.gemmini.isa.fields import raw
from tilewright.targets.gemmini.native.commands import Range, RecordedCommands, united


def program(name: str, commands: RecordedCommands, memory: list[tuple[Range, Array]]) -> Program:
    """Return all commands as a program of one launch, called `name`.

    `memory` is what each fence found, uint8 [size] for each range.

    What the host changes between fences is not in it: cycles and hazards are the same, values may differ. Raises
    ProgramError if the memory is too large for a program.
    """
    first, size = (np.array([getattr(part, name) for part, _ in memory], np.int64) for name in Range._fields)
    parts = united(first, first + size)
    if sum(part.size for part in parts) > MAX_BYTES:
        raise ProgramError("program", f"uses more than {MAX_BYTES >> 20} MiB of memory", "save a smaller one")
    data, starts = [np.zeros(part.size, np.uint8) for part in parts], [part.address for part in parts]
    for part, content in reversed(memory):  # the first use counts
        index = int(np.searchsorted(starts, part.address, side="right")) - 1
        at = part.address - starts[index]
        data[index][at : at + part.size] = content
    names = [f"memory{index}" for index in range(len(parts))]
    segments = tuple(DramSegment(name, *part, "inout") for name, part in zip(names, parts, strict=True))
    launch = LaunchImage(raw(commands.passes.cmds), segments, dict(zip(names, data, strict=True))).launch(name)
    return Program.bare("gemmini", commands.config, [launch])
