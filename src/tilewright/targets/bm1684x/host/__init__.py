"""The host side of a BM1684X: device handles, device memory, firmware and launches."""

from tilewright.targets.bm1684x.host.firmware import Firmware, function
from tilewright.targets.bm1684x.host.handle import Handle
from tilewright.targets.bm1684x.host.memory import PCIE, SOC, DeviceMemory, HostError, Platform, Status
from tilewright.targets.bm1684x.runtime.kernel import Function

__all__ = [
    "PCIE",
    "SOC",
    "DeviceMemory",
    "Firmware",
    "Function",
    "Handle",
    "HostError",
    "Platform",
    "Status",
    "function",
]
