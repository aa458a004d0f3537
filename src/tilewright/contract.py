"""Checks of the contract that every target keeps: `for check in CHECKS: check(target)`.

A check that fails raises AssertionError, or the error that the target raised. A target's own tests run all checks, and
Tilewright's tests run all checks on every installed target.
"""

from __future__ import annotations

import json
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.coverage import Offers
from tilewright.debug.session import Session
from tilewright.errors import ConfigError, InputError
from tilewright.graph.ir import Graph, Node, Quant, Tensor
from tilewright.graph.ops import Conv2D, FullyConnected, Op, Reshape, Softmax, Window
from tilewright.program import file, stages
from tilewright.program.program import Launch, Program
from tilewright.report.metrics import HOST
from tilewright.report.timeline import CAUSES, PATH, timeline
from tilewright.run import run
from tilewright.sim.walk import Walk
from tilewright.targets.base import Target, Walks
from tilewright.whatif import on_machine, what_if_timing, whatifs

Check = Callable[[Target], None]
SAMPLES = 5
#: The number of positions in each launch at which the states of a debugger are compared.
POSITIONS = 6


def says_what_it_is(target: Target) -> None:
    """Check that presets have a peak and a clock, timing models have evidence, and configurations give a C header."""
    assert target.name.isidentifier() and target.title and target.timing_models
    assert all(model.evidence for model in target.timing_models)
    for preset in target.presets:
        config = target.config(preset, {})
        facts = target.describe(config)
        assert facts["macs_per_cycle"] > 0 and facts["clock_mhz"] > 0
        header = target.header(config)
        assert header.isascii() and header.endswith("\n") and "#ifndef " in header


def configurations_round_trip(target: Target) -> None:
    """Check that a configuration saved as JSON is read back equal, and that an unknown key raises ConfigError."""
    for preset in (None, *target.presets):
        config = target.config(preset, {})
        again = target.config(json.loads(json.dumps(config.to_dict())), {})
        assert again == config, preset
        assert (again.to_dict(), again.digest()) == (config.to_dict(), config.digest()), preset
    for source, key in ((None, "no_such_key"), ({"no_such_key": 1}, "")):
        try:
            target.config(source, {key: "1"} if key else {})
        except ConfigError:
            continue
        raise AssertionError(f"a configuration with an unknown key is accepted: {source or key}")


def outputs_equal_the_reference(target: Target) -> None:
    """Check that outputs equal the reference bit for bit, without hazards, under every rounding mode.

    Every layer must have cycles, or a reason why the layer ran on the host.
    """
    for rounding in ("tflm", "litert", "xnnpack", "ort"):
        program = target.compile(network(), target.config(None, {}), rounding)
        result = run(program, inputs())
        assert result.matches_reference is True, f"outputs differ from the reference ({rounding})"
        assert result.findings == (), result.findings[0]
        nodes = [name for step in program.steps for name in (step.nodes if isinstance(step, Launch) else [step.node])]
        assert [layer.name for layer in result.layers] in (nodes, [step.name for step in program.steps])
        assert any(layer.where == target.name for layer in result.layers), "no layer runs on the target"
        for layer in result.layers:
            assert (layer.where == "host") == bool(layer.reason), layer.name
            assert layer.where == "host" or layer.cycles > 0, layer.name
            assert layer.executed_macs <= layer.cycles * layer.macs_per_cycle, (
                f"{layer.name}: more MACs than the array can do in its cycles"
            )
            assert layer.where == "host" or bool(layer.executed_macs) >= bool(layer.macs), f"{layer.name}: no MACs"
            assert not layer.serial_cycles or layer.cycles <= layer.serial_cycles, layer.name


def a_saved_program_is_the_same_program(target: Target) -> None:
    """Check that a program loaded from its file gives the same outputs, cycles and explanation."""
    program = _program(target)
    with tempfile.TemporaryDirectory() as folder:
        file.save(program, Path(folder) / "p.twp")
        again = file.load(Path(folder) / "p.twp")
    assert run(again, inputs()).cycles == run(program, inputs()).cycles
    _same(run(again, inputs()).outputs, run(program, inputs()).outputs, "saved")
    assert target.explain(again) == target.explain(program)


