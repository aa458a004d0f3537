"""Memories that a kernel's process addresses: their bytes move to a file in memory, which both processes map."""

from __future__ import annotations

import mmap
import os
from weakref import WeakKeyDictionary, finalize

import numpy as np

from tilewright.errors import MachineError
from tilewright.targets.bm1684x.values.memory import Region

_FILES: WeakKeyDictionary[Region, int] = WeakKeyDictionary()


def share(region: Region) -> str:
    """Return the path of the file that holds the bytes of a memory. The first call moves them there.

    Raises MachineError if this system has no such files.
    """
    if region not in _FILES:
        if not hasattr(os, "memfd_create"):
            raise MachineError("memory", "pointers into device memory need Linux", "use commands instead")
        file = os.memfd_create(region.name)
        os.ftruncate(file, len(region.data))
        shared = np.frombuffer(mmap.mmap(file, len(region.data)), np.uint8)
        shared[:] = region.data
        object.__setattr__(region, "data", shared)
        _FILES[region] = file
        finalize(region, os.close, file)
    return f"/proc/{os.getpid()}/fd/{_FILES[region]}"
