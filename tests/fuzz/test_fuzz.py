"""Damaged files of every kind: a command ends with a result, a finding, or one line that says what is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import click
import numpy as np
import pytest

from tests.fuzz.kinds import KINDS, Kind
from tests.fuzz.run import run
from tilewright.cli import COMMANDS, cli
from tilewright.model.inputs import IMAGES, SUFFIXES

SEED, GATE, SLOW = 20261127, 20, 500
NAMED = [pytest.param(name, marks=pytest.mark.golden) if kind.golden else name for name, kind in KINDS.items()]
#: A part of a metavar that names files or folders, and its suffix.
_FILES = re.compile(r"(?:FILE|DIR|FOLDER|PATH|DATA|MODEL|STUDY|RUN|KERNEL|OUT|A|B)(\.\w+)?(?:\.\.\.|:NAME)?")
#: What is written, by option.
WRITTEN = {"-o", "--html", "--save", "--trace", "--csv", "--parquet", "--profile", "--wave", "--svg", "--raw"}
WRITTEN |= {"--save-schedule", "new-firmware", "examples"}
#: What is no data but a program, which the user must trust (SECURITY.md), by option or command, and suffix.
PROGRAMS = {("--cfu", ".v"), ("--cfu", ".py"), ("-I", ""), ("--firmware", ""), ("exec", ".c"), ("firmware", ".c")}
PROGRAMS |= {("--verilog", ".v"), ("--verilog", "")}
#: Commands that read their files as another command does, which is fuzzed: what they do next takes long.
AS_ANOTHER = {"cosim": "exec", "explore": "sweep", "compile": "run"}


def check(name: str, seed: int, numbers: range, folder: Path) -> None:
    result = run(KINDS[name], seed, numbers, folder / name)
    assert not result.failures, "\n".join(result.failures)


@pytest.mark.parametrize("name", NAMED)
def test_damaged_files_are_read_or_refused(name: str, tmp_path: Path) -> None:
    check(name, SEED, range(GATE), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMED)
def test_many_damaged_files_are_read_or_refused(name: str, tmp_path: Path) -> None:
    """New ones in every run; before them each command on the undamaged file."""
    seed = int(np.random.default_rng().integers(1 << 31))
    print(f"seed {seed}")
    check(name, seed, range(-len(KINDS[name].commands), SLOW), tmp_path)


def shared(name: str) -> click.Command:
    """The command of this name, which all targets share."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


def read_files() -> Iterator[tuple[str, str]]:
    """Yield what names a file to read on the command line: an option or a command, and the suffix of the file."""
    for command in map(shared, COMMANDS):
        for parameter in command.params:
            argument = isinstance(parameter, click.Argument)
            name = str(command.name) if argument else parameter.opts[0]
            text = parameter.metavar or (str(parameter.name).upper() if argument else "")
            for part in text.strip(".").split("|"):
                if (found := _FILES.fullmatch(part)) and name not in WRITTEN:
                    yield AS_ANOTHER.get(name, name), found[1] or ""


def fuzzed(kind: Kind) -> Iterator[tuple[str, str]]:
    """Yield what of `read_files` the commands of a kind read from its damaged files."""
    suffixes = {Path(pattern).suffix for pattern in kind.damage} | {""}
    for command in kind.commands:
        words = command.split()
        options = {name: each.opts[0] for each in shared(words[0]).params for name in each.opts}
        for before, word in pairwise(words):
            if "{odd}" in word or re.fullmatch(r"\{f\}(/\w+)?", word):
                yield from ((options.get(before, words[0]), suffix) for suffix in suffixes)


def test_every_file_of_the_command_line_is_fuzzed() -> None:
    """A new option that names a file needs a kind, or a place among the programs."""
    covered = {each for kind in KINDS.values() if kind.call is None for each in fuzzed(kind)}
    covered |= {("-i", suffix) for suffix in IMAGES if ("-i", ".*") in covered}
    needed = {*read_files()} - PROGRAMS | {("-i", suffix) for suffix in SUFFIXES}
    needed |= {(command, suffix) for command in ("run", "explain") for suffix in (".tflite", ".onnx")}
    assert needed - covered == set()
