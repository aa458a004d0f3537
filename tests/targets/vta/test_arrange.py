"""A chain that is remembered gets the instructions of one that is tuned again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings

from tests.targets.vta import residuals
from tests.targets.vta.cases import Case, machines, networks
from tilewright.errors import ConfigError
from tilewright.targets.vta.compiler import compiler, scores, search
from tilewright.targets.vta.compiler.compiler import compile_graph
from tilewright.targets.vta.compiler.tune import TimedChain
from tilewright.targets.vta.config import PRESETS, Config


def program(case: Case, config: Config, folder: Path | None = None) -> list[Any]:
    """Compile as a new process does, perhaps with what is remembered in a folder; return all bytes of the launches."""
    for known in (compiler._code, scores._score, search._ranked, search._least):
        known.cache_clear()
    scores._REMEMBERED.clear()
    if folder is None:
        launches = compile_graph(case.graph, config, case.rounding).launches
    else:
        with scores.remembering(folder):
            launches = compile_graph(case.graph, config, case.rounding).launches
        scores._REMEMBERED[folder].close()
    return [(launch.meta, {name: data.tobytes() for name, data in launch.arrays.items()}) for launch in launches]


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The searches that run, by name."""
    found: list[str] = []
    for module, name in ((compiler, "tuned"), (search, "finalists"), (search, "_bounds"), (scores, "_estimate")):
        original = getattr(module, name)

        def noted(*given: Any, name: str = name, original: Any = original) -> Any:
            found.append(name)
            return original(*given)

        monkeypatch.setattr(module, name, noted)
    yield found
    scores._REMEMBERED.clear()


@settings(max_examples=10, deadline=None)
@given(networks(), machines())
def test_a_random_network_is_compiled_to_the_same_bytes(case: Case, config: Config) -> None:
    try:
        expected = program(case, config)
    except ConfigError:
        return
    with TemporaryDirectory() as folder:
        assert program(case, config, Path(folder)) == expected
        assert program(case, config, Path(folder)) == expected
    scores._REMEMBERED.clear()


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_searched_again(seed: int, tmp_path: Path, searched: list[str]) -> None:
    case, config = residuals.case_of(seed, channels=64), PRESETS["pynq"]
    expected = program(case, config, tmp_path)
    assert {"tuned", "finalists", "_bounds"} <= set(searched)
    searched.clear()
    assert program(case, config, tmp_path) == expected
    assert not searched


def test_parts_of_loads_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    original = compiler._saved

    def noted(best: TimedChain) -> dict[str, Any]:
        found.append(original(best))
        return found[-1]

    monkeypatch.setattr(compiler, "_saved", noted)
    case, config = residuals.case_of(1, channels=64), PRESETS["pynq"]
    expected = program(case, config, tmp_path)
    assert program(case, config, tmp_path) == expected
    assert not all(isinstance(entry, int) for known in found for entry in known["order"])
    scores._REMEMBERED.clear()
