"""The host's side: devices, their memory, firmware, launches."""

from tilewright.targets.bm1684x.host.firmware import Firmware
from tilewright.targets.bm1684x.host.function import Function, function
from tilewright.targets.bm1684x.host.handle import Handle
from tilewright.targets.bm1684x.host.heap import DeviceMemory
from tilewright.targets.bm1684x.host.platform import PCIE, SOC, Platform
from tilewright.targets.bm1684x.host.status import HostError, Status

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
