"""The commands of a launch as encoded queues: a file of them, and running it again.

A recording names addresses, as the machine's queues do: it runs on a device whose tensors lie where they lay. It has
what the kernel decided when it ran; what a kernel decides by values that it reads is not in it.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.files import regular
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.elaborate import UNITS, Elaborated, elaborate
from tilewright.targets.bm1684x.isa.meaning import checked
from tilewright.targets.bm1684x.isa.operations import DMA, HAU, TIU
from tilewright.targets.bm1684x.isa.stream import Encoded, queue
from tilewright.targets.bm1684x.runtime.launched import Launched, finished
from tilewright.targets.bm1684x.values.memory import Memories

#: Bytes that a file may have, compressed or not.
LARGEST = 1 << 28
DIGEST = "config"
#: What zipfile and NumPy raise for a damaged file; MemoryError: of an array that says it is huge.
DAMAGE = (
    *(OSError, ValueError, LookupError, ArithmeticError, TypeError, EOFError, RuntimeError, MemoryError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)


@dataclass(frozen=True, eq=False)
class Recording:
    """Queues (uint8 by engine), and the digest of the configuration that they are for."""

    queues: dict[str, Array]
    digest: str

    @classmethod
    def of(cls, program: Elaborated, config: Config) -> Recording:
        """Encode what a kernel issued. Raises ProgramError for a command that no known format says."""
        found: dict[str, list[Encoded]] = {unit: [] for unit in UNITS}
        others = {TIU: DMA, DMA: TIU}
        for step in sorted(program.steps, key=lambda step: step.id):
            if step.engine == HAU:
                raise ProgramError(
                    step.name, "the format of the sorting engine's commands is not known", "leave it out"
                )
            needs = step.needs.get(others[step.engine], 0)
            found[step.engine].append(checked(step.command, step.id - 1, needs, config))
        return cls({unit: queue(unit, commands) for unit, commands in found.items()}, config.digest())

    def launch(self, memories: Memories) -> Launched:
        """Run it. Raises ProgramError for queues of another configuration, or that are none."""
        if memories.config.digest() != self.digest:
            raise ProgramError("recording", "it was made for another configuration", "run it on a device of that one")
        memories.forget()
        program = elaborate(self.queues, memories.config, memories.regions, memories.knobs)
        return finished(program.run(memories), memories)

    def save(self, path: str | Path) -> None:
        """As a file."""
        with Path(path).open("wb") as file:
            tiu, dma = (self.queues[unit] for unit in UNITS)
            np.savez_compressed(file, tiu=tiu, dma=dma, config=np.frombuffer(self.digest.encode(), np.uint8))

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """From a file. Raises ProgramError for what is none."""
        where = str(path)
        try:
            raw = regular(path, ProgramError).read_bytes()
            with zipfile.ZipFile(io.BytesIO(raw)) as archive:
                if sum(entry.file_size for entry in archive.infolist()) > LARGEST:
                    raise ProgramError(where, f"it unpacks to more than {LARGEST} bytes")
            with np.load(io.BytesIO(raw), allow_pickle=False) as arrays:
                found = {name: arrays[name] for name in (*UNITS, DIGEST)}
        except DAMAGE as error:
            raise ProgramError(where, f"it is no recording: {error}") from None
        if any(array.dtype != np.uint8 or array.ndim != 1 for array in found.values()):
            raise ProgramError(where, "it is no recording: its queues are not bytes")
        return cls({unit: found[unit] for unit in UNITS}, found[DIGEST].tobytes().decode(errors="replace"))
