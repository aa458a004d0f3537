"""Where the host sits: a server with the device on a PCIe card, or the A53 cores on the chip itself.

On a card the device's DDR is the card's own, and every byte crosses the bus. On the chip (SoC) host and device share
one DDR: a copy stays inside it, and device memory can be mapped into the host's address space, which copies nothing.
"""

from __future__ import annotations

from typing import NamedTuple


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
