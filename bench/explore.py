"""How fast machines are explored, and how well: exact points per core-hour, use of two workers, trials of a search.

    python bench/explore.py [--full] [--json]

A point is a machine that differs from all others, timed whole; a core-hour is wall time times workers. cold: ResNet-18
(pow2) on VTA, 60 machines, with empty caches; warm: 60 other machines after these. efficiency_two_workers: the time of
one worker over twice the time of two, median of pairs that take turns. The search is on a space of a small network,
whose grid is measured first (--full only). tests/explore/test_cluster.py kills workers, schedulers and clients.
"""

from __future__ import annotations

import json
import runpy
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import click

from tilewright.cli import options
from tilewright.explore import Study, explore, study_of
from tilewright.explore.front import hypervolume
from tilewright.explore.space import Space

HERE = Path(__file__).resolve().parent
DIGITS = HERE.parent / "examples" / "digits" / "digits.tflite"
#: Machines of the cold study, then of the warm one: the same sizes with another DRAM.
SIZES = {"LOG_INP_BUFF_SIZE": "13..15", "LOG_WGT_BUFF_SIZE": "16..18", "LOG_ACC_BUFF_SIZE": "15..17"}
COLD = {**SIZES, "LOG_BUS_WIDTH": "6..8"}
WARM = {**SIZES, "dram_latency": "32, 64, 128"}
POINTS = 60
#: The space of the search: 4,704 points.
SMALL = {"LOG_INP_BUFF_SIZE": "10..16", "LOG_WGT_BUFF_SIZE": "12..19", "LOG_ACC_BUFF_SIZE": "12..18"}
SMALL |= {"alu": "upstream, fused", "stages": "3..4", "LOG_BUS_WIDTH": "6..8"}
PAIR = {"LOG_INP_BUFF_SIZE": "11..15", "LOG_ACC_BUFF_SIZE": "12..17"}


def studied(model: Path, keys: Mapping[str, str]) -> Study:
    return study_of([model], "vta", Space.from_json({"keys": dict(keys)}), ("cycles", "on_chip_kib"))


def rate(model: Path, keys: Mapping[str, str], points: int) -> float:
    """Return the points per core-hour of one worker; the base machine counts as time, not as a point."""
    study, began = studied(model, keys), perf_counter()
    explore(study, trials=points, prune=False)
    return len(study.measured) / (perf_counter() - began) * 3600


def efficiency(pairs: int) -> float:
    """Return the time of one worker over twice the time of two, the median of pairs."""
    found = []
    for _ in range(pairs):
        seconds = []
        for workers in (1, 2):
            study, began = studied(DIGITS, PAIR), perf_counter()
            explore(study, grid=True, prune=False, workers=workers)
            seconds.append(perf_counter() - began)
        found.append(seconds[0] / (2 * seconds[1]))
    return median(found)


def search(progress: Any) -> dict[str, Any]:
    """Measure a space whole, then search it with a tenth of the trials; return how much of the front is found."""
    grid, found = studied(DIGITS, SMALL), studied(DIGITS, SMALL)
    explore(grid, grid=True, prune=False, workers=2, progress=progress)
    trials = len(grid.measured) // 10
    explore(found, trials=trials, prune=False)
    worst = grid.points().max(axis=0) * 1.01
    ratio = hypervolume(found.points(), worst) / hypervolume(grid.points(), worst)
    return {"grid_trials": len(grid.measured), "search_trials": len(found.measured), "hypervolume_ratio": ratio}


@click.command()
@click.option("--full", is_flag=True, help="The search on the whole grid as well.")
@options.as_json
def main(full: bool, as_json: bool) -> None:
    networks = runpy.run_path(str(HERE / "networks.py"))
    model, _ = networks["prepare"]("resnet18", 0, "pow2", networks["CACHE"])
    figures: dict[str, Any] = {}
    with options.progress_bar() as bar:
        figures["points_per_core_hour_cold"] = rate(model, COLD, POINTS)
        figures["points_per_core_hour_warm"] = rate(model, WARM, POINTS)
        figures["efficiency_two_workers"] = efficiency(5 if full else 3)
        if full:
            figures |= search(bar)
    lines = [f"{name:26} {value:,.4g}" for name, value in figures.items()]
    click.echo(json.dumps(figures) if as_json else "\n".join(lines))


if __name__ == "__main__":
    main()
