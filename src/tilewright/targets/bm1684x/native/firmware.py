"""Firmware in C: the functions of a library from `build.firmware`, which hosts can launch.

The library runs in a separate process, which starts when the firmware is loaded. Global variables of the library keep
their values between launches. If a launch fails, the process ends, and the next launch starts a new process. The
process does not simulate the machine. It sends frames, each with a kind, a size and a payload (native/c/recorder.c).
The library is native code with all rights of the user.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tilewright.errors import MachineError, ProgramError
from tilewright.files import regular
from tilewright.targets.bm1684x.config import L2_BASE, LOCAL_BASE, Config
from tilewright.targets.bm1684x.native.build import fingerprint
from tilewright.targets.bm1684x.native.replay import Replay
from tilewright.targets.bm1684x.runtime.kernel import Function, Kernel, Tpu

#: The kinds of frames: name of a function, recorded calls, query, end of a launch, and two kinds of failures.
NAMES, RECORDS, QUERY, DONE, FAILED, DIED = (bytes([letter]) for letter in b"NRQEFX")
#: Time limits in seconds: for the process to start, and to answer a signal.
START = 60.0
ANSWER = 2.0


class Limits(NamedTuple):
    """Limits of a launch: how many seconds its process may be silent, and the number of recorded calls."""

    seconds: float = 10.0
    calls: int = 1 << 20

    @classmethod
    def from_environment(cls) -> Limits:
        """Return the limits in $TILEWRIGHT_KERNEL_SECONDS and $TILEWRIGHT_KERNEL_CALLS, or the default limits.

        Raises ProgramError if a value is not a positive number.
        """
        values = []
        for name, usual in zip(("SECONDS", "CALLS"), cls(), strict=True):
            text = os.environ.get(f"TILEWRIGHT_KERNEL_{name}", "")
            try:
                value = float(text or usual)
                if not 0 < value < 1 << 31:
                    raise ValueError
            except ValueError:
                raise ProgramError(
                    f"TILEWRIGHT_KERNEL_{name}", f"'{text}' is not a valid limit", "give a number > 0"
                ) from None
            values.append(value)
        return cls(values[0], int(values[1]))


class Process:
    """A running process with one firmware. The process ends with `close`, or when the object is garbage-collected."""

    def __init__(self, library: Path, limits: Limits) -> None:
        """Start the process and load the library.

        The attribute `functions` has the names that the library registers. Raises ProgramError if the library is not
        firmware for this simulator.
        """
        self.library = library
        self.limits = limits
        self.sources: dict[int, str] = {}  # source files by number; each name is sent once
        # The standard streams are not used, because the kernel may print.
        theirs, self._to = os.pipe()
        self._from, ours = os.pipe()
        command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("runner.py")), str(library.resolve())]
        self._process = subprocess.Popen(
            [*command, fingerprint(), str(theirs), str(ours)], pass_fds=(theirs, ours), stdin=subprocess.DEVNULL
        )
        os.close(theirs)
        os.close(ours)
        try:
            self.functions = tuple(text.decode() for kind, text in self._frames(START) if kind == NAMES)
        except MachineError as error:
            self.close()
            raise ProgramError(str(library), error.reason, error.remedy) from None

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def launch(self, name: str, argument: bytes, config: Config) -> Generator[tuple[bytes, bytes], None, None]:
        """Run a function, and yield its frames of the kinds RECORDS and QUERY.

        The caller must answer a QUERY before it takes the next frame. Raises MachineError if the function fails,
        crashes or does not end; by then, all calls before the failure have been yielded.
        """
        sizes = (config.lanes, config.banks, config.bank_bytes, config.eu_bytes, config.l2_bytes, LOCAL_BASE, L2_BASE)
        raw = name.encode()
        self._send(struct.pack("<10I", *sizes, self.limits.calls, len(raw), len(argument)) + raw + argument)
        try:
            for kind, payload in self._frames(self.limits.seconds):
                if kind in (RECORDS, QUERY):
                    yield kind, payload
                elif kind == DONE and (status := struct.unpack("<i", payload)[0]):
                    raise MachineError("", f"it returns the status {status}")
        except GeneratorExit:
            self.close()  # the reader has failed: discard the remaining frames
            raise

    def answer(self, value: bytes) -> None:
        self._send(struct.pack("<I", len(value)) + value)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for end in (self._from, self._to):
            if end >= 0:
                os.close(end)
        self._from = self._to = -1

    def __del__(self) -> None:
        if getattr(self, "_from", -1) >= 0:
            self.close()

    def _send(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._to, view) :]
        except BrokenPipeError:
            raise MachineError("", self._ended()) from None

    def _frames(self, seconds: float) -> Generator[tuple[bytes, bytes], None, None]:
        while True:
            head = self._read(5, seconds)
            kind = head[:1]
            size = int.from_bytes(head[1:], "little")
            payload = self._read(size, seconds)
            if kind in (FAILED, DIED):
                self._process.wait()
                text = payload.decode(errors="replace")
                raise MachineError("", text, _LONGER if text.startswith(_ENDLESS) else "")
            yield kind, payload
            if kind == DONE:
                return

    def _read(self, size: int, seconds: float) -> bytes:
        """Return the next `size` bytes. The time limit applies to each pause between bytes."""
        data = bytearray()
        asked = False
        poll = select.poll()
        poll.register(self._from, select.POLLIN)
        end = time.monotonic() + seconds
        while len(data) < size:
            ready = poll.poll(1000 * max(0.0, end - time.monotonic()))
            # The process has not answered the signal: it is blocked where no signal handler can run.
            if not ready and asked:
                self._process.kill()
                raise MachineError("", _ENDLESS, _LONGER)
            if not ready:  # the signal makes the process report its position
                self._process.send_signal(signal.SIGALRM)
                asked = True
                end = time.monotonic() + ANSWER
                continue
            part = os.read(self._from, min(1 << 20, size - len(data)))
            if not part:
                raise MachineError("", self._ended())
            data += part
        return bytes(data)

    def _ended(self) -> str:
        status = self._process.wait()
        if status < 0:
            return f"its process was ended by the signal {signal.Signals(-status).name}"
        return f"it ended its process, with the status {status}"


_ENDLESS = "it does not end within its time limit"
_LONGER = "raise $TILEWRIGHT_KERNEL_SECONDS if it only needs longer"


#: The first bytes of shared libraries: ELF, and 64-bit Mach-O.
MAGIC = (b"\x7fELF", b"\xcf\xfa\xed\xfe")


def is_library(path: str | Path) -> bool:
    """Return whether a file has the first bytes of a shared library. Raises ProgramError if it cannot be read."""
    try:
        with regular(path, ProgramError).open("rb") as file:
            return file.read(4) in MAGIC
    except OSError as error:
        raise ProgramError(str(path), f"cannot be read: {error.strerror or error}") from None


class Library:
    """A loaded firmware in C."""

    def __init__(self, path: str | Path, limits: Limits | None = None) -> None:
        """Load the library, which runs its constructors.

        By default, environment variables give the limits. Raises ProgramError if the library is not firmware, or was
        made for another version of this simulator.
        """
        self.path = Path(path)
        self.limits = limits or Limits.from_environment()
        self._process = Process(self.path, self.limits)
        if not self._process.functions:
            remedy = "register one with TPUKERNEL_FUNC_REGISTER"
            raise ProgramError(str(path), "it has no function that a host can launch", remedy)

    @property
    def functions(self) -> tuple[Function, ...]:
        """The registered functions, which accept arguments of any size."""
        return tuple(Function(self._kernel(name), None, bytes) for name in self._process.functions)

    def _kernel(self, name: str) -> Kernel:
        return Kernel(name, lambda tpu, argument: self._run(name, tpu, argument))

    def _run(self, name: str, tpu: Tpu, argument: bytes) -> None:
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
