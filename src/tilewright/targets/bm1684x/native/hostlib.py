"""The library for hosts in C."""

from __future__ import annotations

from pathlib import Path

from tilewright.native.hosts import HostLibrary
from tilewright.targets.bm1684x.native.headers import FIXED

REQUESTS = (
    *("hello", "malloc", "free", "s2d", "d2s", "d2d", "fill", "firmware", "module", "unload", "function"),
    *("launch", "launch_async", "numbered", "sync", "cycles", "close"),
)
LIBRARY = HostLibrary(
    "tilewright_bm1684x",
    server="tilewright.targets.bm1684x.host.serve",
    requests=REQUESTS,
    sources=(FIXED / "host.c",),
    include=Path(__file__).parent / "include",
)
