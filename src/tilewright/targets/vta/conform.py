"""Replay golden vectors (programs with results of upstream's implementations), and compare every result.

A vector has the bytes that upstream's implementations computed, or the times of instructions in runs of upstream's
Chisel RTL (arrays `times_BUILD_LATENCY`). The times are compared with the timing model `chisel`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import TilewrightError
from tilewright.fields import parsed
from tilewright.files import Entries, arrays, untrusted
from tilewright.program.launch_image import Dram, Segment
from tilewright.sim.order import order
from tilewright.sim.passes import RunOptions
from tilewright.targets.base import ConformCase
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.isa.fields import FORMAT_OF, PAGE, REGIONS, paged
from tilewright.targets.vta.isa.stream import COMMON_NAMES, decode, decode_uops
from tilewright.targets.vta.passes import run_passes
from tilewright.targets.vta.steps.elaborate import elaborate
from tilewright.targets.vta.timing import MODELS

REMEDY = "give the .npz files of golden vectors (vta_vectors, vta_chisel_vectors)"
TIMES = "times_"
#: The configuration keys of each build of the RTL that the model covers. Builds of older sources are not covered.
BUILDS: Mapping[str, Mapping[str, Any]] = {
    "pynq": {},
    "de10": {"burst_beats": 16},
    "wide128": {"LOG_BUS_WIDTH": 7},
    "tsim_pynq": {"memory_model": "tsim"},
    "tsim_de10": {"memory_model": "tsim", "burst_beats": 16},
}


def conform(path: Path) -> ConformCase:
    """Replay a golden vector, and return whether our results agree. Raises InputError for any other file."""
    vector = Entries(path, "array", REMEDY, arrays(path, remedy=REMEDY))
    if any(name.startswith(TIMES) for name in vector):
        return _times(path, vector)
    with untrusted(path, REMEDY):
        meta, keys = (parsed(str(vector[name])) for name in ("meta", "config"))
    try:
        with untrusted(path, REMEDY):
            reason = _replay(vector, Entries(path, "key of `meta`", REMEDY, meta), Config.from_json(keys))
    except TilewrightError as error:
        reason = str(error)
    return ConformCase(path.stem, not reason, reason)


def _replay(vector: Mapping[str, Array], meta: Mapping[str, Any], config: Config) -> str:
    """Return the first difference from the golden results, or "". Each result is compared under its own semantics."""
    if "expect" in meta:
        return _diagnosis(vector, meta["expect"], config)
    golden = {meta["primary"]: vector["out_after"]}
    if "out_after_fsim" in vector:
        golden["fsim"] = vector["out_after_fsim"]
    for name, output in golden.items():
        reason = _outputs(vector, output, config.with_overrides({"semantics": name}))
        if reason:
            return f"{name}: {reason}"
    return _fields(vector, config)


def _times(path: Path, vector: Mapping[str, Array]) -> ConformCase:
    """Compare the starts and ends of instructions with those of each recorded run of the RTL."""
    counts: dict[str, tuple[int, int]] = {}
    reasons = []
    for name in vector:
        build, _, latency = name.removeprefix(TIMES).rpartition("_")
        if not name.startswith(TIMES) or build not in BUILDS:
            continue
        with untrusted(path, REMEDY):
            keys = {"semantics": "chisel", "dram_latency": int(latency), **BUILDS[build]}
            config = PRESETS["pynq"].with_overrides(keys)
            bases = _bases(vector)
            program = elaborate(decode(vector["insn"], config), config, _recorded(vector, bases), bases)
        trace = MODELS["chisel"].trace(program, order(program.table))
        # The RTL counts from the launch bit, one cycle before our cycle 0. A step that is done in cycle d ends in cycle
        # d.
        ours = np.stack((trace.start + 1, trace.end), axis=1)
        equal = ours == vector[name]
        label = f"{build} at latency {latency}"
        counts[f"starts and ends exact, {label}"] = int(equal.sum()), equal.size
        counts[f"totals exact, {label}"] = int(trace.cycles == vector[name][:, 1].max()), 1
        if not equal.all():
            step = int(np.flatnonzero(~equal.all(axis=1))[0])
            start, end = ours[step]
            golden = vector[name][step]
            text = f"#{step} {program.table.describe(step)} runs from {start} to {end}, not {golden[0]} to {golden[1]}"
            reasons.append(f"{label}: {text}")
    if "out_after" in vector:
        different = _recorded_bytes(vector)
        counts["output bytes exact"] = int(not different), 1
        reasons += different
    return ConformCase(path.stem, not reasons, "; ".join(reasons[:1]), counts)


def _recorded_bytes(vector: Mapping[str, Array]) -> list[str]:
    """Return the difference of our output bytes from those of the RTL, if they differ."""
    config = PRESETS["pynq"].with_overrides({"semantics": "chisel"})
    bases = _bases(vector)
    dram = _recorded(vector, bases)
    run_passes(vector["insn"], config, dram, bases, 1, RunOptions(check=False))
    return list(filter(None, [_different(dram["out"], vector["out_after"])]))


def _bases(vector: Mapping[str, Array]) -> dict[str, int]:
    return dict(zip(REGIONS, vector["base"][1:].tolist(), strict=True))


def _recorded(vector: Mapping[str, Array], bases: Mapping[str, int]) -> Dram:
    """Return the data of a recorded program. Vectors of networks have no data, because cycles do not depend on data."""
    data = {name: vector.get("out_before" if name == "out" else name) for name in REGIONS}
    return Dram([Segment(name, bases[name], rows.reshape(1, -1)) for name, rows in data.items() if rows is not None])


def _diagnosis(vector: Mapping[str, Array], expected: str, config: Config) -> str:
    dram, bases = memory(vector)
    passes = run_passes(vector["insn"], config, dram, bases, 1, RunOptions(values=False))
    kinds = sorted({finding.kind for finding in passes.findings})
    return "" if expected in kinds else f"expected a {expected}, found {kinds or 'nothing'}"


def _outputs(vector: Mapping[str, Array], golden: Array, config: Config) -> str:
    dram, bases = memory(vector)
    passes = run_passes(vector["insn"], config, dram, bases, 1, RunOptions())
    if passes.findings:
        return f"the check reports a correct program: {passes.findings[0]}"
    return _different(dram["out"], golden)


def _different(output: Array, golden: Array) -> str:
    wrong = np.flatnonzero((output.reshape(golden.shape) != golden).any(axis=1))
    return f"{wrong.size} of {len(golden)} output tiles differ, the first at out[{wrong[0]}]" if wrong.size else ""


def memory(vector: Mapping[str, Array]) -> tuple[Dram, dict[str, int]]:
    """Return the DRAM of a golden vector, one page-aligned segment for each region, and each region's base address."""
    segments = []
    bases = {}
    address = PAGE
    for name in REGIONS:
        data = vector["out_before" if name == "out" else name]
        bases[name] = address
        if data.size:
            segments.append(Segment(name, address, data.reshape(1, -1).copy(), initialised=name != "out"))
        address += paged(data.size) + PAGE
    return Dram(segments), bases


def _fields(vector: Mapping[str, Array], config: Config) -> str:
    """Return a message about the first field or micro-op that we decode differently from the vector, or ""."""
    if "fields" in vector:
        stream = decode(vector["insn"], config)
        for row, stored in enumerate(parsed(str(vector["fields"]))):
            part = getattr(stream, FORMAT_OF.get(int(stream.opcode[row]), ""), stream)
            for name, value in stored.items():
                # The vectors name token bits as upstream does: pop_prev_dep.
                ours = name.removesuffix("_dep")
                source = stream if ours in COMMON_NAMES else part
                if hasattr(source, ours) and int(getattr(source, ours)[row]) != value:
                    return f"instruction {row}: {name} decodes to {getattr(source, ours)[row]}, not {value}"
    uops = np.stack(decode_uops(vector["uop"], config), axis=1)
    return "" if np.array_equal(uops, vector.get("uop_fields", uops)) else "micro-ops decode differently"
