"""The times of plans: what machines, processes and sessions share is what each machine would find alone."""

from __future__ import annotations

import sqlite3
from itertools import count, islice
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.targets.vta.cases import Case, layers, machines
from tilewright.errors import HazardError
from tilewright.graph.rounding import rounding_mode
from tilewright.program.remembered import Remembered
from tilewright.targets.vta.compiler import scores, search
from tilewright.targets.vta.compiler.chain import plan_layer
from tilewright.targets.vta.compiler.layer import Layer
from tilewright.targets.vta.compiler.lowered import Context
from tilewright.targets.vta.compiler.plan import Plan
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.timing import DEFAULT

#: log2 bytes of a memory of micro-ops above which a list that is loaded once more hardly counts.
USUAL = 8
HERE = Path(__file__).resolve().parent


def alone(plan: Plan, config: Config) -> tuple[float, int] | None:
    """The score of a plan on the very machine, from its own instructions; None if short queues stop it."""
    try:
        return scores._estimate(scores._sample.__wrapped__(plan, config, DEFAULT), config, DEFAULT)
    except HazardError:
        return None


def shared(plan: Plan, config: Config) -> tuple[float, int] | None:
    try:
        return scores.score(plan, config, DEFAULT)
    except HazardError:
        return None


@settings(max_examples=100, deadline=None)
@given(layers(), machines())
def test_a_plan_takes_as_long_on_the_smallest_machine_that_it_fits(case: Case, machine: Config) -> None:
    context = Context(machine, rounding_mode(case.rounding), DEFAULT)
    form = plan_layer((next(case.graph.sites()),), context)
    if isinstance(form, str):
        return
    layer = form[0].layer.canonical
    for _, plan in islice(search._candidates(layer, machine, DEFAULT), 6):
        found, own = shared(plan, machine), alone(plan, machine)
        if layer.planes == 1 or found is None or own is None:
            assert found == own
        elif machine.LOG_UOP_BUFF_SIZE >= USUAL:  # lists of micro-ops of different slots may be equal by chance
            assert found[0] == pytest.approx(own[0], rel=0.01)


def a_plan() -> tuple[Layer, Plan]:
    layer = Layer((28, 28), (28, 28), 8, 8, "16 channels a tile")
    found = search.best_plan(layer, PRESETS["pynq"], DEFAULT)
    assert found
    return layer, found


def test_machines_share_times_if_a_plan_fits_both() -> None:
    _, plan = a_plan()
    other = PRESETS["pynq"].with_overrides({"LOG_INP_BUFF_SIZE": 14})
    assert scores.smallest(plan, other) == scores.smallest(plan, PRESETS["pynq"])
    packed = PRESETS["ultra96"].with_overrides({"multipliers": "packed", "LOG_BUS_WIDTH": 6})
    assert scores.smallest(plan, packed.plain) == scores.smallest(plan, PRESETS["pynq"].plain)
    assert scores.smallest(plan, PRESETS["pynq"]) != PRESETS["pynq"]


def test_times_are_remembered_by_other_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, plan = a_plan()
    monkeypatch.setattr(scores, "_REMEMBERED", {})
    scores._score.cache_clear()
    with scores.remembering(tmp_path):
        known = scores.score(plan, PRESETS["pynq"], DEFAULT)
    scores._score.cache_clear()
    monkeypatch.setattr(scores, "_REMEMBERED", {})
    monkeypatch.setattr(scores, "_estimate", lambda *given: pytest.fail("it was timed again"))
    with scores.remembering(tmp_path):
        assert scores.score(plan, PRESETS["pynq"], DEFAULT) == known
    scores._score.cache_clear()


def test_nothing_is_remembered_outside_of_the_block(tmp_path: Path) -> None:
    with scores.remembering(tmp_path):
        pass
    results = count()

    @scores.kept_on_disk
    def search(argument: int) -> int:
        return next(results)

    assert [search(1), search(1)] == [0, 1]
    with scores.remembering(tmp_path):
        assert [search(1), search(1), search(2)] == [2, 2, 3]


def test_what_is_remembered(tmp_path: Path) -> None:
    first = Remembered(tmp_path, HERE)
    assert first.get("a") is None
    first.put("a", [0.1, 7])
    assert first.get("a") == [0.1, 7]
    second = Remembered(tmp_path, HERE)
    assert second.get("a") is None
    first.flush()
    assert second.get("a") == [0.1, 7]
    long = list(range(1000))
    second.put("b", long)
    second.close()
    first.close()
    assert Remembered(tmp_path, HERE).get("b") == long


def test_a_full_file_gets_nothing_more(tmp_path: Path) -> None:
    small = Remembered(tmp_path, HERE, limit=1)
    small.put("a", 1.0)
    small.close()
    assert Remembered(tmp_path, HERE).get("a") is None


@pytest.mark.parametrize("damage", [b"", b"no database at all" * 100])
def test_a_damaged_file_or_folder_is_no_error(tmp_path: Path, damage: bytes) -> None:
    Remembered(tmp_path, HERE).close()
    (file,) = tmp_path.glob("*.sqlite")
    file.write_bytes(damage)
    for end in ("-wal", "-shm"):
        file.with_name(file.name + end).unlink(missing_ok=True)
    kept = Remembered(tmp_path, HERE)
    kept.put("a", 1.0)
    kept.close()
    nowhere = Remembered(file / "folder", HERE)
    nowhere.put("a", 1.0)
    assert nowhere.get("a") is None
    nowhere.close()


@pytest.mark.parametrize("damage", [b"", b"[1", b"x", b"\xff\xfe"])
def test_a_damaged_value_is_not_known(tmp_path: Path, damage: bytes) -> None:
    kept = Remembered(tmp_path, HERE)
    kept.put("a", 1.0)
    kept.flush()
    assert kept._file
    kept._file.execute("UPDATE results SET value = ?", (damage,))
    assert kept.get("a") is None
    kept.close()


def test_files_of_older_versions_are_deleted(tmp_path: Path) -> None:
    others = [tmp_path / f"{number:016x}.sqlite" for number in range(5)]
    for path in others:
        sqlite3.connect(path).close()
        path.write_bytes(b"")
    (tmp_path / "mine.sqlite").write_bytes(b"")
    Remembered(tmp_path, HERE).close()
    assert (tmp_path / "mine.sqlite").exists()
    assert len(list(tmp_path.glob("0000*.sqlite"))) == 2
