"""The machine's cycles equal those of the RTL: every command's times, every acceptance, every total."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.targets.gemmini.vectors import FOLDER, names, parted, program, runs
from tilewright.targets.gemmini.loops import expand
from tilewright.targets.gemmini.passes import Passes
from tilewright.targets.gemmini.timing import run


@cache
def index() -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """Return what the RTL runs gave, by program, build and latency."""
    entries = (entry for path in FOLDER.glob("index*.json") for entry in json.loads(path.read_text(encoding="utf-8")))
    return {entry["name"]: entry.get("rtl", {}) for entry in entries}


def totals(name: str) -> dict[tuple[str, int], int]:
    """Return the recorded totals of a program, by build and latency; none where an assertion stopped the RTL."""
    return {
        (build, int(latency)): figures["cycles"]
        for build, latencies in index()[name].items()
        for latency, figures in latencies.items()
        if "assert" not in (figures.get("err") or "")
    }


@pytest.mark.golden
@pytest.mark.parametrize("name", parted(names(config="default")))
def test_all_times_are_those_of_the_rtl(name: str) -> None:
    arrays, _ = program(name)
    recorded = totals(name)
    for rtl_run in runs(arrays):
        if (rtl_run.build, rtl_run.latency) not in recorded:
            continue
        times = run(arrays["cmds"], expand(arrays["cmds"], rtl_run.config), rtl_run.config, rtl_run.latency)
        where = f"{rtl_run.build}, latency {rtl_run.latency}"
        ours = np.stack([times.taken, times.issued, times.done], axis=1)[times.order]
        np.testing.assert_array_equal(ours, rtl_run.times, err_msg=where)
        np.testing.assert_array_equal(times.accept, rtl_run.accept, err_msg=where)
        assert times.cycles == recorded[rtl_run.build, rtl_run.latency], where


@pytest.mark.golden
def test_hardly_any_run_is_left_out() -> None:
    recorded = {name: builds for name, builds in index().items() if builds}
    compared = sum(len(totals(name)) for name in recorded)
    assert compared > 400
    assert sum(len(latencies) for builds in recorded.values() for latencies in builds.values()) - compared <= 4


@pytest.mark.golden
def test_no_run_of_the_rtl_beats_the_bound() -> None:
    tight = 0.0
    for name in names(config="default"):
        arrays, _ = program(name)
        recorded = totals(name)
        for rtl_run in runs(arrays):
            if (cycles := recorded.get((rtl_run.build, rtl_run.latency))) is not None:
                bound = Passes(arrays["cmds"], rtl_run.config).bound
                assert bound <= cycles, f"{name} on {rtl_run.build} at latency {rtl_run.latency}"
                tight = max(tight, bound / cycles)
    assert tight > 0.9
