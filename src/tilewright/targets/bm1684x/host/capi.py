"""The vendor's host functions by their C names: thin, each returns a Status.

What C returns through a pointer comes back beside the status: `status, handle = bm_dev_request(0)`. The sentence of the
last call of this thread that failed is `last_error()`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tilewright.array import Array
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.host.handle import Handle
from tilewright.targets.bm1684x.host.memory import PCIE, DeviceMemory, HostError, Platform, Status

T = TypeVar("T")
BM_SUCCESS = Status.SUCCESS
_LAST = threading.local()


def last_error() -> str:
    """What was wrong in this thread's last call that failed; empty without any."""
    return getattr(_LAST, "text", "")


def bm_dev_request(devid: int, platform: Platform = PCIE, config: Config | None = None) -> tuple[Status, Handle | None]:
    """A handle. Any device number below 256 is there; each handle is a device of its own."""
    if not 0 <= devid < 256:
        _LAST.text = f"bm_dev_request: there is no device {devid}; give 0..255"
        return Status.PARAM, None
    return _given(lambda: Handle(platform, config))


def bm_dev_free(handle: Handle) -> Status:
    """Gives the device back when its launches have ended."""
    return _status(handle.free_device)


def bm_malloc_device_byte(handle: Handle, size: int) -> tuple[Status, DeviceMemory | None]:
    """Device memory."""
    return _given(lambda: handle.malloc(size))


def bm_free_device(handle: Handle, memory: DeviceMemory) -> Status:
    """Takes device memory back."""
    return _status(lambda: handle.free(memory))


def bm_mem_get_device_addr(memory: DeviceMemory) -> int:
    """The bus address, as kernels take it."""
    return memory.address


def bm_mem_get_device_size(memory: DeviceMemory) -> int:
    """Bytes."""
    return memory.size


def bm_memcpy_s2d(handle: Handle, dst: DeviceMemory, src: Any, size: int | None = None, offset: int = 0) -> Status:
    """Device memory from the host: all of it, its first `size` bytes, or those from `offset` in it on."""
    return _status(lambda: handle.s2d(dst, src, size, offset))


def bm_memcpy_d2s(handle: Handle, dst: Any, src: DeviceMemory, size: int | None = None, offset: int = 0) -> Status:
    """Device memory to the host: all of it, its first `size` bytes, or those from `offset` in it on."""
    return _status(lambda: handle.d2s(dst, src, size, offset))


bm_memcpy_s2d_partial = bm_memcpy_s2d_partial_offset = bm_memcpy_s2d
bm_memcpy_d2s_partial = bm_memcpy_d2s_partial_offset = bm_memcpy_d2s


def bm_memcpy_d2d_byte(
    handle: Handle, dst: DeviceMemory, dst_offset: int, src: DeviceMemory, src_offset: int, size: int
) -> Status:
    """Within device memory."""
    return _status(lambda: handle.d2d(dst, src, size, dst_offset, src_offset))


def bm_mem_mmap_device_mem(handle: Handle, memory: DeviceMemory) -> tuple[Status, Array | None]:
    """Device memory as an array of the host; SoC mode only."""
    return _given(lambda: handle.map(memory))


def tpu_kernel_load_firmware(handle: Handle, path: str | Path, execute: bool = False) -> Status:
    """Replaces the device's functions by a file's, whose Python runs only with `execute`."""
    return _status(lambda: handle.load(path, execute))


def tpu_kernel_launch_sync(handle: Handle, func_name: str, args: Any, size: int) -> Status:
    """Runs a function with a copy of `size` bytes, and waits."""
    return _status(lambda: handle.launch_sync(func_name, args, size))


def tpu_kernel_launch_async(handle: Handle, func_name: str, args: Any, size: int) -> Status:
    """Queues a function with a copy of `size` bytes."""
    return _status(lambda: handle.launch_async(func_name, args, size))


def tpu_kernel_sync(handle: Handle) -> Status:
    """Waits for all launches; the status of the first that failed."""
    return _status(handle.sync)


def _given(call: Callable[[], T]) -> tuple[Status, T | None]:
    try:
        return Status.SUCCESS, call()
    except HostError as error:
        _LAST.text = str(error)
        return error.status, None


def _status(call: Callable[[], object]) -> Status:
    return _given(call)[0]
