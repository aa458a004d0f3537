"""Machines of the what-if table."""

from __future__ import annotations

import runpy
from types import SimpleNamespace
from typing import Any

from tests.conftest import ROOT

whatif: Any = SimpleNamespace(**runpy.run_path(str(ROOT / "bench" / "zynq_whatif.py")))
