"""The digits on the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
MODEL, SAMPLES = str(DIGITS / "digits.tflite"), str(DIGITS / "samples.npz")

Capture = pytest.CaptureFixture[str]
Use = Callable[[str], None]