def explain_counts_the_cycles_of_a_run(target: Target) -> None:
    """Check that `explain` gives the cycles of each launch, for every timing model and for the default one.

    It must also explain a program that was assembled from text, without a network.
    """
    program = _program(target)
    bare = target.assemble(target.disassemble(program), target.config(program.config, {}))
    assert program.launches[0].name in stages.text(target.explain(bare))
    for model in (None, *(timing.name for timing in target.timing_models)):
        text = stages.text(target.explain(program, model))
        # `explain` does not run the network, so it has no cycles for a target whose cycles depend on values.
        if "order" not in target.passes:
            continue
        cycles: dict[str, int] = {}
        for layer in run(program, inputs()[:1], timing=model).layers:
            launch = next((step.name for step in program.launches if layer.name in (step.name, *step.nodes)), "")
            cycles[launch] = cycles.get(launch, 0) + layer.cycles
        for name, count in cycles.items():
            assert not name or f"{count} cycles" in text, f"{name}: {count} cycles by {model} are not in the text"


def tracks_of_units_and_layers_agree(target: Target) -> None:
    """Check that the layers of a launch, its trace and its timeline agree, and that slices do not overlap."""
    result = run(_program(target), inputs()[:1])
    ends: list[tuple[int, int]] = []
    # The first layer of a launch has the trace. The cycles of its other layers are added to the first.
    for layer in result.layers:
        if layer.trace:
            ends.append((layer.cycles, layer.trace.cycles))
        elif ends and layer.where != HOST:
            ends[-1] = ends[-1][0] + layer.cycles, ends[-1][1]
    for layers, launch in ends:
        assert layers == launch, f"layers take {layers} cycles, their launch {launch}"
    shown = timeline(result)
    for event in shown.events:
        assert event.start + (event.duration or 0) <= result.cycles, f"{event.name} ends after the run"
    for track in range(len(shown.tracks)):
        mine = [
            (shown_event.start, shown_event.start + shown_event.duration)
            for shown_event in shown.events
            if shown_event.track == track and shown_event.duration
        ]
        assert all(a[1] <= b[0] for a, b in pairwise(mine)), f"steps of {shown.tracks[track]} overlap"
    causes = Counter[str]()
    for event in shown.events:
        if shown.tracks[event.track] in (PATH, CAUSES):
            causes[event.name] += event.duration or 0
    assert causes == result.causes, f"the slices of {PATH} have {dict(causes)}, the layers {result.causes}"


def every_order_that_tokens_allow_gives_the_same(target: Target) -> None:
    """Check that other orders of steps give the same outputs; a target without an order pass must refuse them."""
    program = _program(target)
    if "order" not in target.passes:
        try:
            run(program, inputs(), order="random")
        except InputError:
            return
        raise AssertionError("an order is accepted although the target has no order pass")
    expected = run(program, inputs()).outputs
    orders: list[dict[str, Any]] = [{"order": "time"}, *({"order": "random", "seed": seed} for seed in range(4))]
    for options in orders:
        _same(run(program, inputs(), **options).outputs, expected, str(options))


def no_run_beats_its_bound(target: Target) -> None:
    """Check that the lower bound of the cycles does not exceed the cycles of a run, under every timing model."""
    for model in target.timing_models:
        result = run(_program(target), inputs()[:1], timing=model.name)
        assert 0 <= result.bound <= result.cycles, f"{model.name}: {result.cycles} cycles, bound {result.bound}"
        for layer in result.layers:
            assert 0 <= layer.bound <= layer.cycles, f"{layer.name}: {layer.cycles} cycles, bound {layer.bound}"


