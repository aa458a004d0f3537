"""Damaged files of every kind: a command ends with a result, a finding, or one line that says what is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import click
import numpy as np
import pytest

from tests.fuzz.kinds import KINDS
from tests.fuzz.run import run
from tilewright.cli import cli

SEED, GATE, SLOW = 20261127, 20, 500
NAMED = [pytest.param(name, marks=pytest.mark.golden) if kind.golden else name for name, kind in KINDS.items()]
#: A metavar that names files or folders.
_FILES = re.compile(r"FILE|DIR|FOLDER|PATH|DATA|MODEL|STUDY|\.\w+\b")
#: Parameters that name no data file: programs, which are trusted (SECURITY.md); folders to write to; a URL.
OTHERS = {
    *(("exec", name) for name in ("-I", "--cfu")),
    *(("run", "--cfu"), ("compile", "--cfu"), ("explain", "--cfu"), ("firmware", "sources"), ("firmware", "-I")),
}


def check(name: str, seed: int, numbers: range, folder: Path) -> None:
    result = run(KINDS[name], seed, numbers, folder / name)
    assert not result.failures, "\n".join(result.failures)


@pytest.mark.parametrize("name", NAMED)
def test_damaged_files_are_read_or_refused(name: str, tmp_path: Path) -> None:
    check(name, SEED, range(GATE), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMED)
def test_many_damaged_files_are_read_or_refused(name: str, tmp_path: Path) -> None:
    """New ones in every run; the undamaged file, by each command, before them."""
    seed = int(np.random.default_rng().integers(1 << 31))
    print(f"seed {seed}")
    check(name, seed, range(-len(KINDS[name].commands), SLOW), tmp_path)


def parameters() -> dict[tuple[str, str], click.Parameter]:
    """The parameters of the command line that name files to read, by command and name."""
    found: dict[tuple[str, str], click.Parameter] = {}
    for command in cli.commands.values():
        for parameter in command.params:
            metavar = str(parameter.metavar or "") if isinstance(parameter, click.Option) else str(parameter.name)
            print(command.name, parameter.opts, metavar)
    return found
