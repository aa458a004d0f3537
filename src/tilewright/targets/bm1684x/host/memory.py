"""The two platforms (PCIe card and SoC), the allocator of device memory, and the vendor's status codes.

A PCIe card has its own DDR, and every copied byte crosses the bus. In an SoC, the chip's A53 cores are the host, and
host and device share one DDR. A copy then stays inside this DDR, and device memory can be mapped into the host's
address space.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from tilewright.errors import MachineError
from tilewright.targets.bm1684x.config import DDR_BASE
from tilewright.targets.bm1684x.values.memory import Memories, Region

#: Alignment of allocations, in bytes.
PAGE = 4096


class Status(IntEnum):
    """The status of a host library call, with the names and numbers of the vendor's header."""

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
    """A failed call, with the status that the vendor's library would return."""

    def __init__(self, status: Status, where: str, reason: str, remedy: str = "") -> None:
        super().__init__(where, reason, remedy)
        self.status = status


class Platform(NamedTuple):
    """The connection of host and device. The times are plausible round numbers, not measurements."""

    name: str
    #: Whether the host can address device memory.
    shares_memory: bool
    #: Size of the device memory that can be allocated, in bytes (an assumption).
    memory_bytes: int
    #: The time before the first byte of a copy, in microseconds.
    copy_latency: float
    #: Bytes per microsecond between host and device, in either direction.
    copy_rate: float
    #: Bytes per microsecond within device memory. This is the write rate of the DMA engine (timing/estimate.py).
    inside_rate: float = 40_977.5

    def microseconds(self, size: int, inside: bool = False) -> float:
        return self.copy_latency + size / (self.inside_rate if inside else self.copy_rate)


PCIE = Platform("pcie", shares_memory=False, memory_bytes=1 << 34, copy_latency=20.0, copy_rate=12_000.0)
SOC = Platform("soc", shares_memory=True, memory_bytes=1 << 32, copy_latency=2.0, copy_rate=4_000.0)


@dataclass(frozen=True, eq=False)
class DeviceMemory:
    """An allocation in one handle's DDR: its bus address and size in bytes. Allocations are compared by identity."""

    address: int
    size: int


class Heap:
    """A first-fit allocator for the DDR of one handle. The allocator is not thread-safe."""

    def __init__(self, memories: Memories, size: int) -> None:
        self._memories = memories
        self._end = DDR_BASE + size
        self._regions: dict[DeviceMemory, Region] = {}

    def allocate(self, size: int) -> DeviceMemory:
        """Return an uninitialised allocation. Raises HostError NOMEM if memory is full, PARAM if `size` is below 1."""
        if size < 1:
            raise HostError(Status.PARAM, "malloc", f"{size} bytes are requested", "give 1 or more")
        address = DDR_BASE
        # First fit: take the lowest gap that is large enough.
        for allocation in sorted(self._regions, key=lambda memory: memory.address):
            if address + size <= allocation.address:
                break
            address = allocation.address + -(-allocation.size // PAGE) * PAGE
        try:
            if address + size > self._end:
                raise MemoryError
            region = self._memories.new_ddr(address, size)
        except MemoryError:
            reason = f"{size} bytes do not fit beside the {len(self._regions)} existing allocations"
            raise HostError(Status.NOMEM, "malloc", reason, "free memory, or use a platform with more") from None
        memory = DeviceMemory(address, size)
        self._regions[memory] = region
        return memory

    def free(self, memory: DeviceMemory) -> None:
        """Free an allocation. Raises HostError PARAM if it is already freed, or belongs to another handle."""
        self._memories.remove(self.region(memory))
        del self._regions[memory]

    def region(self, memory: DeviceMemory) -> Region:
        """Return the memory of an allocation. Raises HostError PARAM if it is freed, or belongs to another handle."""
        if memory not in self._regions:
            reason = f"the memory at {memory.address:#x} is freed, or belongs to another handle"
            raise HostError(Status.PARAM, "device memory", reason, "use memory from this handle's malloc")
        return self._regions[memory]
