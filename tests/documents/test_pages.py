"""Every command and every output of the tutorials is what a user gets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest
from _pytest.mark import ParameterSet

from tests.conftest import ROOT
from tests.documents import pages
from tilewright.targets.cfu.compiler import firmware

TUTORIALS = ROOT / "docs" / "tutorials"
#: The page that is run with every change; the others take more than a few seconds, and are run by `pytest -m slow`.
QUICK = {"vta-kernel"}
NEEDS = {"config-to-rtl": ["gxx"], "custom-instruction": ["gxx"], "tpu-kernel": ["gxx"]}
#: Pages with cycles of firmware, which depend on the compiler: the figures are those of gcc.
GCC = {"own-network", "custom-instruction"}
NO_GCC = pytest.mark.skipif(which(firmware.GCC) is None, reason=f"needs {firmware.GCC}")


def cases() -> Iterator[ParameterSet]:
    """Yield each page that has steps, with the marks of what it needs."""
    for path in [*sorted(TUTORIALS.glob("*.md")), ROOT / "docs" / "rounding.md"]:
        if any(isinstance(step, pages.Step) for step in pages.steps(path.read_text(encoding="utf-8"))):
            marks = [getattr(pytest.mark, name) for name in NEEDS.get(path.stem, [])]
            marks += [] if path.stem in QUICK else [pytest.mark.slow]
            marks += [NO_GCC] if path.stem in GCC else []
            yield pytest.param(path, marks=marks, id=path.stem)


@pytest.mark.parametrize("path", list(cases()))
def test_a_page_prints_what_it_shows(path: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    wrong = pages.run(path, tmp_path, update=bool(request.config.getoption("--update-golden")))
    assert not wrong, "\n\n".join(wrong)


PAGE = """
```console
$ echo one; echo two
one
$ echo "a\\
b"; false # status 1
ab
```

```python
print(6 * 7, open("file.txt").read())
```

```text
42 x
```

```c title="file.txt"
x
```
"""


def test_the_runner_notices_a_difference(tmp_path: Path) -> None:
    """The file is written too late, and the first output lacks a line."""
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace('open("file.txt").read()', "'y'"), encoding="utf-8")
    (tmp_path / "run").mkdir()
    first, second = pages.run(page, tmp_path / "run")
    assert "echo one" in first
    assert "42 y" in second
    page.write_text(PAGE.replace("# status 1", "# status 2"), encoding="utf-8")
    (tmp_path / "again").mkdir()
    assert "status 1, not 2" in pages.run(page, tmp_path / "again")[-1]


def test_the_runner_writes_outputs_into_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace('open("file.txt").read()', "'y'"), encoding="utf-8")
    (tmp_path / "run").mkdir()
    assert len(pages.run(page, tmp_path / "run", update=True)) == 2
    (tmp_path / "again").mkdir()
    assert pages.run(page, tmp_path / "again") == []
    assert "one\ntwo\n$ echo" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a\n...\nb", "a\nb\n", True),
        ("a\n...\nb", "a\nx\ny\nb\n", True),
        ("a\n...\nb", "a\nx\n", False),
        ("in 3.2 s", "in 10 s", True),
        ("in 3.2 ms", "in 10 ms", False),
        ("x ... z", "x y", True),
        ("x ... z", "y", False),
        ("1.5 cycles", "1x5 cycles", False),
        ("", "", True),
        ("", "x", False),
    ],
)
def test_outputs_are_compared_line_by_line(expected: str, printed: str, same: bool) -> None:
    assert pages.matches(expected, printed) == same
