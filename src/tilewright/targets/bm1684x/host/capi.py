"""The vendor's host functions by their C names: thin wrappers of the methods of `Handle`.

The parameters of a function are the handle, then the parameters of the wrapped method. A function that can fail returns
a Status. If the C function returns a value through a pointer, the Python function returns the status and the value:
`status, handle = bm_dev_request(0)`. `last_error()` returns the message of the last failed call of this thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.host.handle import Handle
from tilewright.targets.bm1684x.host.memory import PCIE, DeviceMemory, HostError, Platform, Status

P = ParamSpec("P")
T = TypeVar("T")
BM_SUCCESS = Status.SUCCESS
_LAST = threading.local()


def last_error() -> str:
    """Return the message of this thread's last failed call, or "" if no call has failed."""
    return getattr(_LAST, "text", "")


def _giving(method: Callable[P, T]) -> Callable[P, tuple[Status, T | None]]:
    """Wrap `method` in a function that catches HostError, and returns the status and the method's result."""

    def call(*arguments: P.args, **named: P.kwargs) -> tuple[Status, T | None]:
        try:
            return Status.SUCCESS, method(*arguments, **named)
        except HostError as error:
            _LAST.text = str(error)
            return error.status, None

    return call


def _status(method: Callable[P, object]) -> Callable[P, Status]:
    giving = _giving(method)

    def call(*arguments: P.args, **named: P.kwargs) -> Status:
        return giving(*arguments, **named)[0]

    return call


def bm_dev_request(devid: int, platform: Platform = PCIE, config: Config | None = None) -> tuple[Status, Handle | None]:
    """Return the status and a handle of device `devid` (0..255). Every handle is a separate simulated device."""
    if not 0 <= devid < 256:
        _LAST.text = f"bm_dev_request: there is no device {devid}; give 0..255"
        return Status.PARAM, None
    return _giving(Handle)(platform, config)


def bm_mem_get_device_addr(memory: DeviceMemory) -> int:
    """Return the bus address of an allocation in device memory, for the argument of a kernel."""
    return memory.address


def bm_mem_get_device_size(memory: DeviceMemory) -> int:
    return memory.size


def bm_memcpy_d2d_byte(
    handle: Handle, dst: DeviceMemory, dst_offset: int, src: DeviceMemory, src_offset: int, size: int
) -> Status:
    """Copy `size` bytes within device memory, and return the status."""
    return _status(handle.d2d)(dst, src, size, dst_offset, src_offset)


bm_dev_free = _status(Handle.free_device)
bm_malloc_device_byte = _giving(Handle.malloc)
bm_free_device = _status(Handle.free)
#: In C, one function copies all of an allocation, one copies its first bytes, and one copies bytes from an offset on.
#: In Python, one method with default arguments does all three.
bm_memcpy_s2d = bm_memcpy_s2d_partial = bm_memcpy_s2d_partial_offset = _status(Handle.s2d)
bm_memcpy_d2s = bm_memcpy_d2s_partial = bm_memcpy_d2s_partial_offset = _status(Handle.d2s)
bm_mem_mmap_device_mem = _giving(Handle.map)
tpu_kernel_load_firmware = _status(Handle.load)
tpu_kernel_launch_sync = _status(Handle.launch_sync)
tpu_kernel_launch_async = _status(Handle.launch_async)
tpu_kernel_sync = _status(Handle.sync)
