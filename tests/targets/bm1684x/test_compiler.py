"""Compiled networks: bit for bit what the graph says, without hazards, as real commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests import mlperf
from tests.targets.bm1684x.networks import Builder, mixed, resnet18
from tilewright.array import Array
from tilewright.cli import main
from tilewright.errors import ConfigError, ProgramError
from tilewright.graph import reference
from tilewright.graph.rounding import rounding_mode
from tilewright.program.program import HostStep, Launch, Program
from tilewright.run import run as run_program
from tilewright.sim.findings import RACE
from tilewright.sim.passes import RunOptions
from tilewright.targets.bm1684x import TARGET
from tilewright.targets.bm1684x.compiler.assembly import INPUTS, OUTPUTS, QueuedCommand, Stream
from tilewright.targets.bm1684x.compiler.build import StreamedLaunch
from tilewright.targets.bm1684x.compiler.compile import lower
from tilewright.targets.bm1684x.compiler.layer import Layer
from tilewright.targets.bm1684x.compiler.plan import copy
from tilewright.targets.bm1684x.config import DDR_BASE, Config
from tilewright.targets.bm1684x.isa.command import Command
from tilewright.targets.bm1684x.isa.elaborate import elaborate
from tilewright.targets.bm1684x.isa.meaning import command_of, encoded
from tilewright.targets.bm1684x.isa.operations import DMA, OPERATIONS, TIU
from tilewright.targets.bm1684x.isa.stream import decode, encode, queue
from tilewright.targets.bm1684x.launch import run
from tilewright.targets.bm1684x.launch.image import QueueImage
from tilewright.targets.bm1684x.layouts.tensor import ConvWeights, Tensor
from tilewright.targets.bm1684x.values.dtypes import U8
from tilewright.targets.bm1684x.values.memory import Memories

MODES = ("tflm", "litert", "xnnpack", "ort")
SEEDS = (1, 2, 3)


@pytest.mark.parametrize(("key", "count"), [("ic", None), ("vww", None), ("kws", 60), ("ad", 60)])
def test_mlperf_tiny_computes_the_golden_outputs(shared: Path, key: str, count: int | None) -> None:
    data = mlperf.samples(shared, key)
    program = tw.compile(mlperf.model_path(shared, key), "bm1684x")
    assert [step.node for step in program.steps if isinstance(step, HostStep)] in ([], [program.steps[-1].name])
    result = program.run(data["inputs"][:count], compare=False)
    (outputs,) = result.outputs.values()
    np.testing.assert_array_equal(outputs.reshape(-1, outputs.shape[-1]), data["golden"][:count])
    assert result.findings == ()
    assert result.serial_cycles and 0 < result.cycles < result.serial_cycles


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_networks_equal_the_reference(seed: int, mode: str) -> None:
    graph, inputs = mixed(seed)
    result = tw.compile(graph, "bm1684x", rounding=mode).run(inputs)
    assert result.matches_reference, f"seed {seed}"
    assert result.findings == (), f"seed {seed}"
    taken = [layer for layer in result.layers if layer.where == "bm1684x"]
    assert len(taken) >= 6, f"seed {seed}"


@pytest.mark.parametrize("overrides", [{"lanes": "4"}, {"banks": "2"}, {"batch": "2"}, {"batch": "3", "banks": "2"}])
def test_other_machines_compute_the_same(overrides: dict[str, str]) -> None:
    graph, inputs = mixed(SEEDS[0])
    program = tw.compile(graph, "bm1684x", overrides=overrides)
    for order in ("stream", "random"):
        result = program.run(inputs, order=order, seed=5)
        assert result.matches_reference
        assert result.findings == ()


def test_rows_are_cut_where_sums_are_too_many_for_a_buffer() -> None:
    build = Builder(7, (56, 200, 5), zero=9)
    x = build.conv(build.conv(build.input, 70, 3, 1), 66, 5, 1, 2, "none")
    graph, inputs = build.graph(build.add(x, build.conv(x, 66, 1, 1, 0, "none"))), build.inputs(1)
    program = tw.compile(graph, "bm1684x")
    rows = [rows for _, rows in program.launches[0].meta["tiles"]]
    assert all(size < 56 for size in rows)
    result = program.run(inputs)
    assert result.matches_reference
    assert result.findings == ()


def test_the_first_convolution_reads_taps_as_channels() -> None:
    """Stride 2, odd padding, a window that leaves pixels over. A small image is not worth folding with stride 3."""
    small, large = (29, 30, 3), (62, 63, 3)
    for kernel, stride, pad, shape in ((7, 2, 3, small), (3, 2, 0, small), (5, 3, 2, large), (4, 1, 1, small)):
        build = Builder(kernel, shape)
        graph, inputs = build.graph(build.conv(build.input, 20, kernel, stride, pad)), build.inputs(2)
        program = tw.compile(graph, "bm1684x")
        assert "into channels" in program.launches[0].meta["notes"][0]
        assert program.run(inputs).matches_reference


def test_a_network_too_large_for_local_memory_goes_through_it_in_parts() -> None:
    for banks, batch in (("4", "2"), ("3", "1"), ("2", "2")):
        build = Builder(3, (61, 64, 3), zero=7)
        x = build.maximum(build.depthwise(build.conv(build.input, 100, 3, 1), 1), 3, 2, 1)
        y = build.add(build.conv(x, 200), build.conv(x, 200, 1, 1, 0, "none"))
        graph, inputs = build.graph(build.maximum(build.conv(y, 30))), build.inputs(2)
        program = tw.compile(graph, "bm1684x", overrides={"banks": banks, "batch": batch})
        assert len(program.launches) == len(program.steps) > 1
        result = program.run(inputs)
        assert result.matches_reference
        assert result.findings == ()
        assert result.serial_cycles and result.cycles < result.serial_cycles


def test_a_chain_in_parts_computes_shared_rows_twice() -> None:
    build = Builder(4, (62, 40, 5))
    x = build.conv(build.input, 20)
    graph, inputs = build.graph(build.maximum(build.conv(build.depthwise(x, 2), 70, 5, 1, 2))), build.inputs(2)
    mode = rounding_mode("tflm")
    layers = [layer for site in graph.sites() if isinstance(layer := lower(site, mode, Config()), Layer)]
    whole = StreamedLaunch(layers, layers[-1].result.h, Config()).launch()
    for rows in (1, 3, 7, 15):
        parts = StreamedLaunch(layers, rows, Config()).launch()
        program = replace(tw.compile(graph, "bm1684x"), steps=(parts,))
        result = program.run(inputs)
        assert result.matches_reference, rows
        assert result.findings == ()
        assert len(parts.arrays["insns"]) > len(whole.arrays["insns"])


def test_what_does_not_fit_at_all_is_the_hosts() -> None:
    graph, inputs = mixed(SEEDS[0])
    program = tw.compile(graph, "bm1684x", overrides={"banks": "1", "bank_bytes": "1024"})
    reasons = [step.reason for step in program.steps if isinstance(step, HostStep)]
    assert any("bytes of each lane" in reason or "constants" in reason for reason in reasons)
    assert program.run(inputs).matches_reference


def test_every_command_decodes_to_what_was_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    schedules: list[dict[str, list[QueuedCommand]]] = []
    schedule = Stream.schedule

    def noted(stream: Stream) -> tuple[dict[str, list[QueuedCommand]], int]:
        queues, cycles = schedule(stream)
        schedules.append(queues)
        return queues, cycles

    monkeypatch.setattr(Stream, "schedule", noted)
    for mode, seed in product(MODES, SEEDS):
        tw.compile(mixed(seed)[0], "bm1684x", rounding=mode)
    count = 0
    for scheduled in schedules:
        for engine in (TIU, DMA):
            commands, needs = zip(*((words.command, words.after) for words in scheduled[engine]), strict=True)
            words = [encoded(command, number, needs[number]) for number, command in enumerate(commands)]
            decoded = decode(engine, queue(engine, words))
            assert tuple(command_read.needs for command_read in decoded[:-1]) == needs
            assert [command_read.id for command_read in decoded] == list(range(1, len(decoded) + 1))
            for read, command in zip(decoded[:-1], commands, strict=True):
                again = command_of(read, Config())
                assert again.operation is command.operation
                ends = {**command.operands, **command.results}
                for name, operand in {**again.operands, **again.results}.items():
                    assert placed(operand) == placed(ends[name]), (str(read), name)
                for key, value in command.attributes.items():
                    assert again.attributes.get(key) == value, (str(read), key)
                count += 1
    assert count > 200


def placed(operand: object) -> object:
    """Where an operand lies; strides of axes of one element, and signs of what is only moved, do not matter."""
    if isinstance(operand, ConvWeights):
        return operand.address, operand.shape, operand.dtype
    if not isinstance(operand, Tensor):
        return operand
    return operand.address, operand.shape, operand.dtype.bytes, tuple(operand.addresses.reshape(-1)[::7])


def test_the_machine_itself_computes_the_same() -> None:
    """Commands on plain memories, one by one, without what makes compiled networks fast."""
    graph, inputs = mixed(SEEDS[2])
    program = tw.compile(graph, "bm1684x")
    expected = reference.run(graph, inputs[:1], program.rounding)
    values: dict[str, Array] = {graph.inputs[0]: inputs[:1]}
    for launch in program.launches:
        image = QueueImage.of(launch, Config())
        memories = Memories(Config())
        memories.new_ddr(0x1_0000_0000, len(image.constants)).data[:] = image.constants
        held = {}
        for segment in (*image.inputs, *image.outputs):
            held[segment.name] = memories.new_ddr(segment.address, segment.form.nbytes).data
        for segment in image.inputs:
            held[segment.name][:] = segment.form.pack(values[segment.name]).view(np.uint8).reshape(-1)
        elaborate(image.queues, Config(), memories.regions).run(memories)
        for segment in image.outputs:
            raw = held[segment.name].view(segment.form.dtype.storage)[None]
            values[segment.name] = segment.form.unpack(raw, graph.tensors[segment.name])
    for name in set(graph.outputs) & set(values):
        np.testing.assert_array_equal(values[name], expected[name])
    assert set(graph.outputs) & set(values)


def changed(program: Program, change: Callable[[Launch], Launch]) -> Program:
    return replace(program, steps=(change(program.launches[0]), *program.steps[1:]))


def test_without_dependencies_there_are_races() -> None:
    program = tw.compile(mixed(SEEDS[0])[0], "bm1684x")
    launch = program.launches[0]
    image = QueueImage.of(launch, Config())
    free = []
    for engine in (TIU, DMA):
        commands = [
            replace(command, fields={**command.fields, "cmd_id_dep": 0})
            for command in decode(engine, image.queues[engine])
        ]
        free.append(encode(commands))
    insns = np.concatenate(free)
    broken = changed(program, lambda launch: replace(launch, arrays={**launch.arrays, "insns": insns}))
    assert {finding.kind for finding in TARGET.check(broken)} >= {RACE}


def test_what_is_stored_is_not_overwritten_before() -> None:
    """The next input is urgent, and its transfer is of another kind; but its place is still to be read."""
    config = Config()
    places = [Tensor.local(0, offset, (1, 64, 8, 8), U8, config) for offset in (0, 4096)]
    far = [Tensor.ddr(DDR_BASE + 4096 * number, places[0].shape, U8, config) for number in range(3)]
    stream = Stream(config)
    stream.move(copy(places[0], far[0]), 0, INPUTS)
    stream.compute(Command(OPERATIONS["copy"], {"a": places[0]}, {"y": places[1]}), 0)
    stream.move(copy(far[1], places[1]), 0, OUTPUTS)
    stream.move(copy(places[1], far[2]), 0, INPUTS)
    stream.compute(Command(OPERATIONS["copy"], {"a": places[1]}, {"y": places[0]}), 0)
    queues, _ = stream.schedule()
    assert [queued.command.operands["x"] for queued in queues[DMA]] == [far[0], places[1], far[2]]
    assert {engine: [queued.after for queued in queue] for engine, queue in queues.items()} == {
        TIU: [1, 3],
        DMA: [0, 1, 1],
    }


def test_damaged_launches_are_refused() -> None:
    program = tw.compile(mixed(SEEDS[0])[0], "bm1684x")
    meta, arrays = program.launches[0].meta, program.launches[0].arrays
    for bad in (
        {"meta": {**meta, "values_end": 1 << 30}},
        {"meta": {**meta, "inputs": [["x", 0, 1]]}},
        {"meta": {key: value for key, value in meta.items() if key != "batch"}},
        {"arrays": {**arrays, "insns": arrays["insns"][:-8]}},
        {"arrays": {**arrays, "constants": arrays["constants"].astype(np.int32)}},
    ):
        broken = changed(program, lambda launch, bad=bad: replace(launch, **bad))  # type: ignore[misc]
        with pytest.raises(ProgramError):
            run_program(broken, mixed(SEEDS[0])[1])


def test_another_width_of_the_execution_units_is_refused() -> None:
    with pytest.raises(ConfigError, match="eu_bytes is 32; networks need 64"):
        tw.compile(mixed(SEEDS[0])[0], "bm1684x", overrides={"eu_bytes": "32"})


LATER = [pytest.param(*case, marks=pytest.mark.slow) for case in ((4, 0.637), (16, 0.698))]


@pytest.mark.parametrize(("batch", "least"), [(1, 0.364), *LATER])
def test_resnet18_uses_the_multipliers_more_than_silicon_is_said_to(batch: int, least: float) -> None:
    program = tw.compile(resnet18(), "bm1684x", overrides={"batch": str(batch)}, rounding="tflm")
    (launch,) = program.launches
    prepared = run.prepare(launch, Config(batch=batch))
    graph = program.graph
    assert graph is not None
    macs = batch * sum(site.node.op.macs(site) for site in graph.sites())
    assert macs / (prepared.trace.cycles * 16384) > least
    assert prepared.trace.cycles < prepared.serial.cycles
    assert prepared.findings(RunOptions()) == ()


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(Path(__file__).parents[3] / "examples" / "digits" / "digits.tflite")
    file, text, again = (str(tmp_path / name) for name in ("p.twp", "p.txt", "q.twp"))
    assert main(["compile", model, "-t", "bm1684x", "-o", file]) == 0
    assert main(["check", file]) == 0
    assert main(["exec", file]) == 0
    assert "all outputs are equal" in capsys.readouterr().out
    assert main(["disasm", file]) == 0
    Path(text).write_text(capsys.readouterr().out)
    assert main(["asm", text, "-o", again]) == 0
    assert main(["check", again]) == 0
    assert main(["exec", again]) == 0
    capsys.readouterr()
    assert main(["explain", model, "-t", "bm1684x"]) == 0
    printed = capsys.readouterr().out
    assert "int8_asym_quant_conv2d" in printed
    assert "% of the multipliers: what the lanes allow" in printed
    assert "the bm1684x compiler has no rule for softmax" in " ".join(printed.split())
    assert main(["run", model, "-t", "bm1684x", "--set", "precision=f8"]) == 2
    assert "choose one of host, f16, bf16, f32" in capsys.readouterr().err
    assert main(["header", "bm1684x"]) == 0
    assert "#define BM1684X_LANES" in capsys.readouterr().out
