"""Programs from the cache are those that the compiler makes, and only of what is exactly the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.conftest import ROOT
from tilewright import files, targets
from tilewright.cli import main
from tilewright.graph.ir import Graph
from tilewright.program import file
from tilewright.program.cache import Cache
from tilewright.program.program import Program
from tilewright.targets.vta import VtaTarget

DIGITS = ROOT / "examples" / "digits" / "digits.tflite"


class Compiles:
    """How often VTA's compiler has run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        compiler = VtaTarget.compile

        def counted(*arguments: object) -> Program:
            self.count += 1
            return compiler(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(VtaTarget, "compile", counted)


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> Compiles:
    return Compiles(monkeypatch)


def changed(graph: Graph) -> Graph:
    """The graph with one weight one larger."""
    name, tensor = next(
        (name, tensor) for name, tensor in graph.tensors.items() if tensor.data is not None and tensor.data.ndim == 4
    )
    assert tensor.data is not None
    data = tensor.data.copy()
    data.flat[0] ^= 1
    return replace(graph, tensors={**graph.tensors, name: replace(tensor, data=data)})


def test_a_kept_program_is_the_compiled_one(tmp_path: Path, compiles: Compiles) -> None:
    inputs = np.load(DIGITS.with_name("samples.npz"))["inputs"][:3]
    fresh, first, kept = (tw.compile(DIGITS, cache=folder) for folder in (False, tmp_path, tmp_path))
    assert compiles.count == 2
    vta = targets.get("vta")
    assert vta.disassemble(kept) == vta.disassemble(first) == vta.disassemble(fresh)
    assert vta.explain(kept) == vta.explain(fresh)
    for name, program in (("fresh", fresh), ("kept", kept)):
        file.save(program, tmp_path / name)
    assert (tmp_path / "fresh").read_bytes() == (tmp_path / "kept").read_bytes()
    expected, found = fresh.run(inputs), kept.run(inputs)
    assert (found.cycles, found.findings, found.matches_reference) == (expected.cycles, (), True)
    for output in expected.outputs:
        np.testing.assert_array_equal(found.outputs[output], expected.outputs[output])


def test_whatever_is_different_is_compiled(tmp_path: Path, compiles: Compiles, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = tw.load(DIGITS)
    cases: dict[str, Callable[[], Program]] = {
        "the first": lambda: tw.compile(graph, cache=tmp_path),
        "a weight": lambda: tw.compile(changed(graph), cache=tmp_path),
        "the configuration": lambda: tw.compile(graph, overrides={"dram_latency": "17"}, cache=tmp_path),
        "the preset": lambda: tw.compile(graph, config="ultra96", cache=tmp_path),
        "the rounding": lambda: tw.compile(graph, rounding="litert", cache=tmp_path),
        "a name": lambda: tw.compile(replace(graph, name="other"), cache=tmp_path),
    }
    for count, (what, compiled) in enumerate(cases.items(), 1):
        compiled()
        assert compiles.count == count, what
    for what, compiled in cases.items():
        compiled()
        assert compiles.count == len(cases), what
    monkeypatch.setattr(np, "__version__", "0")
    tw.compile(graph, cache=tmp_path)
    assert compiles.count == len(cases) + 1


def test_changed_sources_are_noticed(tmp_path: Path) -> None:
    graph, made = tw.load(DIGITS), tw.compile(DIGITS)
    kept, sources = Cache(tmp_path / "cache"), tmp_path / "sources"
    (sources / "__pycache__").mkdir(parents=True)
    calls = 0

    def make() -> Program:
        nonlocal calls
        calls += 1
        return made

    def look() -> int:
        kept.program(graph, ("vta", made.digest, made.rounding), sources, make)
        return calls

    steps: list[tuple[str, bytes, int]] = [("a.py", b"1", 1), ("a.py", b"2", 2), ("b/c.txt", b"", 3)]
    steps += [("a.py", b"1", 4), ("__pycache__/a.pyc", b"x", 4), ("a.py", b"2", 4)]  # the last is known again
    for name, content, expected in steps:
        (sources / name).parent.mkdir(exist_ok=True)
        (sources / name).write_bytes(content)
        assert look() == expected, name


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "another"])
def test_a_damaged_file_is_compiled_again_and_replaced(tmp_path: Path, compiles: Compiles, damage: str) -> None:
    tw.compile(DIGITS, cache=tmp_path)
    (kept,) = tmp_path.iterdir()
    content = bytearray(kept.read_bytes())
    whole = bytes(content)
    if damage == "another":
        file.save(tw.compile(DIGITS, overrides={"dram_latency": "17"}), kept)
    else:
        content[len(content) // 2] ^= 255
        kept.write_bytes({"truncated": whole[:-100], "flipped": bytes(content), "empty": b""}[damage])
    before = compiles.count
    tw.compile(DIGITS, cache=tmp_path)
    assert compiles.count == before + 1
    assert kept.read_bytes() == whole
    tw.compile(DIGITS, cache=tmp_path)
    assert compiles.count == before + 1


def test_what_was_not_used_for_longest_goes(tmp_path: Path, compiles: Compiles) -> None:
    graph = tw.load(DIGITS)
    other = tmp_path / "notes.txt"
    other.write_bytes(bytes(100))
    machine = targets.get("vta").config(None, {})

    def compiled(name: str, limit: int) -> None:
        named = replace(graph, name=name)
        made_from = "vta", machine.digest(), "tflm"
        Cache(tmp_path, limit).program(named, made_from, ROOT / "examples", lambda: tw.compile(named))

    compiled("a", 1 << 30)
    (size,) = (item.stat().st_size for item in tmp_path.glob("*.twp"))
    limit = 2 * size + size // 2
    left = tmp_path / f".{'0' * 64}.twp.01234567.tmp"
    left.write_bytes(bytes(10))
    os.utime(left, (1, 1))
    for name in ("b", "a", "c"):  # a is used again, so b goes for c
        compiled(name, limit)
    assert not left.exists()
    assert len(list(tmp_path.glob("*.twp"))) == 2
    assert compiles.count == 3
    compiled("a", limit)
    compiled("c", limit)
    assert compiles.count == 3
    compiled("b", limit)
    assert compiles.count == 4
    compiled("d", size // 2)  # none fits
    assert [item.name for item in tmp_path.iterdir()] == ["notes.txt"]


def test_a_folder_that_cannot_be_used_is_no_error(tmp_path: Path, compiles: Compiles) -> None:
    (tmp_path / "file").write_text("in the way")
    for _ in range(2):
        assert tw.compile(DIGITS, cache=tmp_path / "file").launches
    assert compiles.count == 2
    assert (tmp_path / "file").read_text() == "in the way"


def test_several_compile_the_same_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: tw.compile(DIGITS, cache=tmp_path), range(8)))
    vta = targets.get("vta")
    assert len({vta.disassemble(program) for program in made}) == 1
    (kept,) = tmp_path.iterdir()
    assert vta.disassemble(file.load(kept)) == vta.disassemble(made[0])


def test_the_commands_keep_programs_unless_told_not_to(
    tmp_path: Path, compiles: Compiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    use = [str(DIGITS), "-t", "vta"]
    made = str(tmp_path / "made.twp")
    monkeypatch.setenv("TILEWRIGHT_NO_CACHE", "1")
    assert main(["explain", *use]) == 0
    monkeypatch.delenv("TILEWRIGHT_NO_CACHE")
    assert main(["explain", *use, "--no-cache"]) == 0
    assert compiles.count == 2
    assert not (tmp_path / "cache").exists()
    for command in (["explain", *use], ["compile", *use, "-o", made], ["run", *use], ["explain", *use]):
        assert main(command) == 0
    assert compiles.count == 3
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_the_folder_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEWRIGHT_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if os.name == "posix" and os.uname().sysname == "Linux":
        assert files.user_folder() == tmp_path / "tilewright"
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "mine"))
    assert files.user_folder() == tmp_path / "mine"
