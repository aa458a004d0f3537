"""The process behind a handle of a host in C. It simulates one device, and answers the requests of native/c/host.c.

The payload of an answer has values, the findings of completed launches, or the reason for a failure. The process ends
when the host closes the connection.

$TILEWRIGHT_BM1684X_PLATFORM is `pcie` or `soc`. $TILEWRIGHT_BM1684X_SET changes the configuration, for example
`lanes=4,banks=8`. If $TILEWRIGHT_BM1684X_TRACE names a folder, each launch saves a timeline there. The folder is
created if it is missing.
"""

from __future__ import annotations

import os
import struct
from itertools import count
from pathlib import Path

import numpy as np

from tilewright.errors import InputError, TilewrightError, one_of
from tilewright.native import serve
from tilewright.targets.bm1684x import TARGET
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.host.handle import Handle
from tilewright.targets.bm1684x.host.memory import PCIE, SOC, DeviceMemory, HostError, Platform, Status
from tilewright.targets.bm1684x.native.build import REQUESTS
from tilewright.targets.bm1684x.runtime.recording import Launched

PLATFORMS = {platform.name: platform for platform in (PCIE, SOC)}


def settings() -> tuple[Platform, Config]:
    """Return the platform and the configuration from the environment. Raises TilewrightError for a wrong value."""
    name = os.environ.get("TILEWRIGHT_BM1684X_PLATFORM", PCIE.name)
    if name not in PLATFORMS:
        raise InputError("TILEWRIGHT_BM1684X_PLATFORM", f"there is no platform '{name}'", "give pcie or soc")
    text = os.environ.get("TILEWRIGHT_BM1684X_SET", "")
    pairs = dict(pair.partition("=")[::2] for pair in text.split(",") if pair)
    return PLATFORMS[name], TARGET.config(None, pairs)


class Server(serve.Server):
    """Answers the requests of one host. A method raises HostError, with a status, for a wrong argument."""

    requests = REQUESTS

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self.total = 0  # cycles of all completed launches
        self._memories: dict[int, DeviceMemory] = {}
        self._modules: dict[int, dict[str, str]] = {}
        self._numbers: list[str] = []  # the launch name of each numbered function
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

    def hello(self, _: bytes) -> bytes:
        return b""

    def malloc(self, payload: bytes) -> bytes:
        memory = self.handle.malloc(*struct.unpack("<Q", payload))
        self._memories[memory.address] = memory
        return struct.pack("<Q", memory.address)

    def free(self, payload: bytes) -> bytes:
        """Free the memory that begins at an address. Raises HostError PARAM if no memory begins there."""
        address = struct.unpack("<Q", payload)[0]
        memory, offset = self._at(address)
        if offset:
            raise HostError(Status.PARAM, "bm_free_device", f"no memory begins at {address:#x}", "free all of it")
        self.handle.free(memory)
        del self._memories[address]
        return b""

    def s2d(self, payload: bytes) -> bytes:
        memory, offset = self._at(struct.unpack_from("<Q", payload)[0])
        self.handle.s2d(memory, memoryview(payload)[8:], len(payload) - 8, offset)
        return b""

    def d2s(self, payload: bytes) -> bytearray:
        address, size = struct.unpack("<2Q", payload)
        memory, offset = self._at(address)
        data = bytearray(size)
        self.handle.d2s(data, memory, size, offset)
        return data

    def d2d(self, payload: bytes) -> bytes:
        target, source, size = struct.unpack("<3Q", payload)
        into, to = self._at(target)
        memory, offset = self._at(source)
        self.handle.d2d(into, memory, size, to, offset)
        return b""

    def fill(self, payload: bytes) -> bytes:
        address, size, value = struct.unpack("<3Q", payload)
        memory, offset = self._at(address)
        words = np.full(-(-size // 4), value, "<u4").view(np.uint8)
        self.handle.s2d(memory, words[:size], size, offset)
        return b""

    def firmware(self, payload: bytes) -> bytes:
        self.handle.load(os.fsdecode(payload), execute=True)  # the host's own program chose the file
        self._modules.clear()
        return b""

    def module(self, payload: bytes) -> bytes:
        number = len(self._numbers) + len(self._modules)
        while number in self._modules:
            number += 1
        self._modules[number] = self.handle.add(os.fsdecode(payload), execute=True)
        return struct.pack("<I", number)

    def unload(self, payload: bytes) -> bytes:
        (number,) = struct.unpack("<I", payload)
        self.handle.remove(self._module(number).values())
        del self._modules[number]
        return b""

    def function(self, payload: bytes) -> bytes:
        """Return the number of a function. Raises HostError PARAM if the module does not have the function."""
        names = self._module(struct.unpack_from("<I", payload)[0])
        name = payload[4:].decode(errors="replace")
        if name not in names:
            remedy = one_of(name, names)
            raise HostError(Status.PARAM, "tpu_kernel_get_function", f"there is no function '{name}'", remedy)
        self._numbers.append(names[name])
        return struct.pack("<I", len(self._numbers) - 1)

    def launch(self, payload: bytes, waited: bool = True) -> bytes:
        end = 4 + struct.unpack_from("<I", payload)[0]
        return self._launched(payload[4:end].decode(errors="replace"), payload[end:], waited)

    def launch_async(self, payload: bytes) -> bytes:
        return self.launch(payload, waited=False)

    def numbered(self, payload: bytes) -> bytes:
        """Launch a function by its number. Raises HostError PARAM for an unknown number."""
        waited, number = struct.unpack_from("<2I", payload)
        if number >= len(self._numbers):
            raise HostError(Status.PARAM, "launch", f"there is no function {number}", "call tpu_kernel_get_function")
        return self._launched(self._numbers[number], payload[8:], bool(waited))

    def sync(self, _: bytes) -> bytes:
        self._ended(self.handle.sync())
        return self._findings()

    def cycles(self, _: bytes) -> bytes:
        return struct.pack("<Q", self.total)

    def close(self, _: bytes) -> bytes:
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
        for memory in self._memories.values():
            if memory.address <= address < memory.address + memory.size:
                return memory, address - memory.address
        reason = f"the memory at {address:#x} is freed, or belongs to another handle"
        raise HostError(Status.PARAM, "device memory", reason, "use memory from this handle's bm_malloc_device_byte")

    def _module(self, number: int) -> dict[str, str]:
        if number not in self._modules:
            raise HostError(Status.PARAM, "module", "it is not loaded", "load it with tpu_kernel_load_module_file")
        return self._modules[number]


def main(connection: int) -> None:
    """Answer the requests from a socket until the host closes it."""
    serve.serve(connection, lambda: Server(Handle(*settings())), Status.PARAM)
