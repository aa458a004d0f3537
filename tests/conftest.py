"""Fixtures that all tests share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tilewright.targets.vta.compiler import search, tune

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/golden/* anew; review the diff")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that tests/long.txt names, and slow ones, as long: the quick tier leaves them out."""
    long = set((ROOT / "tests" / "long.txt").read_text(encoding="utf-8").splitlines())
    for item in items:
        if item.nodeid.partition("[")[0] in long or item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of golden data: $TILEWRIGHT_SHARED, else ../shared beside the checkout."""
    path = Path(os.environ.get("TILEWRIGHT_SHARED", ROOT.parent / "shared"))
    if not path.is_dir():
        pytest.skip(f"golden data not found at {path}: set TILEWRIGHT_SHARED to the folder that holds mlperf_tiny/")
    return path


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests find no programs in the user's cache folder, and leave none there."""
    monkeypatch.setenv("TILEWRIGHT_NO_CACHE", "1")


@pytest.fixture
def brief_search(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """VTA's compiler takes its first plan that fits: for tests of values, which most of the search only delays.

    Slow tests search as users do.
    """
    if request.node.get_closest_marker("slow"):
        yield
        return
    search._ranked.cache_clear()  # plans of other tests
    for module, name, value in ((search, "EFFORT", 0), (search, "REFINING", 0), (search, "LEAST", 1)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(tune, "EFFORT", 500)
    yield
    search._ranked.cache_clear()


@pytest.fixture(scope="session")
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` requires `text` to equal the file tests/golden/<name>; --update-golden writes it."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        how = "run pytest with --update-golden and review the diff"
        assert path.is_file(), f"{path} is missing: {how}"
        expected = path.read_text(encoding="utf-8")
        assert text.splitlines() == expected.splitlines(), f"differs from {path}: fix it, or {how}"
        assert text == expected, f"line ends differ from {path}: {how}"

    return check
