"""The digits on the command line, with a target of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fake import FakeTarget

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"


MODEL, SAMPLES = str(DIGITS / "digits.tflite"), str(DIGITS / "samples.npz")


Capture = pytest.CaptureFixture[str]


Use = Callable[[str], None]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Replaces every target by the fake one with a fault."""

    monkeypatch.setenv("COLUMNS", "160")

    def replace(fault: str) -> None:
        monkeypatch.setattr("tilewright.targets.get", lambda name: FakeTarget(fault))

    replace("")
    return replace
