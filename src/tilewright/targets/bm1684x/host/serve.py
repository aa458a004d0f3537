"""The process behind a handle of a host in C: it holds one device, and answers the requests of native/c/host.c.

The payload of an answer has values, the findings of the launches that have ended, or the reason of a failure. The
process ends when the host closes the connection.

$TILEWRIGHT_BM1684X_PLATFORM is `pcie` or `soc`. $TILEWRIGHT_BM1684X_SET has keys of the configuration, such as
`lanes=4,banks=8`. If $TILEWRIGHT_BM1684X_TRACE names a folder, each launch saves a timeline there. It is made if
it is missing.
"""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

import numpy as np

from tilewright.errors import InputError, TilewrightError, one_of
from tilewright.native import serve
from tilewright.targets.bm1684x import TARGET
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.host.handle import Handle
from tilewright.targets.bm1684x.host.memory import PCIE, SOC, DeviceMemory, HostError, Platform, Status
from tilewright.targets.bm1684x.native.hostlib import REQUESTS
from tilewright.targets.bm1684x.runtime.recording import Launched

PLATFORMS = {platform.name: platform for platform in (PCIE, SOC)}


def settings() -> tuple[Platform, Config]:
    """Return the platform and configuration that the environment names. Raises TilewrightError if one is wrong."""
    name = os.environ.get("TILEWRIGHT_BM1684X_PLATFORM", PCIE.name)
    if name not in PLATFORMS:
        raise InputError("TILEWRIGHT_BM1684X_PLATFORM", f"there is no platform '{name}'", "give pcie or soc")
    given = os.environ.get("TILEWRIGHT_BM1684X_SET", "")
    pairs = dict(pair.partition("=")[::2] for pair in given.split(",") if pair)
    return PLATFORMS[name], TARGET.own(TARGET.config(None, pairs))


class Server(serve.Server):
    """Answers the requests of one host. A method raises HostError, with the status, for a wrong argument."""

    requests = REQUESTS

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self.total = 0  # cycles of all launches that have ended
        self._memories: dict[int, DeviceMemory] = {}
        self._modules: dict[int, dict[str, str]] = {}
        self._numbers: list[str] = []  # names to launch by, by number
        self._launches = count()
        self._told = 0
        self._traces = os.environ.get("TILEWRIGHT_BM1684X_TRACE", "")
        try:
            Path(self._traces).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = f"the folder {self._traces} cannot be made: {error.strerror or error}"
            raise InputError("TILEWRIGHT_BM1684X_TRACE", reason, "give a folder for timelines, or unset it") from None

    def status_of(self, error: TilewrightError) -> int:
        return error.status if isinstance(error, HostError) else Status.FAILURE

    def hello(self) -> None:
        """Answer when the device is there."""

    def malloc(self, size: int) -> int:
        memory = self.handle.malloc(size)
        self._memories[memory.address] = memory
        return memory.address

    def free(self, address: int) -> None:
        """Free memory. Raises HostError PARAM if none begins at the address."""
        memory, offset = self._at(address)
        if offset:
            raise HostError(Status.PARAM, "bm_free_device", f"no memory begins at {address:#x}", "free all of it")
        self.handle.free(memory)
        del self._memories[address]

    def s2d(self, address: int, data: memoryview) -> None:
        memory, offset = self._at(address)
        self.handle.s2d(memory, data, len(data), offset)

    def d2s(self, address: int, size: int) -> bytearray:
        memory, offset = self._at(address)
        data = bytearray(size)
        self.handle.d2s(data, memory, size, offset)
        return data

    def d2d(self, target: int, source: int, size: int) -> None:
        into, to = self._at(target)
        memory, offset = self._at(source)
        self.handle.d2d(into, memory, size, to, offset)

    def fill(self, address: int, size: int, value: int) -> None:
        memory, offset = self._at(address)
        words = np.full(-(-size // 4), value, "<u4").view(np.uint8)
        self.handle.s2d(memory, words[:size], size, offset)

    def firmware(self, path: memoryview) -> None:
        self.handle.load(_path(path), execute=True)  # the host's program names it
        self._modules.clear()

    def module(self, path: memoryview) -> int:
        number = len(self._numbers) + len(self._modules)
        while number in self._modules:
            number += 1
        self._modules[number] = self.handle.add(_path(path), execute=True)
        return number

    def unload(self, number: int) -> None:
        self.handle.remove(self._module(number).values())
        del self._modules[number]

    def function(self, module: int, text: memoryview) -> int:
        """Return the number of a function. Raises HostError PARAM if its module does not have it."""
        names = self._module(module)
        name = str(text, "utf-8", "replace")
        if name not in names:
            remedy = one_of(name, names)
            raise HostError(Status.PARAM, "tpu_kernel_get_function", f"there is no function '{name}'", remedy)
        self._numbers.append(names[name])
        return len(self._numbers) - 1

    def launch(self, length: int, data: memoryview) -> bytes:
        """Launch a function whose name, of `length` bytes, precedes its argument in `data`."""
        return self._launched(str(data[:length], "utf-8", "replace"), bytes(data[length:]), waited=True)

    def launch_async(self, length: int, data: memoryview) -> bytes:
        return self._launched(str(data[:length], "utf-8", "replace"), bytes(data[length:]), waited=False)

    def numbered(self, waited: int, number: int, argument: memoryview) -> bytes:
        """Launch a function by its number. Raises HostError PARAM if there is none."""
        if number >= len(self._numbers):
            raise HostError(Status.PARAM, "launch", f"there is no function {number}", "call tpu_kernel_get_function")
        return self._launched(self._numbers[number], bytes(argument), bool(waited))

    def sync(self) -> bytes:
        self._ended(self.handle.sync())
        return self._findings()

    def cycles(self) -> int:
        return self.total

    def close(self) -> bytes:
        try:
            self._ended(self.handle.sync())
        finally:
            self.handle.free_device()
        return self._findings()

    def _launched(self, name: str, argument: bytes, waited: bool) -> bytes:
        if not waited:
            self.handle.launch_async(name, argument)
            return b""
        self._ended([self.handle.launch_sync(name, argument)])
        return self._findings()

    def _ended(self, launches: list[Launched]) -> None:
        for launched in launches:
            self.total += launched.cycles
            number = next(self._launches)
            if self._traces:
                launched.save_trace(Path(self._traces, f"launch{number}.json"))

    def _findings(self) -> bytes:
        new = self.handle.findings[self._told :]
        self._told += len(new)
        return serve.shown(new).encode()

    def _at(self, address: int) -> tuple[DeviceMemory, int]:
        """Return the memory that holds an address, and the byte of the memory. Raises HostError PARAM if none does."""
        for memory in self._memories.values():
            if memory.address <= address < memory.address + memory.size:
                return memory, address - memory.address
        reason = f"the memory at {address:#x} is freed, or belongs to another handle"
        raise HostError(Status.PARAM, "device memory", reason, "use memory from this handle's bm_malloc_device_byte")

    def _module(self, number: int) -> dict[str, str]:
        if number not in self._modules:
            raise HostError(Status.PARAM, "module", "it is not loaded", "load it with tpu_kernel_load_module_file")
        return self._modules[number]


def _path(path: memoryview) -> Path:
    return Path(os.fsdecode(bytes(path)))


def main(connection: int) -> None:
    """Answer the requests that come from a socket, until it is closed."""
    serve.serve(connection, lambda: Server(Handle(*settings())), Status.PARAM)
