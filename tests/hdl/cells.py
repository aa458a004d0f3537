"""Counts the cells of RTLIL, as the bench does."""

from __future__ import annotations

import runpy
from collections.abc import Callable

from tests.conftest import ROOT

resources: Callable[[str, str], dict[str, float]] = runpy.run_path(str(ROOT / "bench" / "gateware_cells.py"))[
    "resources"
]
