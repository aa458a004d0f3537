"""The run of an ELF file as the result that pages and timelines show: its regions between markers are the layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from tilewright.report.metrics import Layer
from tilewright.report.result import RunResult
from tilewright.sim.figures import by_size
from tilewright.sim.findings import Finding
from tilewright.targets.cfu.config import Config
from tilewright.targets.cfu.timing.costs import MODELS

from .core import Region, Run
from .launch import causes, trace


def result(
    name: str,
    run: Run,
    config: Config,
    timing: str,
    machine: Mapping[str, object],
    findings: tuple[Finding, ...],
    divided: Mapping[str, Mapping[str, int]],
) -> RunResult:
    """Return the result of a program called `name`. `divided` has all its cycles by function and by source line.

    `machine` is the target's description of `config`.
    """
    regions = run.regions or (Region(0, run.cycles, run.instret, {}, 0, 0),)
    alone = len(regions) == 1
    shares = {what: [dict(parts)] for what, parts in divided.items()}
    timed = trace(run.cycles, regions, [_title(one) for one in regions], lambda: shares if alone else {})
    together: dict[int, list[Region]] = {}
    for one in regions:
        together.setdefault(one.region, []).append(one)
    layers = [_layer(parts) for parts in together.values()]
    layers[0] = replace(layers[0], trace=timed)
    return RunResult(
        model=name,
        target="cfu",
        config=config.to_dict(),
        rounding="",
        timing=timing,
        evidence=MODELS[timing].source.evidence,
        samples=1,
        outputs={},
        layers=tuple(layers),
        findings=findings,
        matches_reference=None,
        macs_per_cycle=config.macs_per_cycle,
        seconds=0.0,
        bound=run.instret,
        clock_mhz=float(config.clock_mhz),
        program=None,
        machine=dict(machine),
        checked=True,
    )


def _title(region: Region) -> str:
    return f"region {region.region}" if region.region else "outside of regions"


def _layer(parts: list[Region]) -> Layer:
    """Return all parts of the run that have one number as a layer."""
    found = Counter[str]()
    for part in parts:
        found.update(causes(part))
    times = f", {len(parts)} times" if len(parts) > 1 else ""
    return Layer(
        name=_title(parts[0]) + times,
        op="code",
        where="cfu",
        cycles=sum(part.cycles for part in parts),
        causes=by_size({cause: cycles for cause, cycles in found.items() if cycles > 0}),
        dram_read_bytes=sum(part.read for part in parts),
        dram_write_bytes=sum(part.written for part in parts),
        bound=sum(part.instructions for part in parts),
    )