def what_ifs_equal_runs(target: Target) -> None:
    """Check the what-ifs without recompilation: a run on each changed machine has the same cycles and outputs."""
    program = _program(target)
    result = run(program, inputs()[:1])
    for what_if in whatifs(program, result, inputs()):
        changed = on_machine(program, {key: str(value) for key, value in what_if.set.items()})
        again = run(changed, inputs()[:1], timing=what_if_timing(result.timing, what_if.timing))
        assert again.cycles == what_if.cycles, f"{what_if.change}: {what_if.cycles} cycles, a run takes {again.cycles}"
        assert again.matches_reference is True and not again.findings, what_if.change
        assert what_if.layers == {layer.name: layer.cycles for layer in again.layers if layer.where != HOST}, (
            what_if.change
        )


def the_debugger_equals_a_straight_run(target: Target) -> None:
    """Check that the debugger's state after jumps in both directions equals the state of a run without jumps.

    At the end of the last launch, no tensor differs from the reference.
    """
    if not isinstance(target, Walks):
        return
    rng = np.random.default_rng(0)
    session = Session(_program(target), inputs()[:1])
    for name in session.launches:
        session.launch(name)
        walk = session.walk
        sequence = session.walk.order.sequence
        state = walk.start()
        at = 0
        expected = dict[int, list[int]]()
        for position in sorted({0, len(sequence), *rng.integers(0, len(sequence) + 1, POSITIONS).tolist()}):
            state.execute(sequence[at:position])
            at = position
            expected[position] = _content(walk, state.memory, state.dram)
        for position in rng.permutation([*expected] * 2).tolist():
            session.to(int(sequence[position])) if position < len(sequence) else session.end()
            content = _content(walk, session.read, lambda low, size: session.read(f"dram[{low}:{low + size}]"))
            assert content == expected[position], f"launch {name}, position {position}"
    assert session.differs() is None


def _content(walk: Walk, memory: Callable[[str], Array], dram: Callable[[int, int], Array]) -> list[int]:
    parts = [*map(memory, walk.memories), *(dram(part.address, part.size) for part in walk.segments if part.size)]
    return [zlib.crc32(part.tobytes()) for part in parts]


def samples_do_not_influence_each_other(target: Target) -> None:
    """Check that a sample has the same outputs in a run of one sample and in a run of several samples."""
    program = _program(target)
    together = run(program, inputs())
    for index in range(SAMPLES):
        alone = run(program, inputs()[index : index + 1])
        assert alone.cycles == together.cycles or (index > 0 and "order" not in target.passes)
        expected = {name: values[index : index + 1] for name, values in together.outputs.items()}
        _same(alone.outputs, expected, f"sample {index}")


def text_is_read_back_exactly(target: Target) -> None:
    """Check that disassembled text assembles to the same code, even without the lines that name the machine."""
    program = _program(target)
    text = target.disassemble(program)
    for source in (text, file.with_machine(program, text)):
        again = target.assemble(source, target.config(program.config, {}))
        assert target.disassemble(again) == text
        for first, second in zip(program.launches, again.launches, strict=True):
            np.testing.assert_array_equal(first.arrays["insns"], second.arrays["insns"])


def check_finds_nothing_in_compiled_programs(target: Target) -> None:
    assert list(target.check(_program(target))) == []


def json_is_stable(target: Target) -> None:
    printed = json.loads(json.dumps(run(_program(target), inputs()).to_json()))
    keys = "model target config rounding timing samples cycles macs utilization seconds matches_reference hazards"
    assert {*keys.split(), "layers"} <= set(printed)
    keys = "name op where cycles macs utilization dram_read_bytes dram_write_bytes stalls"
    assert all(set(keys.split()) <= set(layer) for layer in printed["layers"])
    assert printed["cycles"] == sum(layer["cycles"] for layer in printed["layers"])
    for counted in (printed, *printed["layers"]):
        assert sum(counted["causes"].values()) == counted["cycles"], "each cycle needs exactly one cause"


