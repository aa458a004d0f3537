"""Searches on machines whose results are a formula: how much of the space they measure, and what they find."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.explore.pareto import front, hypervolume
from tilewright.explore import Study, _search
from tilewright.explore.measure import Subject
from tilewright.explore.pool import InProcess
from tilewright.explore.sampler import Grid, GuidedSampler
from tilewright.explore.space import Axis, Space
from tilewright.explore.trial import BASE, MEASURED, REFUSED, Trial
from tilewright.targets import get

AXES = {"LOG_INP_BUFF_SIZE": "9..18", "LOG_WGT_BUFF_SIZE": "12..20", "LOG_ACC_BUFF_SIZE": "10..17", "stages": "3..4"}
AXES |= {"alu": "upstream, rounding, fused"}


class Formula(InProcess):
    """Machines with a trade-off between time and area, with steps, plateaus and a corner that is refused."""

    def ended(self) -> Trial:
        point, keys = self._waiting.popleft()
        return by_formula(point, keys)


def by_formula(point: int, keys: Mapping[str, str]) -> Trial:
    inp, wgt, acc = (int(keys[f"LOG_{name}_BUFF_SIZE"]) for name in ("INP", "WGT", "ACC"))
    alu, stages = ("upstream", "rounding", "fused").index(keys["alu"]), int(keys["stages"])
    if stages == 4 and alu == 1:
        return Trial(point, keys, REFUSED, str(point), "no such pair")
    misses = 900 / min(inp, 15) + 1500 / min(wgt + (acc > 13), 18) + 400 / acc + 40 * (inp < 12) * (acc > 15)
    cycles = misses * (1.0 - 0.12 * alu) * (0.9 if stages == 4 else 1.0)
    area = 2.0**inp + 2.0**wgt + 2.0**acc * (1.5 if stages == 4 else 1) + 3000 * alu + 5000 * (stages - 3)
    return Trial(point, keys, MEASURED, str(point), values={"time": round(cycles, 3), "area": area})


def study(seed: int = 0) -> Study:
    space = Space(tuple(Axis.of(key, values) for key, values in AXES.items()))
    config = get("vta").config(None, {}).to_dict()
    made = Study(Subject("vta", (), config), space, ("time", "area"), seed)
    made.trials[BASE] = Trial(BASE, {}, MEASURED, "base", values={"time": 1e9, "area": 1e9})
    return made


def volume(found: Study, grid: Study) -> float:
    worst = grid.points().max(axis=0) * 1.01
    return hypervolume(found.points(), worst) / hypervolume(grid.points(), worst)


@pytest.fixture(scope="module")
def grid() -> Study:
    made = study()
    with Formula(made.subject) as pool:
        _search(made, Grid(made), pool, made.space.size, False, None)
    return made


def test_a_grid_measures_all_that_is_not_refused(grid: Study) -> None:
    assert grid.space.size == 4320
    assert len(grid.measured) + grid.count(REFUSED) == grid.space.size
    assert sum(grid.refusals().values()) == grid.count(REFUSED) > 0


def test_the_front_of_a_study_is_that_of_its_points(grid: Study) -> None:
    """The study updates its front with every machine; the other way looks at all machines at once."""
    expected = sorted(map(tuple, grid.points()[front(grid.points())].tolist()))
    assert [trial.objectives(grid.objectives) for trial in grid.front()] == expected


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_a_search_finds_the_front_with_a_tenth_of_the_trials(grid: Study, seed: int) -> None:
    found = study(seed)
    with Formula(found.subject) as pool:
        _search(found, GuidedSampler(found), pool, len(grid.measured) // 10, False, None)
    assert len(found.measured) == len(grid.measured) // 10
    assert volume(found, grid) >= 0.99, f"seed {seed}"


@pytest.mark.parametrize("seed", range(3))
def test_a_search_of_a_small_space_finds_most_of_its_front(seed: int) -> None:
    """28 machines of 288, of which 24 are on the front."""
    keys = AXES | {"LOG_INP_BUFF_SIZE": "11..14", "LOG_WGT_BUFF_SIZE": "13..17", "LOG_ACC_BUFF_SIZE": "13..16"}
    space = Space(tuple(Axis.of(key, values) for key, values in keys.items()))
    whole, found = study(), study(seed)
    whole.space = found.space = space
    with Formula(whole.subject) as pool:
        _search(whole, Grid(whole), pool, space.size, False, None)
    with Formula(found.subject) as pool:
        _search(found, GuidedSampler(found), pool, len(whole.measured) // 10, False, None)
    assert volume(found, whole) >= 0.97, f"seed {seed}"


def test_a_search_repeats_itself_and_never_a_point() -> None:
    runs = []
    for _ in range(2):
        found = study(7)
        with Formula(found.subject) as pool:
            _search(found, GuidedSampler(found), pool, 60, False, None)
        runs.append([trial.point for trial in found.trials.values()])
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == len(runs[0])


class BaseLast(Formula):
    """Workers of which one needs longer for the base machine than the others for all their machines."""

    workers = 3

    def ended(self) -> Trial:
        point, keys = self._waiting.pop()
        host = {"net": ("a",) if point < 0 else ("b",) if point % 2 else ()}
        if point == BASE:
            return Trial(BASE, {}, MEASURED, "base", values={"time": 1e9, "area": 1e9}, host=host)
        return replace(by_formula(point, keys), host=host)


def test_machines_wait_for_the_base_machine() -> None:
    found = study()
    del found.trials[BASE]
    with BaseLast(found.subject) as pool:
        _search(found, Grid(found), pool, 40, True, None)
    assert next(point for point, trial in found.trials.items() if trial.digest) == BASE
    assert len(found.measured) == 40
    more = [trial.reason for trial in found.trials.values() if trial.point % 2 and trial.digest and trial.point != BASE]
    assert set(more) == {"the host would run 1 more layers than on the base machine"}


def test_a_search_ends_when_the_space_does() -> None:
    small = study()
    small.space = Space(
        (
            Axis.of("stages", "3..4"),
            *(Axis(axis.key, axis.values[:1], True) for axis in small.space.axes if axis.key != "stages"),
        )
    )
    with Formula(small.subject) as pool:
        _search(small, GuidedSampler(small), pool, 100, False, None)
    assert len(small.trials) == 1 + small.space.size
