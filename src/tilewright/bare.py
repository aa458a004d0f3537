"""Runs a program that has no network: assembled text, whose launches carry their own data."""

from __future__ import annotations

from time import perf_counter

from tilewright import targets
from tilewright.array import Array, one_thread
from tilewright.program.program import Program
from tilewright.report.metrics import Layer, Result
from tilewright.run import layer_of, timing_model
from tilewright.sim.findings import Finding
from tilewright.sim.passes import RunOptions


def run(program: Program, *, timing: str | None = None, check: bool = True) -> Result:
    """One run of every launch; outputs are what the launches give back. Raises MachineError as `run.run` does."""
    began = perf_counter()
    target = targets.get(program.target)
    model = timing_model(target, timing)
    peak = int(target.describe(target.config(program.config, {}))["macs_per_cycle"])
    options = RunOptions(timing=model, check=check)
    layers: list[Layer] = []
    findings: list[Finding] = []
    outputs: dict[str, Array] = {}
    for step in program.launches:
        started = perf_counter()
        with one_thread():
            result = target.launch(program, step, {}, options)
        outputs.update(result.values)
        findings.extend(finding.inside(step.name) for finding in result.findings)
        layers.append(layer_of(target, step, "program", result.executed_macs, peak, result, started))
    return Result(
        model=program.launches[0].name if program.launches else "program",
        target=program.target,
        config=program.config,
        rounding="",  # nothing is requantised by the host, and nothing compared
        timing=model or "",
        evidence=next((known.evidence for known in target.timing_models if known.name == model), ""),
        samples=1,
        outputs=outputs,
        layers=tuple(layers),
        findings=tuple(findings),
        matches_reference=None,
        macs_per_cycle=peak,
        seconds=perf_counter() - began,
    )
