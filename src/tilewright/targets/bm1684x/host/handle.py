"""A handle of a device: its memory, copies, firmware and launches.

Launches of one handle run in order, in the handle's own thread. If an asynchronous launch fails, the launches queued
after it do not run, and `sync` (or the next synchronous launch) raises the error. Handles share nothing. All methods
are thread-safe and atomic.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tilewright.array import Array
from tilewright.errors import TilewrightError, one_of
from tilewright.sim.findings import Finding
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.host.firmware import Firmware, NativeFirmware, by_name, load_file, packed
from tilewright.targets.bm1684x.host.memory import PCIE, DeviceMemory, Heap, HostError, Platform, Status
from tilewright.targets.bm1684x.native.replay import share
from tilewright.targets.bm1684x.runtime.kernel import Function, Launched
from tilewright.targets.bm1684x.values.memory import Knobs, Memories

if TYPE_CHECKING:
    from tilewright.debug.session import Session

#: A firmware, the path of a firmware file, or functions of this process.
Code: TypeAlias = Firmware | NativeFirmware | str | Path | Sequence[Function]
#: Only one kernel of this process runs at a time. Parallel kernels would not be faster, because they would share Python
#: and the threads of BLAS.
_RUNNING = threading.Lock()
_IN_KERNEL = threading.local()
_FROM_KERNEL = HostError(Status.NOT_SUPPORTED, "device", "a kernel calls a host function", "call it outside of kernels")


@dataclass(frozen=True)
class CopyRecord:
    """One copy: its kind (s2d, d2s or d2d), its size in bytes, and its time on this platform according to the model."""

    kind: str
    size: int
    microseconds: float


class Handle:
    """A device that the host has requested. Use the handle in a `with` block, or call `free_device`."""

    def __init__(self, platform: Platform = PCIE, config: Config | None = None, knobs: Knobs | None = None) -> None:
        self.platform = platform
        self.config = config or Config()
        self.memories = Memories(self.config, knobs or Knobs())
        #: All copies that used this handle, in order.
        self.copies: list[CopyRecord] = []
        #: The findings of all launches that used this handle.
        self.findings: list[Finding] = []
        self._heap = Heap(self.memories, platform.memory_bytes)
        self._functions: Mapping[str, Function] = {}
        self._lock = threading.RLock()
        self._queue: ThreadPoolExecutor | None = ThreadPoolExecutor(1, "bm1684x")
        self._pending: list[Future[Launched]] = []
        self._failed: HostError | None = None

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self.free_device()
        except HostError:
            if kind is None:  # an exception of the `with` block has priority
                raise

    def free_device(self) -> None:
        """Wait for all launches and release the device. Raises the HostError of a failed launch, as `sync` does."""
        if getattr(_IN_KERNEL, "active", False):
            raise _FROM_KERNEL
        with self._lock:
            queue = self._queue
            self._queue = None
        if queue:
            queue.shutdown(wait=True)
        failed = self._failed
        self._failed = None
        if failed:
            raise failed

    def malloc(self, size: int) -> DeviceMemory:
        """Allocate `size` bytes of device memory. Raises HostError NOMEM if memory is full, PARAM if size < 1."""
        with self._lock:
            self._ready()
            return self._heap.allocate(size)

    def free(self, memory: DeviceMemory) -> None:
        """Free device memory. Raises HostError PARAM if the memory is already free, BUSY while launches are queued."""
        with self._lock:
            self._idle("free")
            self._heap.free(memory)

    def s2d(self, memory: DeviceMemory, source: Any, size: int | None = None, offset: int = 0) -> None:
        """Copy `size` bytes from `source` (an object with a buffer) on the host to byte `offset` of device memory.

        Without `size`, copy up to the end of the device memory. Raises HostError PARAM if either side is too short.
        """
        host = _bytes_of(source)
        with self._lock:
            data, size = self._part(memory, offset, size)
            data[:] = _enough(host, size)
            self._heap.region(memory).written.add(np.array([(offset, offset + size)], np.int64))
            self._copied("s2d", size)

    def d2s(self, target: Any, memory: DeviceMemory, size: int | None = None, offset: int = 0) -> None:
        """Copy `size` bytes from byte `offset` of device memory to `target` (a writable buffer) on the host.

        Without `size`, copy up to the end of the device memory. Raises HostError PARAM if either side is too short, or
        the buffer is read-only.
        """
        host = _bytes_of(target)
        with self._lock:
            data, size = self._part(memory, offset, size)
            part = _enough(host, size)
            if not part.flags.writeable:
                raise HostError(Status.PARAM, "d2s", "the host's buffer is read-only", "give a bytearray or an array")
            part[:] = data
            self._copied("d2s", size)

    def d2d(
        self, target: DeviceMemory, source: DeviceMemory, size: int, target_offset: int = 0, source_offset: int = 0
    ) -> None:
        """Copy `size` bytes in device memory; overlap is allowed. Raises HostError PARAM if a memory is too short."""
        with self._lock:
            data, _ = self._part(source, source_offset, size)
            into, _ = self._part(target, target_offset, size)
            # Source and target may overlap, so the source is copied first. Uninitialised bytes of the source become
            # uninitialised in the target.
            into[:] = data.copy()
            defined = self._heap.region(source).written.part(source_offset, source_offset + size)
            self._heap.region(target).written.replace(target_offset, defined, target_offset + size)
            self._copied("d2d", size)

    def map(self, memory: DeviceMemory) -> Array:
        """Return a view of device memory in the host's address space, uint8. Caches are not modelled.

        From now on, all bytes of the view count as initialised, because the host may write to them at any time. Raises
        HostError NOT_SUPPORTED on a PCIe card.
        """
        if not self.platform.shares_memory:
            reason = f"the host of a {self.platform.name} device cannot address its memory"
            raise HostError(Status.NOT_SUPPORTED, "map", reason, "copy with s2d and d2s")
        with self._lock:
            # The view must stay valid, so the bytes move to a shared file now. A later kernel in C would otherwise move
            # them there.
            if hasattr(os, "memfd_create"):
                share(self._heap.region(memory))
            data = self._part(memory, 0, None)[0]
            self._heap.region(memory).written.add(np.array([(0, memory.size)], np.int64))
            return data

    def load(self, firmware: Code, execute: bool = False) -> tuple[str, ...]:
        """Replace the device's functions by the functions in `firmware`, and return their names.

        Firmware is code, either in Python or compiled from C, and needs `execute`. Raises HostError DATA if the file is
        damaged, PARAM if `firmware` needs `execute`, BUSY while launches are queued.
        """
        functions = _functions(firmware, execute)
        with self._lock:
            self._idle("load")
            self._functions = functions
        return tuple(functions)

    def add(self, firmware: Code, execute: bool = False) -> dict[str, str]:
        """Add functions as `load` does, but keep the loaded functions.

        Return a dict from names to launch names. The launch name of a function is its own name, or a new name if its
        own name is already in use. Raises HostError as `load` does.
        """
        functions = _functions(firmware, execute)
        with self._lock:
            self._idle("load")
            names = {}
            for name in functions:
                others = (f"{name} ({number})" for number in count(2))
                names[name] = next(free for free in chain([name], others) if free not in self._functions)
            self._functions = {**self._functions, **{names[name]: functions[name] for name in functions}}
        return names

    def remove(self, names: Collection[str]) -> None:
        """Remove functions by the names that `add` returned. Raises HostError BUSY while launches are queued."""
        with self._lock:
            self._idle("unload")
            self._functions = {name: kept for name, kept in self._functions.items() if name not in names}

    def launch_async(self, name: str, argument: Any = b"", size: int | None = None) -> None:
        """Queue the launch of a function, with a copy of the first `size` bytes of its argument (None: all bytes).

        Raises HostError PARAM if the function is unknown or the size is wrong. `sync` raises the errors of the launch.
        """
        self._submit(name, argument, size, waited=False)

    def launch_sync(self, name: str, argument: Any = b"", size: int | None = None) -> Launched:
        """Run a function after all queued launches, and return its outcome. Raises HostError if any launch failed."""
        future = self._submit(name, argument, size, waited=True)
        wait([future])
        with self._lock:
            if future in self._pending:  # unless `sync` in another thread has removed it
                self._pending.remove(future)
        return future.result()

    def debug(self, name: str, argument: Any = b"") -> Session:
        """Run a function after all queued launches, and return a debugging session of its launch (docs/debug.md).

        If the machine refuses a command, the session ends at this command. Raises HostError as `launch_sync` does.
        """
        from tilewright.targets.bm1684x.debug.kernels import debug

        self.sync()
        function, raw = self._function(name, argument, None)
        with _running(name):
            session = debug(function.kernel, self.memories, function.unpacked(raw))
        return session

    def sync(self) -> list[Launched]:
        """Wait for all launches, and return their outcomes. Raises the HostError of the first one that failed."""
        with self._lock:
            self._ready()
            pending = self._pending
            self._pending = []
        wait(pending)
        with self._lock:
            failed = self._failed
            self._failed = None
        if failed:
            raise failed
        return [future.result() for future in pending]

    def _submit(self, name: str, argument: Any, size: int | None, waited: bool) -> Future[Launched]:
        with self._lock:
            function, raw = self._function(name, argument, size)
            future = self._ready().submit(self._run, function, raw, waited)
            self._pending.append(future)
            return future

    def _function(self, name: str, argument: Any, size: int | None) -> tuple[Function, bytes]:
        try:
            raw = packed(argument)
        except TilewrightError as error:
            raise _as_status(Status.PARAM, error) from error
        if size is not None and not 0 <= size <= len(raw):
            raise HostError(Status.PARAM, name, f"the argument has {len(raw)} bytes, not {size}", "leave size out")
        raw = raw[:size]
        self._ready()
        function = self._functions.get(name)
        if function is None:
            remedy = one_of(name, self._functions) if self._functions else "load firmware first"
            raise HostError(Status.PARAM, "launch", f"there is no function '{name}'", remedy)
        if function.size not in (None, len(raw)):
            reason = f"its argument has {function.size} bytes, {len(raw)} are given"
            raise HostError(Status.PARAM, name, reason, "pack the same struct on both sides")
        return function, raw

    def _run(self, function: Function, raw: bytes, waited: bool) -> Launched:
        """Run a function in the handle's thread. `launch_sync` (if `waited`) or `sync` raises the function's error."""
        # A launch may depend on the results of earlier launches, so it does not run after a failed launch.
        if failed := self._failed:
            reason = f"it did not run: {failed}"
            raise HostError(failed.status, function.name, reason, "call sync, then launch it again")
        try:
            with _running(function.name):
                launched = function.kernel.launch(self.memories, function.unpacked(raw))
        except HostError as error:
            self._failed = self._failed if waited else error
            raise
        self.findings += [finding.inside(function.name) for finding in launched.findings]
        return launched

    def _ready(self) -> ThreadPoolExecutor:
        if getattr(_IN_KERNEL, "active", False):
            raise _FROM_KERNEL
        if self._queue is None:
            raise HostError(Status.DEVNOTREADY, "device", "its handle is freed", "request a new handle")
        return self._queue

    def _idle(self, what: str) -> None:
        self._ready()
        if not all(future.done() for future in self._pending):
            raise HostError(Status.BUSY, what, "launches are queued", "call sync first")

    def _part(self, memory: DeviceMemory, offset: int, size: int | None) -> tuple[Array, int]:
        self._ready()
        data = self._heap.region(memory).data
        size = memory.size - offset if size is None else size
        if offset < 0 or size < 0 or offset + size > memory.size:
            reason = f"bytes {offset}..{offset + size} are outside of the {memory.size} bytes of the device memory"
            raise HostError(Status.PARAM, "copy", reason, "stay within the memory")
        return data[offset : offset + size], size

    def _copied(self, kind: str, size: int) -> None:
        self.copies.append(CopyRecord(kind, size, self.platform.microseconds(size, kind == "d2d")))


@contextmanager
def _running(name: str) -> Iterator[None]:
    """Run a kernel in a `with` block. An error of the kernel becomes a HostError FAILURE that names the kernel."""
    _IN_KERNEL.active = True
    try:
        with _RUNNING:
            yield
    except (Exception, SystemExit) as error:
        raise _as_status(Status.FAILURE, error, name) from error
    finally:
        _IN_KERNEL.active = False


def _functions(firmware: Code, execute: bool) -> dict[str, Function]:
    status = Status.DATA
    try:
        code = load_file(firmware) if isinstance(firmware, str | Path) else firmware
        if isinstance(code, Firmware | NativeFirmware):
            status = Status.DATA if execute else Status.PARAM
            return code.functions(execute)
        return by_name(code)
    except TilewrightError as error:
        raise _as_status(status, error) from error


def _bytes_of(host: Any) -> Array:
    try:
        if isinstance(host, np.ndarray):
            if not host.flags.c_contiguous:
                raise ValueError("its elements are not contiguous")
            host = host.reshape(-1).view(np.uint8)
        return np.frombuffer(host, np.uint8)
    except (TypeError, ValueError, BufferError) as error:
        reason = f"a {type(host).__name__} is not a contiguous buffer: {error}"
        raise HostError(Status.PARAM, "copy", reason, "give bytes, a bytearray or a C-ordered array") from None


def _enough(host: Array, size: int) -> Array:
    if len(host) < size:
        reason = f"the host's buffer has {len(host)} bytes, {size} are needed"
        raise HostError(Status.PARAM, "copy", reason, "give a larger buffer")
    return host[:size]


def _as_status(status: Status, error: BaseException, where: str = "") -> HostError:
    if isinstance(error, TilewrightError):
        place = ", ".join(dict.fromkeys(part for part in (where, error.where) if part))
        return HostError(status, place, error.reason, error.remedy)
    return HostError(status, where, f"{type(error).__name__}: {error}")
