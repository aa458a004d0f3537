"""A run leaves Python's garbage collector as it found it, whatever happens."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

import tilewright as tw
from tests.conftest import ROOT
from tests.fake import FakeTarget
from tilewright.errors import MachineError
from tilewright.program.program import Launch

DIGITS = ROOT / "examples" / "digits" / "digits.tflite"
ZEROS = np.zeros((1, 8, 8, 1), np.int8)


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


@pytest.mark.parametrize("fault", ["", "deadlock"])
def test_no_cycles_are_looked_for_during_a_launch(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, seen = FakeTarget(fault), []
    launch = FakeTarget.launch

    def watched(*arguments: object) -> object:
        assert isinstance(arguments[2], Launch)
        seen.append(gc.isenabled())
        return launch(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(FakeTarget, "launch", watched)
    monkeypatch.setattr("tilewright.targets.get", lambda _: fake)
    program = tw.compile(DIGITS, "fake")
    for was_enabled in (True, False):
        if was_enabled:
            gc.enable()
        else:
            gc.disable()
        if fault:
            with pytest.raises(MachineError):
                program.run(ZEROS)
        else:
            program.run(ZEROS)
        assert gc.isenabled() == was_enabled
    assert seen and not any(seen)
