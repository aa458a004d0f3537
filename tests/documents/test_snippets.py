"""Commands and Python in all pages name what exists: commands, options, targets, presets, files, modules and functions.

The tutorials are also run (test_pages.py). The other pages have placeholders, so their code is read, not run.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.conftest import ROOT
from tests.documents.commands import commands, wrong

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("README.md")])
#: Changes of the past name options of the past.
LEFT_OUT = {"CHANGELOG.md"}


def code(page: Path) -> Iterator[str]:
    """Yield each block and each span of code of a page."""
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if token.type in ("fence", "code_block"):
            yield token.content
        for child in token.children or ():
            if child.type == "code_inline":
                yield child.content


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_exist(page: Path) -> None:
    if page.name in LEFT_OUT:
        pytest.skip("names options of the past")
    lines = [words for text in code(page) for words in commands(text)]
    assert not [f"tilewright {shlex.join(words)}: {found}" for words in lines if (found := wrong(words))]


def test_a_wrong_command_is_noticed() -> None:
    run = "tilewright run x -t"
    text = f"    {run} vta --shadow\n$ tilewright fly\n{run} nobody\n{run} vta -c no | cat"
    found = [wrong(words) for words in commands(text)]
    assert len([reason for reason in found if reason]) == 4, found


def python(page: Path) -> Iterator[ast.Module]:
    """Yield the blocks of a page that are Python and import this package."""
    for text in code(page):
        if re.search(r"^(from|import) tilewright", text, re.M):
            try:
                yield ast.parse(re.sub(r"^\.\.\.$", "", text, flags=re.M))
            except SyntaxError:
                if text.lstrip().startswith((">>>", "$")):
                    continue
                raise


def missing(tree: ast.Module) -> Iterator[str]:
    """Yield what a piece of Python imports from this package, or reads from it, that does not exist."""
    known: dict[str, object] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tilewright":
            module = import_module(node.module or "")
            for name in node.names:
                if not hasattr(module, name.name) and find_spec(f"{node.module}.{name.name}") is None:
                    yield f"{node.module} has no {name.name}"
        elif isinstance(node, ast.Import):
            for name in node.names:
                if name.name.split(".")[0] == "tilewright":
                    known[name.asname or "tilewright"] = import_module(name.name if name.asname else "tilewright")
    read = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    for node in read:
        owner = node.value.id if isinstance(node.value, ast.Name) else ""
        if owner in known and not hasattr(known[owner], node.attr):
            yield f"{owner} has no {node.attr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_names_exist(page: Path) -> None:
    if page.name in LEFT_OUT:
        pytest.skip("names functions of the past")
    assert not [name for tree in python(page) for name in missing(tree)]


def test_a_wrong_name_is_noticed() -> None:
    tree = ast.parse("import tilewright as tw\nfrom tilewright.graph import ir, tree\ntw.run\ntw.fly()")
    assert list(missing(tree)) == ["tilewright.graph has no tree", "tw has no fly"]
