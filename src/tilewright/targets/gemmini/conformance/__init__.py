"""Replay golden vectors: programs, with the memory after runs on libgemmini and on RTL, and the times of RTL runs.

A vector passes under three conditions. The bytes in memory are equal to those of each implementation that ran the
program. The loops expand to the same primitive commands as in the RTL. The total of cycles differs from the RTL's total
by at most 1 % or 3 cycles. The RTL's totals are in the file `index.json` beside the vectors. Without this file, totals
are not compared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import TilewrightError
from tilewright.fields import parsed
from tilewright.files import Entries, arrays, untrusted
from tilewright.program.launch_image import Dram, Segment
from tilewright.sim.findings import WRITE_DISTANCE
from tilewright.targets.base import ConformCase
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.hazards import order
from tilewright.targets.gemmini.passes import Passes
from tilewright.targets.gemmini.values.machine import Machine

REMEDY = "give the .npz files of golden vectors (gemmini_vectors)"
#: The address of the first byte of `dram`.
BASE = 0x8000_0000
#: The preset for each RTL build.
BUILDS = {"both": "default", "wsonly": "wsonly"}
#: A total passes if it differs by at most this fraction, or by at most this number of cycles.
PART = 0.01
CYCLES = 3
_RUN = re.compile(r"accept_(\w+)_(\d+)")

Vector = Mapping[str, Array]
Counts = dict[str, tuple[int, int]]


def conform(path: Path) -> ConformCase:
    """Compare the simulator with a golden vector. Raises InputError if the file is not a golden vector."""
    counts: Counts = {}
    vector = Entries(path, "array", REMEDY, arrays(path, remedy=REMEDY))
    try:
        with untrusted(path, REMEDY):
            reason = _replay(path.stem.partition("__")[0], vector, _about(path), counts)
    except TilewrightError as error:
        reason = str(error)
    return ConformCase(path.stem, not reason, reason, counts)


def _about(path: Path) -> Mapping[str, Any]:
    """Return what `index.json` has about the RTL runs of a vector, by build and latency."""
    index = path.parent / "index.json"
    return _index(index, index.stat().st_mtime_ns).get(path.stem, {}) if index.is_file() else {}


@lru_cache(maxsize=1)
def _index(path: Path, _changed: int) -> Mapping[str, Mapping[str, Any]]:
    """Return the RTL runs of each vector. `_changed` is the file's modification time, for the cache."""
    entries = parsed(path.read_bytes())
    return {entry["name"]: entry.get("rtl", {}) for entry in entries}


def _replay(preset: str, vector: Vector, about: Mapping[str, Any], counts: Counts) -> str:
    """Return the first difference from the golden results, or "" if all results are equal."""
    # The RTL builds have no normaliser, so programs with norm commands were run only on libgemmini.
    config = Config.read(preset, {})
    work = Passes(vector["cmds"], config).work
    if len(work.config_norm[0]) or work.stores.local.norm.any():
        config = replace(config, normaliser=1)
    functional = Passes(vector["cmds"], replace(config, semantics="functional"))
    memory = _memory(functional, vector, np.arange(len(functional.prims)))
    if reason := _difference(memory, vector, vector["out_bytes"]):
        return f"functional: {reason}"
    rtl = Passes(vector["cmds"], config)
    runs = [match.groups() for match in map(_RUN.fullmatch, vector) if match]
    agreed = all(f"out_bytes_{build}_{latency}" not in vector for build, latency in runs)
    if agreed and rtl.hazards.findings:
        return f"the check reports a correct program: {rtl.hazards.findings[0]}"
    for build, latency in runs:
        rtl_run = about.get(build, {}).get(latency, {})
        reason = _rtl(rtl, vector, build, latency)
        if not reason and "err" not in rtl_run:
            reason = _times(rtl, vector, (build, int(latency)), rtl_run.get("cycles"), counts)
        if reason:
            return f"RTL {build}, latency {latency}: {reason}"
    return ""


def _memory(passes: Passes, vector: Vector, sequence: Array) -> Array:
    dram = Dram([Segment("dram", BASE, vector["dram"].reshape(1, -1).copy())])
    Machine(passes.config, dram, 1).run(passes.plan, sequence)
    return dram["dram"][0]


def _difference(results: Array | list[Array], vector: Vector, golden: Array) -> str:
    """Compare memory with golden bytes. Each byte must be equal in at least one memory of `results`."""
    expected = vector["dram"].copy()
    at = 0
    for low, end in vector["out_ranges"].tolist():
        expected[low:end] = golden[at : at + end - low]
        at += end - low
    memories = results if isinstance(results, list) else [results]
    wrong = np.flatnonzero(np.all([memory != expected for memory in memories], axis=0))
    return f"{wrong.size} bytes differ, the first at {BASE + wrong[0]:#x}" if wrong.size else ""


def _rtl(passes: Passes, vector: Vector, build: str, latency: str) -> str:
    """Compare memory with an RTL run, unless an accumulation may be lost. A race has two allowed outcomes."""
    if any(finding.kind == WRITE_DISTANCE for finding in passes.hazards.findings):
        return ""
    steps = np.arange(len(passes.prims))
    memories = [_memory(passes, vector, steps)]
    # For each race, also execute the commands in the other order.
    for kind, early, late, _ in passes.hazards.conflicts:
        begin = early + 1 if kind == order.RESULT else early  # the next compute writes a preload's result
        earlier = np.insert(np.delete(steps, late), begin, late)
        memories.append(_memory(passes, vector, earlier))
    return _difference(memories, vector, vector.get(f"out_bytes_{build}_{latency}", vector["out_bytes"]))


def _times(passes: Passes, vector: Vector, run: tuple[str, int], total: int | None, counts: Counts) -> str:
    """Compare primitive commands and the total with an RTL run, and count the exact times."""
    build, latency = run
    machine = {
        key: getattr(Config.read(BUILDS[build], {}), key) for key in ("dataflow", "reads_in_flight", "writes_in_flight")
    }
    timed = Passes(passes.cmds, replace(passes.config, memory_latency=latency, **machine))
    times = timed.times
    key = f"{build}_{latency}"
    if f"prim_{key}" in vector:
        prims = timed.expansion.prims[times.order]
        golden = vector[f"prim_{key}"]
        if prims.shape != golden.shape:
            return f"{len(prims)} primitive commands, not {len(golden)}"
        if (wrong := np.flatnonzero((prims != golden).any(axis=1))).size:
            return f"primitive command {wrong[0]} differs, and {wrong.size - 1} more"
    ours = np.stack([column[times.order] for column in (times.taken, times.issued, times.done)], axis=1)
    recorded = vector[f"times_{key}"] >= 0
    label = f"{build} at latency {latency}"
    counts[f"times of commands exact, {label}"] = (
        int((ours == vector[f"times_{key}"])[recorded].sum()),
        int(recorded.sum()),
    )
    if total is None:
        return ""
    counts[f"totals exact, {label}"] = int(times.cycles == total), 1
    if abs(times.cycles - total) > max(PART * total, CYCLES):
        return f"{times.cycles} cycles, not {total}"
    return ""
