"""How fast machines are explored, how well, and whether kills lose anything.

    python bench/explore.py [--full] [--json]

points_per_core_hour_cold, _warm: ResNet-18 (pow2) on VTA, 60 machines with empty caches, then a second study of these
machines in a new process (as one with another table of energies), with the times of plans that the first one left. A
point is a machine that differs from all others, timed whole; a core-hour is wall time times workers.
efficiency_two_workers: the time of one worker over twice the time of two, median of pairs; each study has POINTS
machines and empty caches.
hypervolume_ratio: of the front that a search finds in a tenth of the trials of a small network's grid, to the grid's;
median of SEARCHES seeds. search_trials are those of one search, and grid_trials the legal machines of the space.
kills: processes of a Dask cluster (scheduler, worker, client) that were killed at random; lost: finished trials that
are missing later; repeated: finished trials that were measured again (tests/explore/kills.py).
"""

from __future__ import annotations

import json
import os
import random
import runpy
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, TypeVar

import click

from tilewright.cli import options
from tilewright.explore import Study, explore, study_of
from tilewright.explore.space import Space

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))  # for `tests`
DIGITS = HERE.parent / "examples" / "digits" / "digits.tflite"
#: Machines of the cold and of the warm study.
SPACE = {"LOG_INP_BUFF_SIZE": "13..15", "LOG_WGT_BUFF_SIZE": "16..18", "LOG_ACC_BUFF_SIZE": "15..17"}
SPACE |= {"LOG_BUS_WIDTH": "6..8"}
POINTS = 60
#: The space of the search with --full: 4,704 points. Without, 640 of them.
SMALL = {"LOG_INP_BUFF_SIZE": "10..16", "LOG_WGT_BUFF_SIZE": "12..19", "LOG_ACC_BUFF_SIZE": "12..18"}
SMALL |= {"alu": "upstream, fused", "stages": "3..4", "LOG_BUS_WIDTH": "6..8"}
SMALLER = {**SMALL, "LOG_INP_BUFF_SIZE": "11..14", "LOG_WGT_BUFF_SIZE": "13..17", "LOG_ACC_BUFF_SIZE": "13..16"}
SMALLER |= {"LOG_BUS_WIDTH": "6..7"}
SEARCHES = 3
#: Random kills with --full, and without.
KILLS, FEWER = 200, 6
T = TypeVar("T")


def studied(model: Path, keys: Mapping[str, str], seed: int = 0) -> Study:
    return study_of([model], "vta", Space.from_json({"keys": dict(keys)}), ("cycles", "on_chip_kib"), seed=seed)


def rate(model: Path) -> float:
    """Return the points per core-hour of one worker. The base machine is no point, but takes time."""
    return POINTS / seconds(model, 1, POINTS) * 3600


def seconds(model: Path, workers: int, points: int) -> float:
    """Return the wall time of a study with a number of workers."""
    began = perf_counter()
    explore(studied(model, SPACE), trials=points, prune=False, workers=workers)
    return perf_counter() - began


def afresh(function: Callable[..., T], *given: Any, folder: str) -> T:
    """Call a function in a new process, with a cache folder."""
    os.environ["TILEWRIGHT_CACHE_DIR"] = folder
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(function, *given).result()


def efficiency(model: Path, pairs: int) -> float:
    """Return the time of one worker over twice the time of two, the median of pairs."""
    found = []
    for _ in range(pairs):
        spent = []
        for workers in (1, 2):
            with TemporaryDirectory() as folder:
                spent.append(afresh(seconds, model, workers, POINTS, folder=folder))
        found.append(spent[0] / (2 * spent[1]))
    return median(found)


def search(keys: Mapping[str, str], progress: Any) -> dict[str, Any]:
    """Measure a space whole, then search it with a tenth of the trials; return how much of the front is found."""
    from tests.explore.pareto import hypervolume

    grid = studied(DIGITS, keys)
    explore(grid, grid=True, prune=False, workers=2, progress=progress)
    worst, ratios = grid.points().max(axis=0) * 1.01, []
    for seed in range(SEARCHES):
        found = studied(DIGITS, keys, seed)
        explore(found, trials=len(grid.measured) // 10)
        ratios.append(hypervolume(found.points(), worst) / hypervolume(grid.points(), worst))
    ratio = median(ratios)
    return {"grid_trials": len(grid.measured), "search_trials": len(found.measured), "hypervolume_ratio": ratio}


def killed(count: int, seed: int, progress: Any) -> dict[str, int]:
    """Kill processes of a cluster at random; return how many, and what was lost or repeated."""
    from tests.explore.kills import kill_at_random

    with TemporaryDirectory() as folder:
        made = kill_at_random(Path(folder), count, random.Random(seed), progress)
    return {"kills": made.kills, "lost": made.lost, "repeated": made.repeated}


@click.command(help="Measure how machines are explored. This file's first lines say what is what.")
@click.option("--full", is_flag=True, help="All points, the search of the whole grid, five pairs, 200 kills: hours.")
@click.option("--seed", type=int, help="Of the kills.  [default: random]")
@options.as_json
def main(full: bool, seed: int | None, as_json: bool) -> None:
    networks = runpy.run_path(str(HERE / "networks.py"))
    model, _ = networks["prepare"]("resnet18", 0, "pow2", networks["CACHE"])
    seed = random.randrange(1 << 32) if seed is None else seed
    click.echo(f"seed of the kills: {seed}", err=True)
    figures: dict[str, Any] = {}

    def add(**found: float) -> None:
        for name, value in found.items():
            click.echo(f"{name:26} {value:,.4g}", err=as_json)
        figures.update(found)

    with options.progress_bar() as bar:
        with TemporaryDirectory() as folder:
            for name in ("cold", "warm"):
                add(**{f"points_per_core_hour_{name}": afresh(rate, model, folder=folder)})
        add(efficiency_two_workers=efficiency(model, 5 if full else 3))
        add(**search(SMALL if full else SMALLER, bar))
        add(**killed(KILLS if full else FEWER, seed, bar))
    if as_json:
        click.echo(json.dumps(figures))


if __name__ == "__main__":
    main()
