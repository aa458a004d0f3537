"""Links between the pages of the documentation lead to files and headings that exist; words are spelt right."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.conftest import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("README.md")])
#: Pages that the site makes (docs/site_hooks.py); links to them exist only there.
GENERATED = {"architecture.md", "changelog.md", "contributing.md", "security.md", "conduct.md", "reference/commands.md"}


def links(path: Path) -> list[str]:
    """The targets of a page's links and pictures."""
    found = []
    for token in MarkdownIt().enable("table").parse(path.read_text(encoding="utf-8")):
        for inner in token.children or ():
            target = inner.attrs.get("href") or inner.attrs.get("src")
            if target:
                found.append(str(target))
    return found


@cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors of a page's headings: lower case, without punctuation, spaces as hyphens."""
    tokens = MarkdownIt().enable("table").parse(path.read_text(encoding="utf-8"))
    texts = (after.content for token, after in pairwise(tokens) if token.type == "heading_open")
    return frozenset(
        re.sub(r" +", "-", re.sub(r"[^\w\- ]", "", re.sub(r"`|\[([^\]]*)\]\([^)]*\)", r"\1", text).lower())).strip("-")
        for text in texts
    )


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for link in links(path):
        if re.match(r"[a-z]+:", link):
            assert link.startswith("https://"), f"{link} is not https"
            continue
        name, _, anchor = link.partition("#")
        if path.parent == ROOT / "docs" and name in GENERATED:
            continue
        there = (path.parent / name).resolve() if name else path
        assert there.exists(), f"{path.name} links to {link}, which does not exist"
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), f"{path.name}: {there.name} has no heading #{anchor}"


def test_pages_install_extras_of_the_checkout() -> None:
    """No index is known to have the package; `tilewright doctor` prints the command that works."""
    for path in PAGES:
        assert not re.search(r"pip install '?tilewright", path.read_text(encoding="utf-8")), path


def test_a_link_to_nowhere_is_found(tmp_path: Path) -> None:
    """The check above can fail: an anchor of a heading exists with the rules of the site, another one does not."""
    page = tmp_path / "page.md"
    page.write_text("# A `heading`: of [two](x.md) words\n\n[a](nowhere.md#b) ![c](d.png)\n", encoding="utf-8")
    assert links(page) == ["x.md", "nowhere.md#b", "d.png"]
    assert anchors(page) == {"a-heading-of-two-words"}


@pytest.mark.skipif(not find_spec("codespell_lib"), reason="codespell is not installed: pip install codespell")
def test_words_are_spelt_right() -> None:
    paths = [str(path.relative_to(ROOT)) for path in PAGES]
    done = subprocess.run(
        [sys.executable, "-m", "codespell_lib", *paths, "examples", "src"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_promises_name_tests_that_exist() -> None:
    """SECURITY.md names the test that holds each promise."""
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", text)
    assert len(named) > 10
    for file, test in named:
        path = ROOT / file
        assert path.exists(), file
        assert not test or f"def {test}(" in path.read_text(encoding="utf-8"), test
