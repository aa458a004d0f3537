"""Names say what a thing is: none of the words that can stand for anything, nor of the terms that were replaced."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.structure.prose import VAGUE_NAME, name_of
from tests.structure.source import FILES, SOURCE, tree

#: Python's own name for the second operand of a method.
OPERAND = "other"
#: VTA's ALU operations that a user defines are "own operations" in its configuration; the key is `own_alu`.
OWN_OPERATIONS = ("targets/vta", "own")
#: Names of the issue's list that stood for a term of the field.
REPLACED = {
    *("Leaving", "Lying", "Shelf", "Again", "Filling", "Stretch", "Opened", "Alone", "Here", "Searched"),
    *("tape", "alike", "apart", "astray"),
}


def vague(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        name = name_of(node)
        if name is None or not (VAGUE_NAME.fullmatch(name) or name in REPLACED) or name == OPERAND:
            continue
        folder, word = OWN_OPERATIONS
        if not (path.is_relative_to(SOURCE / folder) and name == word):
            yield f"{name} (line {getattr(node, 'lineno', 0)})"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_names_say_what_a_thing_is(path: Path) -> None:
    assert not list(vague(path)), "name the thing: findings, rows, plan, launch, operand"


def test_a_vague_name_is_noticed() -> None:
    code = ast.parse("def found(one, other):\n    _made = one.known\n    return [each for each in others]")
    names = [name_of(node) for node in ast.walk(code)]
    hits = {name for name in names if name and VAGUE_NAME.fullmatch(name)}
    assert hits == {"found", "one", "other", "_made", "known", "each"}
