"""The run of an ELF file as the result that pages and timelines show: its regions between markers are the layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tilewright.sim.figures import Figures, by_size
from tilewright.sim.findings import Finding
from tilewright.targets.base import LaunchResult
from tilewright.targets.users import Sections

from .core import Region, Run
from .launch import causes, trace


def sections(run: Run, findings: tuple[Finding, ...], divided: Mapping[str, Mapping[str, int]]) -> Sections:
    """Return the sections of a run: one for all regions of one number.

    `divided` has all cycles of the run by function and by source line.
    """
    regions = run.regions or (Region(0, run.cycles, run.instret, {}, 0, 0),)
    shares = {what: [dict(parts)] for what, parts in divided.items()} if len(regions) == 1 else {}
    timed = trace(run.cycles, regions, [_title(region) for region in regions], lambda: shares)
    together: dict[int, list[Region]] = {}
    for region in regions:
        together.setdefault(region.region, []).append(region)
    names = []
    for parts in together.values():
        times = f", {len(parts)} times" if len(parts) > 1 else ""
        names.append(_title(parts[0]) + times)
    figures = tuple(_figures(parts) for parts in together.values())
    return Sections(tuple(names), LaunchResult({}, findings, timed, figures, bound=run.instret))


def _title(region: Region) -> str:
    return f"region {region.region}" if region.region else "outside of regions"


def _figures(parts: list[Region]) -> Figures:
    """Return the figures of all parts of the run that have one number."""
    total = Counter[str]()
    for part in parts:
        total.update(causes(part))
    return Figures(
        cycles=sum(part.cycles for part in parts),
        causes=by_size({cause: cycles for cause, cycles in total.items() if cycles > 0}),
        dram_read_bytes=sum(part.read for part in parts),
        dram_write_bytes=sum(part.written for part in parts),
        bound=sum(part.instructions for part in parts),
    )
