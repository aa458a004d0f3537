"""A target of the tests' own for the command line."""

from __future__ import annotations

import pytest

from tests.cli.digits import Use
from tests.fake import FakeTarget


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Replaces every target by the fake one with a fault."""

    monkeypatch.setenv("COLUMNS", "160")

    def replace(fault: str) -> None:
        monkeypatch.setattr("tilewright.targets.get", lambda name: FakeTarget(fault))

    replace("")
    return replace
