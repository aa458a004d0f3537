"""The bench of the document's ladder."""

from __future__ import annotations

import runpy
from types import SimpleNamespace
from typing import Any

from tests.conftest import ROOT

ladder: Any = SimpleNamespace(**runpy.run_path(str(ROOT / "bench" / "cfu_ladder.py")))
