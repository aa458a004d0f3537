"""Replay golden vectors: programs, with the memory after runs on libgemmini and on RTL, and the times of RTL runs.

A vector passes under four conditions. The bytes in memory are equal to those of each implementation that ran the
program. The loops expand to the same primitive commands as in the RTL. All times of commands, and the total of cycles,
are those of the RTL. The check has findings only if the implementations disagree, or if the RTL's bytes are not those
of the program order. The RTL's totals are in the file `index.json` beside the vectors. Without this file, totals are
not compared.

The builds `both` and `wsonly` (the folder gemmini_vectors) are of 2023. Their bytes are those of libgemmini. The builds
`u23` and `u25` (gemmini_sizes) are upstream's Chisel of each revision, and their bytes are those of the RTL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import TilewrightError
from tilewright.fields import parsed
from tilewright.files import Entries, arrays, untrusted
from tilewright.program.launch_image import Dram, Segment
from tilewright.sim.findings import PORTABILITY, WRITE_DISTANCE
from tilewright.targets.base import ConformCase
from tilewright.targets.gemmini.config import PRESETS, Config
from tilewright.targets.gemmini.hazards import order
from tilewright.targets.gemmini.passes import Passes
from tilewright.targets.gemmini.values.machine import Machine

REMEDY = "give the .npz files of golden vectors (gemmini_vectors or gemmini_sizes)"
#: The address of the first byte of `dram`.
BASE = 0x8000_0000
#: The keys of the machine that each RTL build adds to those of the vector's machine.
BUILDS: dict[str, dict[str, Any]] = {
    "both": {"rtl": 2023},
    "wsonly": {"rtl": 2023, **PRESETS["wsonly"]},
    "u23": {"rtl": 2023},
    "u25": {"rtl": 2025},
}
#: The builds whose bytes are those of the RTL.
UPSTREAM = ("u23", "u25")
#: The machines of gemmini_sizes that are no presets. A name may end with `_2025`, which the build repeats.
_DIM8 = PRESETS["dim8"]
MACHINES: dict[str, dict[str, Any]] = {
    "dim32": {**_DIM8, "dim": 32},
    "osonly": {**_DIM8, "dataflow": "os"},
    "mixA": {
        **{**_DIM8, "spad_banks": 2, "spad_rows": 512, "acc_banks": 4, "bus_bytes": 4, "dma_bytes": 32},
        **{"rs_load": 4, "rs_execute": 8, "rs_store": 4, "queue_load": 2, "queue_execute": 4, "queue_store": 1},
        **{"reads_in_flight": 4, "writes_in_flight": 4},
    },
    "mixB": {
        **{"dim": 4, "spad_banks": 8, "spad_rows": 256, "acc_banks": 1, "acc_rows": 256},
        **{"rs_load": 16, "rs_execute": 32, "rs_store": 8, "queue_load": 4, "queue_execute": 16, "queue_store": 4},
        **{"reads_in_flight": 64, "writes_in_flight": 64, "bus_bytes": 32, "dma_bytes": 128},
    },
    "mixC": {
        **{**_DIM8, "dataflow": "ws", "spad_banks": 16, "spad_rows": 128, "acc_banks": 8, "pe_bits": 16},
        **{"rs_load": 4, "rs_execute": 4, "rs_store": 4, "queue_load": 1, "queue_execute": 6, "queue_store": 3},
        **{"reads_in_flight": 2, "writes_in_flight": 2, "bus_bytes": 8, "dma_bytes": 16},
    },
    "norm4": {**PRESETS["dim4"], "normaliser": 1},
    "norm8": {**_DIM8, "normaliser": 1},
}
#: Random programs of gemmini_sizes, most of which have findings without any effect.
RANDOM = "mix_"
_RUN = re.compile(r"accept_(\w+)_(\d+)")

Vector = Mapping[str, Array]
Counts = dict[str, tuple[int, int]]


class Run(NamedTuple):
    """An RTL run of a vector: the build, the memory latency, and the passes on the machine of the build."""

    build: str
    latency: str
    passes: Passes

    @property
    def key(self) -> str:
        return f"{self.build}_{self.latency}"


def conform(path: Path) -> ConformCase:
    """Compare the simulator with a golden vector. Raises InputError if the file is not a golden vector."""
    counts: Counts = {}
    vector = Entries(path, "array", REMEDY, arrays(path, remedy=REMEDY))
    try:
        with untrusted(path, REMEDY):
            reason = _replay(path.stem, vector, _about(path), counts)
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


def _replay(name: str, vector: Vector, about: Mapping[str, Any], counts: Counts) -> str:
    """Return the first difference from the golden results, or "" if all results are equal."""
    machine, _, program = name.partition("__")
    machine = machine.removesuffix("_2025")
    config = Config.read(MACHINES.get(machine, machine), {"rtl": "2023"})
    # The builds of gemmini_vectors have no normaliser, so programs with norm commands were run only on libgemmini.
    work = Passes(vector["cmds"], config).work
    if len(work.config_norm[0]) or work.stores.local.norm.any():
        config = replace(config, normaliser=1)
    recorded = [match.groups() for match in map(_RUN.fullmatch, vector) if match]
    runs = [Run(build, latency, _passes(vector, config, build, latency)) for build, latency in recorded]
    if not any(run.build in UPSTREAM for run in runs):
        functional = Passes(vector["cmds"], replace(config, semantics="functional", rtl=2025))
        if reason := _difference(_in_order(functional, vector), vector, vector["out_bytes"]):
            return f"functional: {reason}"
        agreed = all(f"out_bytes_{run.key}" not in vector for run in runs)
        checked = runs[0].passes if runs else functional
        if agreed and (findings := checked.hazards.findings):
            return f"the check reports a correct program: {findings[0]}"
    for run in runs:
        rtl_run = about.get(run.build, {}).get(run.latency, {})
        reason = _rtl(run, vector)
        if not reason and run.build in UPSTREAM and not program.startswith(RANDOM):
            reason = _alarm(run, vector)
        if not reason and "err" not in rtl_run:
            reason = _times(run, vector, rtl_run.get("cycles"), counts)
        if reason:
            return f"RTL {run.build}, latency {run.latency}: {reason}"
    return ""


def _passes(vector: Vector, config: Config, build: str, latency: str) -> Passes:
    return Passes(vector["cmds"], replace(config, memory_latency=int(latency), **BUILDS[build]))


def _memory(passes: Passes, vector: Vector, sequence: Array) -> Array:
    dram = Dram([Segment("dram", BASE, vector["dram"].reshape(1, -1).copy())])
    Machine(passes.config, dram, 1).run(passes.plan, sequence)
    return dram["dram"][0]


def _in_order(passes: Passes, vector: Vector) -> Array:
    return _memory(passes, vector, np.arange(len(passes.prims)))


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


def _rtl(run: Run, vector: Vector) -> str:
    """Compare memory with an RTL run, unless an accumulation may be lost. A race has two allowed outcomes."""
    hazards = run.passes.hazards
    if any(finding.kind == WRITE_DISTANCE for finding in hazards.findings):
        return ""
    # Upstream's programs contain traps of which the check says only that the result is wrong.
    if run.build in UPSTREAM and any(finding.kind != PORTABILITY for finding in hazards.findings):
        return ""
    memories = [_in_order(run.passes, vector)]
    # For each race, also execute the commands in the other order.
    for kind, early, late, _ in (*hazards.conflicts, *hazards.hasty):
        begin = early + 1 if kind == order.RESULT else early  # the next compute writes a preload's result
        earlier = np.insert(np.delete(np.arange(len(run.passes.prims)), late), begin, late)
        memories.append(_memory(run.passes, vector, earlier))
    return _difference(memories, vector, _golden(run, vector))


def _golden(run: Run, vector: Vector) -> Array:
    return vector.get(f"out_bytes_{run.key}", vector["out_bytes"])


def _alarm(run: Run, vector: Vector) -> str:
    """Return the first finding about a program whose bytes on the RTL are those of the program order."""
    # A residual addition loads the last row of blocks of B completely (loops/matmul.py), possibly with bytes that the
    # same loop writes. No result depends on these bytes.
    source = run.passes.hazards.source
    findings = [
        finding
        for finding in run.passes.hazards.findings
        if finding.kind != PORTABILITY and len({int(source[step]) for step in finding.steps}) == len(finding.steps)
    ]
    if findings and not _difference(_in_order(run.passes, vector), vector, _golden(run, vector)):
        return f"the check reports a correct program: {findings[0]}"
    return ""


def _times(run: Run, vector: Vector, total: int | None, counts: Counts) -> str:
    """Compare primitive commands, times and the total with an RTL run, and count the equal times."""
    times = run.passes.times
    if f"prim_{run.key}" in vector:
        prims = run.passes.expansion.prims[times.order]
        golden = vector[f"prim_{run.key}"]
        if prims.shape != golden.shape:
            return f"{len(prims)} primitive commands, not {len(golden)}"
        if (wrong := np.flatnonzero((prims != golden).any(axis=1))).size:
            return f"primitive command {wrong[0]} differs, and {wrong.size - 1} more"
    ours = np.stack([column[times.order] for column in (times.taken, times.issued, times.done)], axis=1)
    recorded = vector[f"times_{run.key}"]
    equal = (ours == recorded)[recorded >= 0]
    label = f"{run.build} at latency {run.latency}"
    counts[f"times of commands exact, {label}"] = int(equal.sum()), equal.size
    if total is not None:
        counts[f"totals exact, {label}"] = int(times.cycles == total), 1
    if total not in (None, times.cycles):
        return f"{times.cycles} cycles, not {total}"
    return "" if equal.all() else f"{equal.size - equal.sum()} times of commands differ"
