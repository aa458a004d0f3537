"""Bounds first, elements where bounds meet: the findings are those of a scan of everything."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.sim.programs import random_table
from tilewright.array import Array
from tilewright.sim import jit
from tilewright.sim import suspects as coarse
from tilewright.sim.findings import RACE, UNINITIALISED
from tilewright.sim.hazards import hazards, out_of_range, scan
from tilewright.sim.order import order
from tilewright.sim.steps import PARTLY, READ, WRITE, Footprints, Space, StepTable, end_of
from tilewright.sim.suspects import everything, suspects

SEED = 20261122
SPACES = (Space("a", 40), Space("b", 0), Space("c", 300, ((0, 120), (180, 220))), Space("d", 24))


def rows_of(rng: np.random.Generator, blocks: int, most: int) -> Array:
    """Up to `most` accesses, in blocks of the memory as programs use slots, or anywhere."""
    rows = []
    for _ in range(int(rng.integers(0, most + 1))):
        space = int(rng.choice([0, 2, 3]))
        size = SPACES[space].size
        low, high = 0, size
        if rng.random() < 0.8:
            low = int(rng.integers(blocks)) * (size // blocks)
            high = low + size // blocks
        base = int(rng.integers(low, high)) if rng.random() < 0.5 else low
        length = high - base if rng.random() < 0.5 else int(rng.integers(0, min(4, high - base) + 1))
        stride = int(rng.integers(0, 7))
        count = int(rng.integers(0, 4)) if stride * 3 + length <= high - base else 1
        rows.append([space, int(rng.choice([READ, WRITE, READ | WRITE])), base, length, count, stride])
    return np.array(rows, np.int64).reshape(-1, 6)


def loose(rng: np.random.Generator, rows: Array) -> Array:
    """The same accesses, some as bounds."""
    rows = rows.copy()
    for row, end in zip(rows, end_of(rows).tolist(), strict=True):
        if row[3] and row[4] and rng.random() < 0.5:
            row[1:] = (row[1] | PARTLY, row[2], end - row[2], 1, 0)
    return rows


def lazy_table(rng: np.random.Generator, steps: int) -> StepTable:
    """Units and tokens at random, footprints of several memories as bounds."""
    quiet = rng.random() < 0.5  # few accesses, in memories that are filled
    exact = [rows_of(rng, int(rng.choice([1, 2, 4])), 1 if quiet else 4) for _ in range(steps)]
    given = Footprints.of([loose(rng, rows) for rows in exact])
    spaces = tuple(replace(space, initialised=((0, space.size),)) for space in SPACES) if quiet else SPACES
    table = replace(random_table(rng, steps), spaces=spaces)
    return replace(table, footprints=replace(given, exact=exact.__getitem__))


@pytest.mark.parametrize("trial", range(300))
def test_findings_equal_those_of_a_scan_of_everything(trial: int) -> None:
    rng = np.random.default_rng(SEED + trial)
    steps = lazy_table(rng, int(rng.integers(1, 30)))
    relation = order(steps)
    assert out_of_range(steps) == []
    assert hazards(steps, relation) == scan(steps, relation, everything(steps)), f"seed {SEED + trial}"


@pytest.mark.parametrize("trial", range(100))
def test_the_compiled_loop_finds_the_same_ranges(trial: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(SEED - trial)
    steps = lazy_table(rng, int(rng.integers(1, 60)))
    relation = order(steps)
    found = []
    for patience in (1 << 30, 0):
        monkeypatch.setattr(jit, "PATIENCE", patience)
        monkeypatch.setattr(jit, "PATIENCE_IF_ON_DISK", patience)
        monkeypatch.setattr(coarse, "_mark", jit.compiled(coarse._mark.python))
        found.append(suspects(steps, relation))
    np.testing.assert_array_equal(found[0], found[1], err_msg=f"seed {SEED - trial}")


def test_the_random_tables_try_what_matters() -> None:
    """Races, unwritten reads, none of them, and suspects that turn out to be nothing."""
    seen = {"race": 0, "unwritten": 0, "clean": 0, "cleared": 0, "proven": 0}
    for trial in range(300):
        rng = np.random.default_rng(SEED + trial)
        steps = lazy_table(rng, int(rng.integers(1, 30)))
        relation = order(steps)
        kinds = {finding.kind for finding in hazards(steps, relation)}
        seen["race"] += RACE in kinds
        seen["unwritten"] += UNINITIALISED in kinds
        seen["clean"] += not kinds
        possible = suspects(steps, relation)
        seen["cleared"] += bool(len(possible)) and not kinds
        seen["proven"] += len(possible) == 0 and any(len(steps.footprints.of_step(f)) for f in range(len(steps)))
    assert min(seen.values()) >= 3, seen


def test_too_many_accesses_are_scanned_in_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.sim.suspects.MAX_ACCESSES", 10)
    for trial in range(20):
        rng = np.random.default_rng(SEED - trial)
        steps = lazy_table(rng, 30)
        relation = order(steps)
        assert hazards(steps, relation) == scan(steps, relation, everything(steps))


def test_exact_footprints_are_built_only_where_bounds_meet() -> None:
    """Two writers of interleaved elements: one pair in order, one not."""
    built: list[int] = []
    exact = [np.array([[0, WRITE, base, 1, 4, 2]], np.int64) for base in (0, 1, 20, 21)]
    given = [np.array([[0, WRITE | PARTLY, base, 7, 1, 0]], np.int64) for base in (0, 1, 20, 21)]
    table = random_table(np.random.default_rng(0), 4)
    unit = np.array([0, 1, 0, 0])
    none = np.zeros(4, np.int64)

    def build(footprint: int) -> Array:
        built.append(footprint)
        return exact[footprint]

    cut = np.array([[0, WRITE, 16, 1, 1, 0]], np.int64)  # a cell of its own for each pair
    footprints = Footprints.of([*given, cut])
    table = replace(
        table, spaces=SPACES, unit=unit, pops=none, pushes=none, footprint=np.arange(4), footprints=footprints
    )
    table = replace(table, footprints=replace(footprints, exact=lambda f: build(f) if f < 4 else cut))
    assert hazards(table, order(table)) == []
    assert sorted(set(built)) == [0, 1]


def test_out_of_range_by_bounds_names_the_exact_rows() -> None:
    exact = [np.array([[3, READ, 10, 2, 3, 7]], np.int64)]
    given = Footprints.of([np.array([[3, READ | PARTLY, 10, 16, 1, 0]], np.int64)])
    table = replace(random_table(np.random.default_rng(0), 1), spaces=SPACES, footprint=np.zeros(1, np.int64))
    (finding,) = out_of_range(replace(table, footprints=replace(given, exact=exact.__getitem__)))
    assert (finding.space, finding.low, finding.high) == ("d", 10, 26)
