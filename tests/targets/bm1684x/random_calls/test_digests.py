"""Random calls of the device API change the bytes that they change on the vendor's model, as the digests record."""

from __future__ import annotations

from functools import cache

import pytest

from tests.targets.bm1684x.random_calls.digest import digest, text
from tests.targets.bm1684x.random_calls.families import calls
from tests.targets.bm1684x.random_calls.ours import Ours
from tests.targets.bm1684x.random_calls.table import Line, lines

machine = cache(Ours)


def check(line: Line) -> None:
    ours = machine()
    texts = [text(call, ours.changes(call)) for call in calls(line.family, line.chunk, line.length)]
    assert digest(texts) == line.digest, f"{line}: compare with `python -m tests.targets.bm1684x.vendor.sampled`"


@pytest.mark.parametrize("line", [line for line in lines() if not line.chunk], ids=lambda line: line.family)
def test_some_calls(line: Line) -> None:
    check(line)


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in lines() if line.chunk], ids=str)
def test_many_calls(line: Line) -> None:
    check(line)
