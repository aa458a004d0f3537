"""Fixtures that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of golden data: $TILEWRIGHT_SHARED, else ../shared beside the checkout."""
    path = Path(os.environ.get("TILEWRIGHT_SHARED", ROOT.parent / "shared"))
    if not path.is_dir():
        pytest.skip(f"golden data not found at {path}: set TILEWRIGHT_SHARED to the folder that holds mlperf_tiny/")
    return path
