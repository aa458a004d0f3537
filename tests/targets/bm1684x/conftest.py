"""Every command that a test here compiles is read again."""

from __future__ import annotations

import pytest

from tilewright.targets.bm1684x.compiler import assembly
from tilewright.targets.bm1684x.isa.command import Command
from tilewright.targets.bm1684x.isa.meaning import checked
from tilewright.targets.bm1684x.isa.stream import EncodedCommand
from tilewright.targets.bm1684x.layouts.tensor import Tensor


@pytest.fixture(autouse=True)
def _commands_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler does without, for its time: refuse a command whose fields do not say all of it."""

    def encoded(command: Command, number: int, needs: int) -> EncodedCommand:
        result = command.results["y"]
        assert isinstance(result, Tensor)
        return checked(command, number, needs, result.config)

    monkeypatch.setattr(assembly, "encoded", encoded)