def offers_are_true(target: Target) -> None:
    """Check that each offered option is legal, and that the machine runs each layer for which `takes` is true."""
    if not isinstance(target, Offers):
        return
    for option in target.offers:
        key, _, value = option.partition("=")
        config = target.config(None, {key: value})
        program = target.compile(network(), config, "tflm")
        mine = {name for launch in program.launches for name in launch.nodes}
        for site in network().sites():
            assert site.node.name in mine or not target.takes(site, config, "tflm"), f"{option}: {site.node.name}"


CHECKS: tuple[Check, ...] = (
    says_what_it_is,
    configurations_round_trip,
    outputs_equal_the_reference,
    a_saved_program_is_the_same_program,
    explain_counts_the_cycles_of_a_run,
    tracks_of_units_and_layers_agree,
    every_order_that_tokens_allow_gives_the_same,
    no_run_beats_its_bound,
    what_ifs_equal_runs,
    the_debugger_equals_a_straight_run,
    samples_do_not_influence_each_other,
    text_is_read_back_exactly,
    check_finds_nothing_in_compiled_programs,
    json_is_stable,
    offers_are_true,
)


@cache
def network() -> Graph:
    """Return a small int8 network (random weights): 3x3 and 1x1 convolutions, two fully connected layers, a softmax."""
    rng = np.random.default_rng(0)
    tensors = {"x": Tensor("x", (1, 6, 6, 3), "int8", Quant((0.03,), (-7,)))}
    nodes: list[Node] = []

    def add(name: str, op: Op, shape: tuple[int, ...], scale: float, zero: int, *weights: int) -> None:
        before = nodes[-1].outputs[0] if nodes else "x"
        operands = [before]
        if weights:
            channels = shape[-1]
            per_channel = Quant(
                tuple(float(np.float32(s)) for s in rng.uniform(0.002, 0.01, channels)), (0,) * channels
            )
            data = rng.integers(-127, 128, weights).astype(np.int8)
            bias = rng.integers(-2000, 2000, channels).astype(np.int32)
            tensors[f"{name}/w"] = Tensor(f"{name}/w", weights, "int8", per_channel, data)
            tensors[f"{name}/b"] = Tensor(f"{name}/b", bias.shape, "int32", None, bias)
            operands += [f"{name}/w", f"{name}/b"]
        tensors[f"{name}/y"] = Tensor(f"{name}/y", shape, "int8", Quant((float(np.float32(scale)),), (zero,)))
        nodes.append(Node(name, op, tuple(operands), (f"{name}/y",)))

    same = Window.same((6, 6), (3, 3), (2, 2), (1, 1))
    add("conv3x3", Conv2D("relu", same), (1, 3, 3, 20), 0.06, -128, 20, 3, 3, 3)
    add("conv1x1", Conv2D("none", Window()), (1, 3, 3, 7), 0.2, 5, 7, 1, 1, 20)
    add("flat", Reshape((1, 63)), (1, 63), 0.2, 5)
    add("dense", FullyConnected("relu"), (1, 33), 0.7, -128, 33, 63)
    add("scores", FullyConnected("none"), (1, 10), 2.0, 3, 10, 33)
    add("softmax", Softmax(), (1, 10), 1 / 256, -128)
    return Graph("contract", tensors, tuple(nodes), ("x",), ("softmax/y", "scores/y")).validate()


@cache
def inputs() -> Array:
    """Return random input codes for the graph of `network()`, int8 (SAMPLES, 1, 6, 6, 3)."""
    return np.random.default_rng(1).integers(-128, 128, (SAMPLES, 1, 6, 6, 3)).astype(np.int8)


def _program(target: Target) -> Program:
    return target.compile(network(), target.config(None, {}), "tflm")


def _same(actual: Mapping[str, Array], expected: Mapping[str, Array], what: str) -> None:
    assert set(actual) == set(expected), what
    for name, values in expected.items():
        np.testing.assert_array_equal(actual[name], values, err_msg=f"{what}: {name}")
