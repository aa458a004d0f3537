"""Firmware in C: the functions of a library that `build.firmware` has made, for launches from hosts.

The library runs in a process of its own, from the loading of the firmware on: its global variables keep their values
from launch to launch. If a launch fails, the process ends, and the next launch starts a new one.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tilewright.errors import MachineError, ProgramError
from tilewright.files import regular
from tilewright.targets.bm1684x.native.process import RECORDS, Limits, Process
from tilewright.targets.bm1684x.native.replay import Replay
from tilewright.targets.bm1684x.runtime.kernel import Function, Kernel, Tpu

#: The first bytes of shared libraries: ELF; Mach-O of 64 bits.
MAGIC = (b"\x7fELF", b"\xcf\xfa\xed\xfe")


def is_library(path: str | Path) -> bool:
    """Return whether a file begins like a shared library. Raises ProgramError if it cannot be read."""
    try:
        with regular(path, ProgramError).open("rb") as file:
            return file.read(4) in MAGIC
    except OSError as error:
        raise ProgramError(str(path), f"cannot be read: {error.strerror or error}") from None


class Library:
    """A loaded firmware in C."""

    def __init__(self, path: str | Path, limits: Limits | None = None) -> None:
        """Load the library, which runs its constructors. Without `limits`, they come from the environment.

        Raises ProgramError if it is no firmware, or was made for another version of the model.
        """
        self.path, self.limits = Path(path), limits or Limits.from_environment()
        self._process = Process(self.path, self.limits)
        if not self._process.functions:
            remedy = "register one with TPUKERNEL_FUNC_REGISTER"
            raise ProgramError(str(path), "it has no function that a host can launch", remedy)

    @property
    def functions(self) -> tuple[Function, ...]:
        """The registered functions. Their argument may have any size."""
        return tuple(Function(self._kernel(name), None, bytes) for name in self._process.functions)

    def _kernel(self, name: str) -> Kernel:
        return Kernel(name, lambda tpu, argument: self._run(name, tpu, argument))

    def _run(self, name: str, tpu: Tpu, argument: bytes) -> None:
        """Run a function. Raises MachineError if it fails; the commands before that have run."""
        if not self._process.alive:
            self._process.close()
            self._process = Process(self.path, self.limits)
        replay = Replay(tpu, self._process.sources)
        try:
            with closing(self._process.launch(name, argument, tpu.config)) as frames:
                for kind, payload in frames:
                    if kind == RECORDS:
                        replay.run(payload)
                    else:
                        self._process.answer(replay.answer(payload))
        except MachineError as error:
            raise MachineError(error.where or name, error.reason, error.remedy) from None
        finally:
            tpu.place = ""
