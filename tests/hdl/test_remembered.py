"""A compiled component that is in the cache is found without elaborating it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.hdl import build


def test_a_component_is_made_once_for_each_configuration_source_and_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    package = tmp_path / "package"
    package.mkdir()
    (package / "a.py").write_text("x = 1")
    made: list[str] = []

    def library(component: str, engine: str) -> Path:
        path = build.cache() / f"{engine}-{len(made):032x}.so"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        made.append(component)
        return path

    def call(made_from: str = "{}", engine: str = "verilator") -> Path:
        return build.cached_library(made_from, package, engine, lambda: made_from)

    monkeypatch.setattr(build, "library", library)
    first = call()
    assert [call(), call()] == [first, first]
    assert made == ["{}"]
    assert call('{"a": 1}') != first
    assert call(engine="cxxrtl") != first
    assert len(made) == 3
    (package / "a.py").write_text("x = 2")
    changed = call()
    assert changed != first
    changed.unlink()  # the library is gone, its note is not
    assert call() != changed
    for note in build.cache().glob("*.of"):
        note.write_text("../../escape.so")  # a name that is none of ours
    assert call().parent == build.cache()
    assert len(made) == 6
