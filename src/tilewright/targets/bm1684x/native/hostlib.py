"""The library for hosts in C, and the requests of hosts: the values of addresses and sizes are in bytes."""

from __future__ import annotations

from pathlib import Path

from tilewright.native.hosts import HostLibrary
from tilewright.native.requests import Request
from tilewright.targets.bm1684x.native.headers import FIXED

REQUESTS = (
    Request("hello"),
    Request("malloc", "Q", "Q"),
    Request("free", "Q"),
    Request("s2d", "Q", data=True),
    Request("d2s", "2Q"),
    Request("d2d", "3Q"),
    Request("fill", "3Q"),
    Request("firmware", data=True),
    Request("module", gives="I", data=True),
    Request("unload", "I"),
    Request("function", "I", "I", data=True),
    Request("launch", "I", data=True),
    Request("launch_async", "I", data=True),
    Request("numbered", "2I", data=True),
    Request("sync"),
    Request("cycles", gives="Q"),
    Request("close"),
)
LIBRARY = HostLibrary(
    "tilewright_bm1684x",
    server="tilewright.targets.bm1684x.host.serve",
    requests=REQUESTS,
    sources=(FIXED / "host.c",),
    include=Path(__file__).parent / "include",
)
