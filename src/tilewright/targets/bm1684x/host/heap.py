"""Device memory, handed out and taken back."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

from tilewright.targets.bm1684x.config import DDR_BASE
from tilewright.targets.bm1684x.host.status import HostError, Status
from tilewright.targets.bm1684x.values.memory import Memories, Region

#: Pieces begin at multiples of so many bytes.
PAGE = 4096


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
        self._taken: list[tuple[int, int]] = []  # address, end; ascending

    def allocate(self, size: int) -> DeviceMemory:
        """A new piece; its values are undefined. Raises HostError NOMEM, or PARAM for a size below 1."""
        if size < 1:
            raise HostError(Status.PARAM, "malloc", f"{size} bytes are asked for", "give 1 or more")
        address = DDR_BASE
        for taken, end in self._taken:
            if address + size <= taken:
                break
            address = end
        try:
            if address + size > self._end:
                raise MemoryError
            region = self._memories.new_ddr(address, size)
        except MemoryError:
            reason = f"{size} bytes do not fit beside the {len(self._taken)} pieces that are there"
            raise HostError(Status.NOMEM, "malloc", reason, "free some, or take a platform with more") from None
        memory = DeviceMemory(address, size)
        self._regions[memory] = region
        insort(self._taken, (address, address + -(-size // PAGE) * PAGE))
        return memory

    def free(self, memory: DeviceMemory) -> None:
        """Take it back. Raises HostError PARAM for what is not in use here."""
        region = self.region(memory)
        self._memories.remove(region)
        del self._regions[memory]
        self._taken = [piece for piece in self._taken if piece[0] != memory.address]

    def region(self, memory: DeviceMemory) -> Region:
        """Its bytes. Raises HostError PARAM for memory of another handle, or freed."""
        if memory not in self._regions:
            reason = f"the memory at {memory.address:#x} is freed, or another handle's"
            raise HostError(Status.PARAM, "device memory", reason, "use what this handle's malloc gave")
        return self._regions[memory]
