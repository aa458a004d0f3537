"""The words that the vendor's library writes for random calls are read as the commands that we issue for them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.bm1684x.random_calls.families import FAMILIES, calls
from tests.targets.bm1684x.vendor.calls import CONFIG, Noting, api
from tests.targets.bm1684x.vendor.served import served
from tests.targets.bm1684x.vendor.words import words
from tilewright.errors import TilewrightError
from tilewright.targets.bm1684x.isa.command import Command
from tilewright.targets.bm1684x.isa.meaning import command_of
from tilewright.targets.bm1684x.isa.operations import DMA, TIU
from tilewright.targets.bm1684x.isa.stream import ENDS, decode, encode, new_command

CHUNK, COUNT = 9, 24


def read(engine: str, raw: bytes) -> list[Command]:
    name, fields = ENDS[engine]
    end = encode([new_command(engine, 0, name, True, fields)])
    return [
        command_of(command, CONFIG)
        for command in decode(engine, np.concatenate([np.frombuffer(raw, np.uint8), end]))
        if not command.is_end
    ]


@pytest.mark.vendor
@pytest.mark.slow
@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "sorting"])
def test_words_are_the_commands_that_we_issue(family: str) -> None:
    drawn = list(calls(family, CHUNK, COUNT))
    compared = 0
    for call, raw in zip(drawn, served([(call.name, call.arguments) for call in drawn], words), strict=True):
        noting = Noting()
        try:
            getattr(api(noting), call.name)(*call.arguments)
        except TilewrightError:
            continue
        if raw is not None:
            issued = [*read(TIU, raw[0]), *read(DMA, raw[1])]
            wanted = sorted(noting.commands, key=lambda command: command.operation.engine == DMA)
            assert [item.operation for item in issued] == [item.operation for item in wanted], (
                f"{call.name}{call.arguments}"
            )
            compared += 1
    assert compared
