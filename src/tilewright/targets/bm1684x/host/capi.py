"""The vendor's host functions by their C names: thin, each returns a Status.

Their parameters are the handle and those of the method of `Handle` that does the work. What C returns through a pointer
comes back beside the status: `status, handle = bm_dev_request(0)`. The sentence of the last call of this thread that
failed is `last_error()`.
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
    """What was wrong in this thread's last call that failed; empty without any."""
    return getattr(_LAST, "text", "")


def _giving(method: Callable[P, T]) -> Callable[P, tuple[Status, T | None]]:
    """The call as C has it: its status, and what it gives."""

    def call(*arguments: P.args, **named: P.kwargs) -> tuple[Status, T | None]:
        try:
            return Status.SUCCESS, method(*arguments, **named)
        except HostError as error:
            _LAST.text = str(error)
            return error.status, None

    return call


def _status(method: Callable[P, object]) -> Callable[P, Status]:
    """The call as C has it: its status alone."""
    giving = _giving(method)

    def call(*arguments: P.args, **named: P.kwargs) -> Status:
        return giving(*arguments, **named)[0]

    return call


def bm_dev_request(devid: int, platform: Platform = PCIE, config: Config | None = None) -> tuple[Status, Handle | None]:
    """A handle. Any device number below 256 is there; each handle is a device of its own."""
    if not 0 <= devid < 256:
        _LAST.text = f"bm_dev_request: there is no device {devid}; give 0..255"
        return Status.PARAM, None
    return _giving(Handle)(platform, config)


def bm_mem_get_device_addr(memory: DeviceMemory) -> int:
    """The bus address, as kernels take it."""
    return memory.address


def bm_mem_get_device_size(memory: DeviceMemory) -> int:
    return memory.size


def bm_memcpy_d2d_byte(
    handle: Handle, dst: DeviceMemory, dst_offset: int, src: DeviceMemory, src_offset: int, size: int
) -> Status:
    """Within device memory."""
    return _status(handle.d2d)(dst, src, size, dst_offset, src_offset)


bm_dev_free = _status(Handle.free_device)
bm_malloc_device_byte = _giving(Handle.malloc)
bm_free_device = _status(Handle.free)
#: All of the device memory, its first bytes, those from an offset in it on.
bm_memcpy_s2d = bm_memcpy_s2d_partial = bm_memcpy_s2d_partial_offset = _status(Handle.s2d)
bm_memcpy_d2s = bm_memcpy_d2s_partial = bm_memcpy_d2s_partial_offset = _status(Handle.d2s)
bm_mem_mmap_device_mem = _giving(Handle.map)
tpu_kernel_load_firmware = _status(Handle.load)
tpu_kernel_launch_sync = _status(Handle.launch_sync)
tpu_kernel_launch_async = _status(Handle.launch_async)
tpu_kernel_sync = _status(Handle.sync)
