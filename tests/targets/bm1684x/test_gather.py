"""Taps that the machine folds into channels: the same codes, from replicas of the layer before."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.targets.bm1684x.networks import Builder
from tilewright.array import Array
from tilewright.graph.ir import Graph
from tilewright.program import stages
from tilewright.program.program import Program
from tilewright.targets.bm1684x import TARGET
from tilewright.targets.bm1684x.compiler.layer import Gather
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.launch import run
from tilewright.targets.bm1684x.layouts.samples import SampleFormat
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.values import window as machine
from tilewright.targets.bm1684x.values.dtypes import U8
from tilewright.targets.bm1684x.values.memory import Memories

MODES = ("tflm", "litert", "xnnpack", "ort")
SEEDS = range(6)


def folded(program: Program) -> list[str]:
    """The notes of layers that read a gathered tensor."""
    return [note for launch in program.launches for note in launch.meta["notes"] if "replicas" in note]


def network(seed: int) -> tuple[Graph, Array]:
    """Convolutions of few channels after layers of each kind: convolution, sum, pool, depthwise; odd sizes, strides."""
    random = np.random.default_rng(seed)
    build = Builder(seed, (int(random.integers(12, 30)), int(random.integers(12, 30)), 3))
    c = int(random.choice([5, 8, 16, 24, 32]))
    x = build.conv(build.input, c)
    y = build.conv(x, c)
    z = build.add(x, y)
    kernel = int(random.integers(2, 5))
    a = build.conv(z, int(random.integers(3, 90)), kernel, int(random.integers(1, 4)), int(random.integers(0, kernel)))
    b = build.conv(build.depthwise(z, int(random.integers(1, 3))), 7)
    d = build.conv(build.maximum(z), 9, 1, 1, 0)
    return build.graph(a, b, d), build.inputs(3)


@pytest.mark.parametrize("seed", SEEDS)
def test_gathered_layers_equal_the_reference(seed: int) -> None:
    graph, inputs = network(seed)
    mode = MODES[seed % len(MODES)]
    for keys in ({}, {"batch": "2"}, {"lanes": "16"}):
        program = tw.compile(graph, "bm1684x", rounding=mode, overrides=keys)
        assert keys or folded(program), seed
        for order in ("stream", "random"):
            result = program.run(inputs, order=order, seed=seed)
            assert result.matches_reference, (seed, keys)
            assert result.findings == (), (seed, keys)


def test_gathering_saves_cycles_of_narrow_layers() -> None:
    """16 channels with 3x3 taps: three rows of taps become 48 channels, a third of the products."""
    build = Builder(1, (32, 32, 16))
    graph = build.graph(build.conv(build.conv(build.input, 16, 1, 1, 0), 64))
    program = tw.compile(graph, "bm1684x")
    assert folded(program) == ["3 of 9 taps are folded into channels, from 3 replicas of its input"]
    prepared = run.prepare(program.launches[0], Config())
    cycles = prepared.trace.end - prepared.trace.start
    spent = dict.fromkeys(("copy", "int8_asym_quant_conv2d"), 0)
    for command, cost in zip(prepared.program.commands, cycles.tolist(), strict=True):
        if command.operation.name in spent:
            spent[command.operation.name] += cost
    assert spent["int8_asym_quant_conv2d"] == 256 + 3 * 256
    assert spent["copy"] < 80
    macs = 32 * 32 * (16 * 16 + 64 * 16 * 9)
    share = 100 * macs / (1024 * 64 * 256)
    assert f"products alone: 1024 cycles, {share:.1f} % of the multipliers" in stages.text(TARGET.explain(program))


@pytest.mark.parametrize("leaves", [False, True])
def test_what_leaves_the_launch_has_no_replicas(leaves: bool) -> None:
    build = Builder(2, (20, 20, 16))
    x = build.conv(build.input, 16, 1, 1, 0)
    y = build.conv(x, 20)
    graph = build.graph(*([x] if leaves else []), y)
    program = tw.compile(graph, "bm1684x")
    assert bool(folded(program)) is not leaves
    assert program.run(build.inputs(2)).matches_reference


def test_without_room_nothing_is_gathered() -> None:
    """The gathered tensor is what no longer fits; the network still takes one launch."""
    build = Builder(3, (40, 40, 16))
    graph = build.graph(build.conv(build.conv(build.input, 16, 1, 1, 0), 16))
    sizes = [
        (len(program.launches), len(folded(program)))
        for banks in range(8, 0, -1)
        for program in [tw.compile(graph, "bm1684x", overrides={"banks": str(banks), "bank_bytes": "4096"})]
    ]
    assert (1, 1) in sizes
    assert (1, 0) in sizes


@pytest.mark.parametrize("seed", range(40))
def test_gathered_windows_are_the_windows(seed: int) -> None:
    """Any window: what the rest of the window reads of the gathered tensor is what the whole window reads."""
    random = np.random.default_rng(seed)

    def pair(low: int, high: int) -> tuple[int, int]:
        return int(random.integers(low, high)), int(random.integers(low, high))

    kernel, stride, dilation = pair(1, 5), pair(1, 4), pair(1, 4)
    (top, bottom), (left, right) = (pair(0, kernel[axis] * dilation[axis]) for axis in range(2))
    window = machine.Window(kernel, (top, bottom, left, right), stride, dilation)
    h, w = (int(random.integers(1, 9)) + (kernel[axis] - 1) * dilation[axis] for axis in range(2))
    c, config, (zero, rows, columns) = 3, Config(), (77, bool(seed & 1), bool(seed & 2) or not seed & 1)
    source = SampleFormat(c, h, w, U8, 0, zero)
    taps = (kernel[0] if rows else 1) * (kernel[1] if columns else 1)
    gather = Gather(source, window, rows, columns, 4, min(taps, config.lanes // 4))
    memories = Memories(config)
    x = random.integers(0, 256, (1, c, h, w)).astype(np.uint8)
    place = Tensor.local(0, 0, (1, 4 * gather.replicas, h, w), U8, config)
    data = np.zeros((1, 4, h, w), np.uint8)
    data[:, :c] = x
    memories.write(place.addresses, np.tile(data, (1, gather.replicas, 1, 1)))
    for command in gather.commands(0, 1 << 14, config):
        assert not command.refusal()
        command.run(memories)
    stored = gather.form
    gathered = Tensor.local(0, 1 << 14, (1, stored.c, stored.h, stored.w), U8, config)
    values_read = memories.read(gathered.addresses, U8.storage)
    by_tap = values_read.reshape(len(gather.taps), 4, stored.h, stored.w)[:, :c]
    kept = gather.left.taps(by_tap, zero)  # (folded taps, c, rows and columns of taps left, oh, ow)
    (kh, kw), (lh, lw) = kernel, gather.left.kernel
    whole = kept.reshape(kh // lh, kw // lw, c, lh, lw, *kept.shape[4:]).transpose(2, 0, 3, 1, 4, 5, 6)
    expected = window.taps(x, zero)[0]
    np.testing.assert_array_equal(whole.reshape(expected.shape), expected, str((seed, window, gather)))
