"""Runs a program step by step, on the target and on the host, and measures each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from time import perf_counter

import numpy as np

from tilewright import host, targets
from tilewright.array import Array, one_thread
from tilewright.errors import InputError
from tilewright.garbage import uncollected
from tilewright.graph import reference
from tilewright.graph.ir import Graph
from tilewright.program.program import HostStep, Launch, Program, runs_programs
from tilewright.report.metrics import Deviation, Layer, Result
from tilewright.sim.findings import Finding
from tilewright.sim.passes import RunOptions
from tilewright.targets.abilities import Approximates, Batches
from tilewright.targets.base import LaunchResult, Target

#: Samples run together until the values of one step take so many bytes; host steps take up to so many a value.
TOGETHER_BYTES, BYTES_A_VALUE = 1 << 28, 24

#: Called with (steps done, steps in all, name of the next step).
Progress = Callable[[int, int, str], None]


@runs_programs
def run(
    program: Program,
    inputs: Array | Mapping[str, Array],
    *,
    timing: str | None = None,
    check: bool = True,
    compare: bool = True,
    order: str = "stream",
    seed: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Run S samples through a compiled network.

    `check` looks for hazards, `compare` for differences from `graph.reference`. `timing` names a timing model
    (None: the target's first). Raises InputError for inputs that do not fit and for another `order` than the stream's
    on a target without this pass, MachineError for a program that cannot run.
    """
    began = perf_counter()
    graph, target = _graph(program), targets.get(program.target)
    model = timing_model(target, timing)
    if order != "stream" and "order" not in target.passes:
        raise InputError("order", f"{target.name} has one order of work, not '{order}'", "leave it out")
    options = RunOptions(model, check, True, order, seed)
    samples = reference.check_inputs(graph, inputs)
    total, block = next(iter(samples.values())).shape[0], samples_together(graph)
    if isinstance(target, Batches):
        block += -block % target.samples_a_launch(program)
    peak = int(target.describe(target.config(program.config, {}))["macs_per_cycle"])
    parts: list[dict[str, Array]] = []
    layers: list[Layer] = []
    findings: list[Finding] = []
    matches: bool | None = None
    deviations: dict[str, Deviation] = {}
    for start in range(0, total, block):
        some = {name: array[start : start + block] for name, array in samples.items()}
        with one_thread(), uncollected():
            outputs, rows, found = _block(target, program, some, options, peak, None if start else progress)
        parts.append(outputs)
        findings = findings if start else found
        layers = (
            [replace(a, seconds=a.seconds + b.seconds) for a, b in zip(layers, rows, strict=True)] if start else rows
        )
        if compare:
            golden = reference.run(graph, some, program.rounding)
            if isinstance(target, Approximates) and target.approximates(program):
                for name in graph.outputs:
                    own = Deviation.of(outputs[name], golden[name])
                    deviations[name] = deviations[name].with_more(own) if name in deviations else own
                continue
            equal = all(np.array_equal(outputs[name], golden[name]) for name in graph.outputs)
            matches = equal and matches is not False
    return Result(
        model=graph.name,
        target=program.target,
        config=program.config,
        rounding=program.rounding,
        timing=model or "",
        evidence=next((m.evidence for m in target.timing_models if m.name == model), ""),
        samples=total,
        outputs={name: np.concatenate([part[name] for part in parts]) for name in graph.outputs},
        layers=tuple(layers),
        findings=tuple(findings),
        matches_reference=matches,
        macs_per_cycle=peak,
        seconds=perf_counter() - began,
        deviations=deviations,
    )


