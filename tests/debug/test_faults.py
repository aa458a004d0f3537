"""Each planted fault is found by a script of a few commands: its last answer names the guilty instruction."""

from __future__ import annotations

import re

import pytest

from tests.debug.planted import FAULTS, SCRIPTS, sample, wrong
from tilewright.debug.session import Session
from tilewright.debug.verbs import obey

#: The most commands of a script, and instructions that its last answer may name.
COMMANDS, NAMED = 8, 8


@pytest.mark.parametrize("name", FAULTS)
def test_a_script_names_the_guilty_instruction(name: str) -> None:
    lines = (SCRIPTS / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    commands = [line for line in lines if not line.startswith("#")]
    assert 1 <= len(commands) <= COMMANDS
    session = Session(wrong(name), sample())
    answers = [obey(session, command)[0] for command in commands]
    named = set(re.findall(r"#(\d+)", answers[-1]))
    assert str(FAULTS[name].guilty) in named, answers[-1]
    assert len(named) <= NAMED, answers[-1]


def test_every_script_has_a_fault() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.txt")} == set(FAULTS)
    assert len(FAULTS) >= 20
