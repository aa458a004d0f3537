"""The notebooks in examples/notebooks are those of the tutorials' text, and print what the pages show."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("jupytext", reason="needs the extra docs: pip install -e '.[docs]'")
nbclient = pytest.importorskip("nbclient")

import nbformat  # noqa: E402

from docs import notebooks  # noqa: E402
from tests.documents import pages  # noqa: E402


@pytest.mark.parametrize("name", notebooks.TUTORIALS)
def test_a_notebook_is_that_of_the_text(name: str) -> None:
    path = notebooks.FOLDER / f"{name}.ipynb"
    assert path.read_text(encoding="utf-8") == nbformat.writes(notebooks.notebook(name)) + "\n", (
        "run python -m docs.notebooks"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", notebooks.TUTORIALS)
def test_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TILEWRIGHT_NO_CACHE", raising=False)
    made = nbformat.read(notebooks.FOLDER / f"{name}.ipynb", as_version=4)
    expected = [notebooks.text_of(cell) for cell in made.cells if cell.cell_type == "code"]
    nbclient.NotebookClient(made, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    cells = [cell for cell in made.cells if cell.cell_type == "code"]
    for cell, text in zip(cells[1:], expected[1:], strict=True):
        if not cell.source.startswith("%%writefile"):
            assert pages.matches(text, notebooks.text_of(cell)), cell.source