def samples_together(graph: Graph) -> int:
    """How many samples run together: as many as keep the largest step's values within TOGETHER_BYTES."""
    widest = max(sum(tensor.size for tensor in (*site.inputs, *site.outputs) if tensor) for site in graph.sites())
    return max(1, TOGETHER_BYTES // (BYTES_A_VALUE * widest))


def _block(
    target: Target,
    program: Program,
    samples: Mapping[str, Array],
    options: RunOptions,
    peak: int,
    progress: Progress | None,
) -> tuple[dict[str, Array], list[Layer], list[Finding]]:
    """Outputs, layers and findings of some samples; a value is dropped once nothing needs it any more."""
    graph = _graph(program)
    values: dict[str, Array] = dict(samples)
    last_use = {name: node.name for node in graph.nodes for name in node.inputs}
    ran = {name for step in program.steps for name in ((step.node,) if isinstance(step, HostStep) else step.nodes)}
    passed_over = (node for node in graph.nodes if node.name not in ran)  # their readers read what they would
    kept = {*graph.outputs, *(name for node in passed_over for name in node.inputs)}
    layers: list[Layer] = []
    findings: list[Finding] = []
    for index, step in enumerate(program.steps):
        if progress:
            progress(index, len(program.steps), step.name)
        if isinstance(step, HostStep):
            rows, results, found = _host(program, step, values)
        else:
            rows, results, found = _launch(target, program, step, values, options, peak)
        values.update(results)
        done = {step.node} if isinstance(step, HostStep) else set(step.nodes)
        for name in [name for name in values if last_use.get(name) in done and name not in kept]:
            del values[name]
        layers.extend(rows)
        findings.extend(finding.inside(step.name) for finding in found)
    return {name: values[name] for name in graph.outputs}, layers, findings


def timing_model(target: Target, name: str | None) -> str | None:
    """The timing model called `name`, or the target's first. Raises InputError naming those that exist."""
    known = [model.name for model in target.timing_models]
    if name is None:
        return known[0] if known else None
    if name not in known:
        raise InputError("--timing", f"{target.name} has no timing model '{name}'", f"choose one of {', '.join(known)}")
    return name


def _graph(program: Program) -> Graph:
    if program.graph is None:
        raise InputError("program", "holds bare instructions without a network", "run it with `tilewright exec`")
    return program.graph


def _host(
    program: Program, step: HostStep, values: Mapping[str, Array]
) -> tuple[list[Layer], dict[str, Array], list[Finding]]:
    began = perf_counter()
    graph = _graph(program)
    results = host.run_node(graph, step.node, values, program.rounding)
    node = graph.node(step.node)
    layer = Layer(
        name=step.node,
        op=node.op.label,
        where="host",
        reason=step.reason,
        macs=node.op.macs(graph.site(node)),
        seconds=perf_counter() - began,
    )
    return [layer], results, []


def _launch(
    target: Target, program: Program, step: Launch, values: Mapping[str, Array], options: RunOptions, peak: int
) -> tuple[list[Layer], dict[str, Array], list[Finding]]:
    began = perf_counter()
    graph = _graph(program)
    result = target.launch(program, step, values, options)
    nodes = [graph.node(name) for name in step.nodes]
    macs = [node.op.macs(graph.site(node)) for node in nodes]
    whole = layer_of(target, step, "+".join(node.op.label for node in nodes), sum(macs), peak, result, began)
    layers = [whole]
    if result.parts:
        layers = [
            replace(
                whole,
                name=node.name,
                op=node.op.label,
                cycles=part.cycles,
                serial_cycles=part.serial_cycles,
                macs=count,
                executed_macs=executed,
                utilization=_utilization(executed, part.cycles, whole.macs_per_cycle),
                dram_read_bytes=part.bytes_read,
                dram_write_bytes=part.bytes_written,
                stalls=part.stalls,
                seconds=whole.seconds / len(nodes),
                trace=None if index else whole.trace,
            )
            for index, (node, count, part, executed) in enumerate(
                zip(nodes, macs, result.parts, result.macs_of, strict=True)
            )
        ]
    return layers, dict(result.values), list(result.findings)


def _utilization(executed: int, cycles: int, peak: int) -> float:
    """The executed multiply-accumulates over those that the array could do in these cycles: at most 1."""
    return executed / (cycles * peak) if cycles else 0.0


def layer_of(target: Target, step: Launch, op: str, macs: int, peak: int, result: LaunchResult, began: float) -> Layer:
    """The report's row of a launch."""
    trace = result.trace
    cycles = trace.cycles if trace else 0
    peak = result.macs_per_cycle or peak
    return Layer(
        name=step.name,
        op=op,
        where=target.name,
        cycles=cycles,
        serial_cycles=result.serial_cycles,
        macs=macs,
        executed_macs=result.executed_macs,
        macs_per_cycle=peak,
        utilization=_utilization(result.executed_macs, cycles, peak),
        dram_read_bytes=int(trace.bytes_read.sum()) + trace.fetch_bytes if trace else 0,
        dram_write_bytes=int(trace.bytes_written.sum()) if trace else 0,
        stalls=trace.stalls(result.unit) if trace else {},
        seconds=perf_counter() - began,
        trace=trace,
    )
