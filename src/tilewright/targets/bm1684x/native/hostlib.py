"""The library for hosts in C."""

from __future__ import annotations

from pathlib import Path

from tilewright.native.hosts import HostLibrary
from tilewright.targets.bm1684x.native.headers import FIXED

LIBRARY = HostLibrary("tilewright_bm1684x", (FIXED / "host.c",), Path(__file__).parent / "include")
