"""Write examples/notebooks: tutorials as Jupyter notebooks, made from the text of docs/tutorials by Jupytext.

    python -m docs.notebooks

Each command and each piece of Python is a cell, with the output that the page shows. Run it after a tutorial changes.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import jupytext
import nbformat

from tests.conftest import ROOT
from tests.documents import pages

TUTORIALS = ("own-network", "cycles", "vta-kernel", "tpu-kernel")
FOLDER = ROOT / "examples" / "notebooks"
SITE = "https://github.com/tilewright/tilewright/blob/main/"
SETUP = """```python
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tilewright import examples

os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
os.environ.update(COLUMNS="100", NO_COLOR="1")
os.environ.pop("FORCE_COLOR", None)  # set by the notebook's kernel
def shell(command):  # as IPython's own, but commands print plain text, as into a file
    done = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout, end="")


get_ipython().system = shell
os.chdir(tempfile.mkdtemp())
_ = examples.copy(Path("examples"))
```
"""
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```\n", re.M | re.S)
LINK = re.compile(r"\]\((?!https?://|#)([^)\s]+)\)")


def notebook(name: str) -> nbformat.NotebookNode:
    """Return a tutorial as a notebook. Its first code cell puts the examples into a new folder."""
    text = (ROOT / "docs" / "tutorials" / f"{name}.md").read_text(encoding="utf-8")
    steps = [step for step in pages.steps(text) if isinstance(step, pages.Step)]
    text = LINK.sub(lambda match: f"]({SITE}{posixpath.normpath('docs/tutorials/' + match[1])})", text)
    title, _, rest = text.partition("\n\n")
    introduction, _, rest = rest.partition("\n## ")
    body = f"{title}\n\n{introduction}\n\n{SETUP}\n## {FENCE.sub(_cells, rest)}"
    made: nbformat.NotebookNode = jupytext.reads(body, fmt="md")
    made.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    code = [cell for cell in made.cells if cell.cell_type == "code" and not cell.source.startswith("%%writefile")]
    for number, cell in enumerate(made.cells):
        cell.id, cell.metadata = f"cell-{number}", {}
    for cell, step in zip(code[1:], steps, strict=True):
        if step.expected.strip():
            cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=step.expected.rstrip() + "\n")]
    return made


def _cells(match: re.Match[str]) -> str:
    """Return a fenced block as the cells that do the same."""
    language, info, text = match[1], match[2], match[3]
    if title := pages.TITLE.search(info):
        return f"```python\n%%writefile {title[1]}\n{text}```\n"
    if language == "console":
        commands = pages.steps(match[0])
        return "\n".join(f"```python\n!{step.code}\n```\n" for step in commands if isinstance(step, pages.Step))
    return "" if language == "text" else match[0]


#: The file of a cell: a number.
CELL = re.compile(r"\b\d+\.py(?=:\d)")


def text_of(cell: Any) -> str:
    """Return what an executed cell has printed. Lines of the cell itself are named as in a page."""
    return CELL.sub("page", "".join(output.get("text", "") for output in cell.outputs))


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in TUTORIALS:
        path: Path = FOLDER / f"{name}.ipynb"
        path.write_text(nbformat.writes(notebook(name)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
