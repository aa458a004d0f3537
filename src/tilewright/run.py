"""Runs a program step by step, on the target and on the host, and measures each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Protocol, runtime_checkable

import numpy as np

from tilewright import targets
from tilewright.array import Array, one_thread, uncollected
from tilewright.errors import InputError, MachineError, option
from tilewright.graph import reference
from tilewright.graph.ir import Graph, Site
from tilewright.program.program import HostStep, Launch, Program
from tilewright.report.metrics import HOST, Deviation, Layer
from tilewright.report.result import RunResult
from tilewright.sim.figures import Definition, Figures
from tilewright.sim.findings import Finding
from tilewright.sim.passes import RunOptions
from tilewright.targets import given
from tilewright.targets.base import Config, LaunchResult, Target, TimesByMachine
from tilewright.targets.users import Execution

#: The memory limit, in bytes, of samples that run together. A host step uses up to BYTES_A_VALUE bytes per value.
TOGETHER_BYTES = 1 << 28
BYTES_A_VALUE = 24

#: A callback with the number of finished steps, the number of all steps, and the name of the next step.
Progress = Callable[[int, int, str], None]


@runtime_checkable
class Approximates(Protocol):
    """A target that can compute real numbers in its own number format, which is not bit-exact to the reference."""

    def takes_real(self, config: Config) -> bool:
        """Return whether a machine with this configuration computes real numbers."""

    def approximates(self, program: Program) -> bool:
        """Return whether this program computes real numbers. A run then reports deviations instead of equality."""


@runtime_checkable
class Defines(Protocol):
    """A target that defines each cause of its cycles, and gives advice on reducing these cycles."""

    causes: Mapping[str, Definition]


@runtime_checkable
class Batches(Protocol):
    """A target whose launches can take several samples at a time."""

    def samples_a_launch(self, program: Program) -> int:
        """Return the number of samples in a full launch. A launch with fewer samples takes the same cycles."""


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
    reset: bool = False,
) -> RunResult:
    """Run S samples through a compiled network; `tilewright.Program.run` documents the parameters.

    Raises InputError if the inputs do not fit the network, or if `order` is not "stream" and the target has no order
    pass. Raises MachineError if the program cannot run.
    """
    graph = _graph(program)
    job = _Job(program, timing, check, order, seed)
    target = job.target
    if order != "stream" and "order" not in target.passes:
        raise InputError("order", f"{target.name} cannot run in the order '{order}'", "leave out `order`")
    samples = reference.check_inputs(graph, inputs)
    total = next(iter(samples.values())).shape[0]
    block = samples_together(graph)  # samples per block; a block runs the whole network before the next block starts
    if isinstance(target, Batches):
        block += -block % target.samples_a_launch(program)  # round up to full launches
    parts: list[dict[str, Array]] = []
    layers: list[Layer] = []
    findings: list[Finding] = []
    compared = _Compared(program)
    golden: dict[str, Array] | None = None
    for some in reference.streamed(graph, samples, block, reset):
        first = not parts
        before = parts[-1] if parts and graph.states and not reset else None
        with one_thread(), uncollected():
            values = {**some, **reference.states(graph, some, before)}
            outputs, rows, new_findings = _block(job, graph, values, progress if first else None)
        parts.append(outputs)
        earlier = set() if first else set(findings)
        # Hazards can depend on values, so later samples may have other findings than the first samples.
        findings.extend(finding for finding in new_findings if finding not in earlier)
        layers = (
            rows if first else [replace(a, seconds=a.seconds + b.seconds) for a, b in zip(layers, rows, strict=True)]
        )
        if compare:
            # The reference has states of its own, so that an error in one block does not hide in later blocks.
            kept = golden if before else None
            golden = reference.results(graph, {**some, **reference.states(graph, some, kept)}, program.rounding)
            compared.add(graph, outputs, golden)
    joined = {name: np.concatenate([part[name] for part in parts]) for name in graph.outputs}
    result = job.result(graph.name, program.rounding, joined, layers, findings)
    return replace(result, samples=total, matches_reference=compared.matches, deviations=compared.deviations)


class _Compared:
    """The comparison of a run with the reference: equality of all results, or the deviations of real numbers."""

    def __init__(self, program: Program) -> None:
        target = targets.get(program.target)
        self._real = isinstance(target, Approximates) and target.approximates(program)
        self.matches: bool | None = None
        self.deviations: dict[str, Deviation] = {}

    def add(self, graph: Graph, outputs: Mapping[str, Array], golden: Mapping[str, Array]) -> None:
        if not self._real:
            equal = all(np.array_equal(outputs[name], golden[name]) for name in graph.results)
            self.matches = equal and self.matches is not False
            return
        for name in graph.outputs:
            more = Deviation.of(outputs[name], golden[name])
            self.deviations[name] = self.deviations[name].with_more(more) if name in self.deviations else more


def run_bare(
    program: Program,
    *,
    timing: str | None = None,
    check: bool = True,
    expected: Mapping[str, Array] | None = None,
    findings: Sequence[Finding] = (),
) -> RunResult:
    """Run each launch of a program without a network (such as assembled text) once, on the data in the program.

    The outputs are the values that the launches return. `expected` has the expected first bytes (uint8 [n]) of some
    outputs, by name. `findings` are earlier findings about the program. Raises MachineError if the program cannot run.
    """
    job = _Job(program, timing, check)
    layers: list[Layer] = []
    all_findings = list(findings)
    outputs: dict[str, Array] = {}
    for step in program.launches:
        with one_thread():
            rows, result = job.launch(step, {})
        layers.extend(rows)
        outputs.update(result.values)
        all_findings.extend(finding.inside(step.name) for finding in result.findings)
    name = program.launches[0].name if program.launches else "program"
    result_ = job.result(name, "", outputs, layers, all_findings)  # no rounding mode: the host requantises nothing
    return replace(result_, matches_reference=not any(differing(outputs, expected))) if expected else result_


def executed(done: Execution, name: str) -> RunResult:
    """Return the result of a run of the program `name` on a target's processor, or of a host in C.

    Raises InputError if the target reports no result for this run.
    """
    if done.program is None:
        where = option("--html, --save and --trace", "result")
        raise InputError(where, "this run has no result to show", "leave out these options")
    if done.sections is None:
        return replace(run_bare(done.program, check=False), findings=done.findings, checked=True)
    job = _Job(done.program, done.timing, check=True)
    names, result = done.sections()
    job.bound = result.bound
    layers = job.layers(result, [(name, "code", 0) for name in names], seconds=0.0)
    shown = job.result(name, "", {}, layers, list(result.findings))
    return replace(shown, seconds=0.0, program=None)


def differing(outputs: Mapping[str, Array], expected: Mapping[str, Array]) -> Iterator[str]:
    """Yield a sentence for each output whose first bytes differ from the expected bytes (uint8 [n])."""
    for name, wanted in expected.items():
        actual = outputs[name].reshape(-1).view(np.uint8)[: wanted.size]
        wrong = np.flatnonzero(actual != wanted)
        if wrong.size:
            first = int(wrong[0])
            differ = f"{wrong.size} of {wanted.size} bytes of {name} differ"
            yield f"{differ}; byte {first} is {actual[first]}, not {wanted[first]}"


def timed(program: Program, timing: str | None) -> Iterator[tuple[Launch, LaunchResult]]:
    """Time each launch of a program.

    Values are computed only on targets whose times depend on values. `timing` is as in `run`.

    Raises MachineError if a launch cannot run to its end.
    """
    target = targets.get(program.target)
    model = timing_model(target, timing, machine_of(program))
    options = RunOptions(model, check=False, values=False, serial=False)
    for launch in program.launches:
        with one_thread():
            result = target.launch(program, launch, {}, options)
        if result.trace is None:
            raise MachineError(f"launch '{launch.name}'", "cannot run to its end")
        yield launch, result


def layer_figures(launch: Launch, result: LaunchResult) -> dict[str, Figures]:
    """Return {layer: figures} for a launch, or {launch: figures} if the target only measures whole launches."""
    names = launch.nodes if len(result.figures) == len(launch.nodes) else (launch.name,)
    return dict(zip(names, result.figures, strict=True))


def layer_cycles(program: Program, timing: str | None) -> dict[str, int]:
    """Return {layer on the machine: cycles} without values. Raises MachineError if a launch cannot run to its end."""
    per_launch = (layer_figures(launch, result) for launch, result in timed(program, timing))
    return {name: figures.cycles for layers in per_launch for name, figures in layers.items()}


def samples_together(graph: Graph) -> int:
    """Return the number of samples to run at once. The values of the widest node must fit in TOGETHER_BYTES."""
    sizes = (sum(tensor.size for tensor in (*site.inputs, *site.outputs) if tensor) for site in graph.sites())
    widest = max(sizes, default=1)
    return max(1, TOGETHER_BYTES // (BYTES_A_VALUE * widest))


def machine_of(program: Program) -> Config:
    """Return the configuration of the machine that a program was compiled for."""
    return targets.get(program.target).config(program.config, {})


def timing_model(target: Target, name: str | None, config: Config) -> str | None:
    """Return `name`, or the first timing model of the machine `config`. None: the target has no timing model.

    `name` may be a what-if of a timing model: "NAME,KEY=VALUE,...". Raises InputError if the target has no such timing
    model.
    """
    if name is None and isinstance(target, TimesByMachine):
        return target.first_timing(config)
    if name is None:
        return target.timing_models[0].name if target.timing_models else None
    return given.timing_model(target.timing_models, name, target.name).name


class _Job:
    def __init__(self, program: Program, timing: str | None, check: bool, order: str = "stream", seed: int = 0) -> None:
        self.began = perf_counter()
        self.program = program
        self.target = targets.get(program.target)
        config = machine_of(program)
        self.options = RunOptions(timing_model(self.target, timing, config), check, True, order, seed)
        self.bound = 0  # lower bound of the cycles of all launches that have run
        about = self.target.describe(config)
        self.machine = about
        self.peak = int(about["macs_per_cycle"])

    def launch(self, step: Launch, values: Mapping[str, Array]) -> tuple[list[Layer], LaunchResult]:
        """Run a launch. Return the launch's layers for the report, and the target's result.

        If the target has figures for each node, each node becomes a Layer. Otherwise, the whole launch becomes one
        Layer.
        """
        began = perf_counter()
        result = self.target.launch(self.program, step, values, self.options)
        self.bound += result.bound
        figures = layer_figures(step, result)
        sites = _sites(self.program, step)
        nodes = [(site.node.op.label, site.node.op.macs(site)) for site in sites]
        if len(figures) != len(nodes):
            macs = sum(count for _, count in nodes) if nodes else result.total.executed_macs
            nodes = [("+".join(label for label, _ in nodes) or "program", macs)]
        named = [(name, op, macs) for name, (op, macs) in zip(figures, nodes, strict=True)]
        return self.layers(result, named, perf_counter() - began), result

    def layers(self, result: LaunchResult, named: Sequence[tuple[str, str, int]], seconds: float) -> list[Layer]:
        """Return the layers of a launch. `named` has a tuple (name, operator, multiply-accumulates) for each layer."""
        layers = []
        for figures, (name, op, macs) in zip(result.figures, named, strict=True):
            peak = figures.macs_per_cycle or self.peak
            share = seconds / len(named)
            layers.append(Layer.of(figures, name, op, self.target.name, macs, seconds=share, macs_per_cycle=peak))
        layers[0] = replace(layers[0], trace=result.trace, events=result.events)  # these describe the whole launch
        return layers

    def result(
        self, model: str, rounding: str, outputs: dict[str, Array], layers: list[Layer], findings: list[Finding]
    ) -> RunResult:
        """Return the result for one sample, not yet compared with the reference."""
        timing = self.options.timing
        return RunResult(
            model=model,
            target=self.program.target,
            config=self.program.config,
            rounding=rounding,
            timing=timing or "",
            evidence=given.timing_model(self.target.timing_models, timing).evidence if timing else "",
            samples=1,
            outputs=outputs,
            layers=tuple(layers),
            findings=tuple(findings),
            matches_reference=None,
            macs_per_cycle=self.peak,
            seconds=perf_counter() - self.began,
            bound=self.bound,
            clock_mhz=float(self.machine["clock_mhz"]),
            program=self.program,
            machine=self.machine,
            definitions=self.target.causes if isinstance(self.target, Defines) else {},
            checked=self.options.check,
        )


def _block(
    job: _Job, graph: Graph, samples: Mapping[str, Array], progress: Progress | None
) -> tuple[dict[str, Array], list[Layer], list[Finding]]:
    """Run a block of samples together. Return outputs, layers and findings."""
    steps = job.program.steps
    values = dict(samples)
    last_use = _last_uses(job.program, graph)
    layers: list[Layer] = []
    findings: list[Finding] = []
    job.bound = 0
    for index, step in enumerate(steps):
        if progress:
            progress(index, len(steps), step.name)
        if isinstance(step, HostStep):
            layers.append(_host(job.program, graph, step, values))
        else:
            rows, result = job.launch(step, values)
            values.update(result.values)
            layers.extend(rows)
            findings.extend(finding.inside(step.name) for finding in result.findings)
        # Delete each tensor after its last use, because a block fills the memory.
        for name in [name for name in values if last_use.get(name) == index]:
            del values[name]
    results = {name: reference.value_of(graph, values, name) for name in graph.results}  # a state may be a constant
    return {name: value for name, value in results.items() if value is not None}, layers, findings


def _last_uses(program: Program, graph: Graph) -> dict[str, int]:
    steps = [(step.node,) if isinstance(step, HostStep) else step.nodes for step in program.steps]
    reads = {node.name: node.inputs for node in graph.nodes}
    ran = {name for nodes in steps for name in nodes}
    # The target may omit a node that only moves data; a later step then reads the inputs of the omitted node.
    passed_over = (node for node in graph.nodes if node.name not in ran)
    kept = {*graph.results, *(name for node in passed_over for name in node.inputs)}
    uses = ((name, index) for index, nodes in enumerate(steps) for node in nodes for name in reads[node])
    return {name: index for name, index in uses if name not in kept}


def _graph(program: Program) -> Graph:
    if program.graph is None:
        raise InputError("program", "holds bare instructions without a network", "run it with `tilewright exec`")
    return program.graph


def _host(program: Program, graph: Graph, step: HostStep, values: dict[str, Array]) -> Layer:
    began = perf_counter()
    values.update(reference.run_node(graph, step.node, values, program.rounding))
    node = graph.node(step.node)
    macs = node.op.macs(graph.site(node))
    seconds = perf_counter() - began
    return Layer(step.node, node.op.label, HOST, reason=step.reason, macs=macs, seconds=seconds)


def _sites(program: Program, launch: Launch) -> list[Site]:
    return [program.graph.site(program.graph.node(name)) for name in launch.nodes] if program.graph else []
