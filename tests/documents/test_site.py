"""The site builds without a warning, loads nothing from elsewhere, and holds every page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

yaml = pytest.importorskip("yaml")
pytest.importorskip("mkdocs", reason="needs the extra docs: pip install -e '.[docs]'")
pytest.importorskip("material")
pytest.importorskip("mkdocstrings")

#: Elements by which a page loads something when it is opened.
LOADS = re.compile(
    r"""<(?:script|img|iframe|link rel="?(?:stylesheet|preconnect)"?)[^>]*\b(?:src|href)="?(https?:|//)"""
)


def pages() -> set[str]:
    """The pages in the navigation of mkdocs.yml."""
    return set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]))


def test_the_navigation_has_every_page() -> None:
    """Fails for a page that a change adds to docs/ without a line in mkdocs.yml."""
    here = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    generated = {
        "architecture.md",
        "changelog.md",
        "contributing.md",
        "security.md",
        "conduct.md",
        "reference/commands.md",
    }
    assert pages() == here | generated


@pytest.mark.slow
def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = {path.relative_to(tmp_path / "site").as_posix() for path in (tmp_path / "site").rglob("*.html")}
    assert {page.removesuffix(".md") + ".html" for page in pages()} <= made
    for path in (tmp_path / "site").rglob("*.html"):
        found = LOADS.search(path.read_text(encoding="utf-8"))
        assert not found, f"{path.name} loads {found[0] if found else ''}"
    commands = (tmp_path / "site" / "reference" / "commands.html").read_text(encoding="utf-8")
    assert 'id="tilewright-doctor"' in commands
    python = (tmp_path / "site" / "reference" / "python.html").read_text(encoding="utf-8")
    assert 'id="tilewright.compile"' in python
