"""Where the host sits, the device memory that it hands out and takes back, and the vendor's status codes.

On a PCIe card the device's DDR is the card's own, and every byte crosses the bus. On the chip (SoC, the A53 cores) host
and device share one DDR: a copy stays inside it, and device memory can be mapped into the host's address space.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from tilewright.errors import MachineError
from tilewright.targets.bm1684x.config import DDR_BASE
from tilewright.targets.bm1684x.values.memory import Memories, Region

#: Pieces begin at multiples of so many bytes.
PAGE = 4096


class Status(IntEnum):
    """What a call of the host library returns; the vendor's header."""

    SUCCESS = 0
    DEVNOTREADY = 1
    FAILURE = 2
    TIMEOUT = 3
    PARAM = 4
    NOMEM = 5
    DATA = 6
    BUSY = 7
    NOFEATURE = 8
    NOT_SUPPORTED = 9


class HostError(MachineError):
    """A call that failed, with the status that the vendor's library gives for it."""

    def __init__(self, status: Status, where: str, reason: str, remedy: str = "") -> None:
        super().__init__(where, reason, remedy)
        self.status = status


class Platform(NamedTuple):
    """One of the two modes. The times are a model of plausible round numbers, measured nowhere."""

    name: str
    #: Whether the host can address device memory.
    shares_memory: bool
    #: Bytes of device memory that can be allocated: an assumption.
    memory_bytes: int
    #: Microseconds that a copy between host and device needs before its first byte.
    copy_latency: float
    #: Bytes a microsecond between host and device, either way.
    copy_rate: float
    #: Bytes a microsecond from device memory to device memory: DMA, as fast as it writes (timing/estimate.py).
    inside_rate: float = 40_977.5

    def microseconds(self, size: int, inside: bool = False) -> float:
        """What a copy of `size` bytes costs; `inside` the device's memory, or between host and device."""
        return self.copy_latency + size / (self.inside_rate if inside else self.copy_rate)


PCIE = Platform("pcie", shares_memory=False, memory_bytes=1 << 34, copy_latency=20.0, copy_rate=12_000.0)
SOC = Platform("soc", shares_memory=True, memory_bytes=1 << 32, copy_latency=2.0, copy_rate=4_000.0)


@dataclass(frozen=True, eq=False)
class DeviceMemory:
    """A piece of one handle's DDR: its bus address, and its size in bytes. It is known by identity."""

    address: int
    size: int


class Heap:
    """The DDR of one handle, first fit. Not thread-safe by itself."""

    def __init__(self, memories: Memories, size: int) -> None:
        self._memories, self._end = memories, DDR_BASE + size
        self._regions: dict[DeviceMemory, Region] = {}

    def allocate(self, size: int) -> DeviceMemory:
        """A new piece; its values are undefined. Raises HostError NOMEM, or PARAM for a size below 1."""
        if size < 1:
            raise HostError(Status.PARAM, "malloc", f"{size} bytes are asked for", "give 1 or more")
        address = DDR_BASE
        for taken in sorted(self._regions, key=lambda memory: memory.address):
            if address + size <= taken.address:
                break
            address = taken.address + -(-taken.size // PAGE) * PAGE
        try:
            if address + size > self._end:
                raise MemoryError
            region = self._memories.new_ddr(address, size)
        except MemoryError:
            reason = f"{size} bytes do not fit beside the {len(self._regions)} pieces that are there"
            raise HostError(Status.NOMEM, "malloc", reason, "free some, or take a platform with more") from None
        memory = DeviceMemory(address, size)
        self._regions[memory] = region
        return memory

    def free(self, memory: DeviceMemory) -> None:
        """Take it back. Raises HostError PARAM for what is not in use here."""
        self._memories.remove(self.region(memory))
        del self._regions[memory]

    def region(self, memory: DeviceMemory) -> Region:
        """Its bytes. Raises HostError PARAM for memory of another handle, or freed."""
        if memory not in self._regions:
            reason = f"the memory at {memory.address:#x} is freed, or another handle's"
            raise HostError(Status.PARAM, "device memory", reason, "use what this handle's malloc gave")
        return self._regions[memory]
