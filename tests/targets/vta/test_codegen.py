"""Compiled networks and random layers: same bits as graph.reference, no hazards, portable streams."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.mlperf import FILES, model_path, samples
from tilewright import host, targets
from tilewright.array import Array
from tilewright.graph import reference
from tilewright.graph.arithmetic import Activation
from tilewright.graph.ir import Graph, Node, Quant, Site, Tensor
from tilewright.graph.ops import AveragePool2D, Conv2D, DepthwiseConv2D, FullyConnected, MaxPool2D, Op, Window
from tilewright.model import load
from tilewright.program.program import HostStep, Launch, Program
from tilewright.sim.passes import RunOptions
from tilewright.sim.trace import Trace
from tilewright.targets.vta.compiler.compiler import compile_graph, plan
from tilewright.targets.vta.compiler.explain import counts, explain
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.isa.fields import AluOp, Memory, Opcode
from tilewright.targets.vta.isa.stream import decode, decode_uops

ROOT = Path(__file__).resolve().parents[3]
VTA = targets.get("vta")


def config(**overrides: Any) -> Config:
    return replace(PRESETS["pynq"], **overrides)


def buffers(uop: int, inp: int, wgt: int, acc: int, **overrides: Any) -> Config:
    sizes = {"LOG_UOP_BUFF_SIZE": uop, "LOG_INP_BUFF_SIZE": inp, "LOG_WGT_BUFF_SIZE": wgt, "LOG_ACC_BUFF_SIZE": acc}
    return config(**sizes, **overrides)


#: As in shared/vta_vectors; `shallow` has the smallest command and token queues that upstream ever had.
CONFIGS = {
    "pynq": config(),
    "ultra96": PRESETS["ultra96"],
    "block32": config(LOG_BLOCK=5),
    "batch2": config(LOG_BATCH=1),
    "batch4b8": buffers(13, 13, 15, 15, LOG_BATCH=2, LOG_BLOCK=3),
    "small": buffers(12, 13, 15, 14),
    "tiny": buffers(11, 11, 14, 13),
    "asym": buffers(15, 14, 18, 17, TARGET="sim"),
    "acc16": buffers(15, 15, 18, 16, LOG_ACC_WIDTH=4),
    "shallow": buffers(12, 13, 15, 14, queue_depth=1, token_depth=8),
    "few_uops": buffers(6, 13, 15, 14),
}


def quant(rng: np.random.Generator, zero_point: int, channels: int = 1) -> Quant:
    scale = tuple(float(np.float32(s)) for s in rng.uniform(0.002, 0.02, channels))
    return Quant(scale, (zero_point,) * channels, 0)


def graph_of(op: Op, x: Tensor, constants: list[Tensor], out: Tensor) -> Graph:
    node = Node("layer", op, (x.name, *(t.name for t in constants)), (out.name,))
    (shape,) = op.shapes(Site(node, (x, *constants), (out,)))
    out = replace(out, shape=shape)
    tensors = {tensor.name: tensor for tensor in (x, *constants, out)}
    return Graph("random", tensors, (node,), (x.name,), (out.name,)).validate()


def random_graph(rng: np.random.Generator) -> Graph:
    """One convolution, depthwise or grouped convolution, product or pool of odd sizes."""
    kind = rng.choice(["conv", "conv", "conv", "depthwise", "grouped", "fc", "average", "max"])
    channels = int(rng.choice([1, 2, 3, 5, 8, 16, 17, 24, 33, 48, 64]))
    outputs = int(rng.choice([1, 4, 10, 16, 20, 33, 64]))
    zero = int(rng.choice([-128, 0, 7, 127, int(rng.integers(-128, 128))]))
    if kind == "fc":
        depth, rows = int(rng.integers(1, 300)), int(rng.choice([1, 1, 3, 20]))
        x = Tensor("x", (rows, depth), "int8", quant(rng, zero))
        return graph_of(FullyConnected(), x, weights(rng, (outputs, depth), outputs, 0), output(rng))
    kernel = int(rng.integers(1, 6)), int(rng.integers(1, 6))
    stride = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    dilation = int(rng.integers(1, 3)), int(rng.integers(1, 3))
    size = tuple(int(rng.integers((k - 1) * d + 1, 16)) for k, d in zip(kernel, dilation, strict=True))
    padding = [int(rng.integers(0, (k - 1) * d + 1)) for k, d in zip(kernel, dilation, strict=True) for _ in "ab"]
    window = Window(kernel, stride, (padding[0], padding[1], padding[2], padding[3]), dilation)
    if kind in ("average", "max"):
        x = Tensor("x", (1, *size, channels), "int8", quant(rng, zero))
        activation: Activation = ("none", "relu", "relu6")[int(rng.integers(3))]
        pool = AveragePool2D if kind == "average" else MaxPool2D
        return graph_of(pool(window, activation), x, [], replace(output(rng), quant=x.quant))
    if kind == "depthwise":
        channels, multiplier = min(channels, 48), int(rng.choice([1, 1, 1, 2, 3]))
        outputs = channels * multiplier
        parts = weights(rng, (1, *kernel, outputs), outputs, 3)
        op: Op = DepthwiseConv2D(window=window)
    else:
        groups = int(rng.choice([2, 3])) if kind == "grouped" else 1
        channels, outputs = channels * groups, outputs * groups
        parts = weights(rng, (outputs, *kernel, channels // groups), outputs, 0)
        op = Conv2D(window=window)
    x = Tensor("x", (1, *size, channels), "int8", quant(rng, zero))
    return graph_of(op, x, parts, output(rng))


def weights(rng: np.random.Generator, shape: tuple[int, ...], outputs: int, axis: int) -> list[Tensor]:
    """Weights and bias; now and then all extreme, so that byte planes are full."""
    data = rng.integers(-128, 128, shape) if rng.random() < 0.8 else np.full(shape, rng.choice([-128, 127]))
    bias = rng.integers(-5000, 5000, outputs).astype(np.int32)
    return [
        Tensor("w", shape, "int8", replace(quant(rng, 0, outputs), axis=axis), data.astype(np.int8)),
        Tensor("b", (outputs,), "int32", None, bias),
    ]


def output(rng: np.random.Generator) -> Tensor:
    return Tensor("y", (), "int8", Quant((float(np.float32(rng.uniform(0.5, 4.0))),), (int(rng.integers(-128, 128)),)))


def check_against_reference(program: Program, inputs: Array, timing: str | None = "hls") -> list[Launch]:
    """Run a program step by step; every launch must give the reference's codes, without a finding."""
    graph = program.graph
    assert graph is not None
    golden: dict[str, Array] = {graph.inputs[0]: inputs}

    def observe(site: Site, results: tuple[Array, ...]) -> None:
        golden.update(zip(site.node.outputs, results, strict=True))

    reference.run(graph, inputs, program.rounding, observe)
    launches = []
    for step in program.steps:
        if isinstance(step, HostStep):
            host.run_node(graph, step.node, golden, program.rounding)
            continue
        result = VTA.launch(program, step, golden, RunOptions(timing=timing))
        assert [str(finding) for finding in result.findings] == []
        if result.trace:
            check_queues(result.trace)
        for name, codes in result.values.items():
            np.testing.assert_array_equal(codes, golden[name], err_msg=step.name)
        check_portable(step, Config.from_json(program.config))
        launches.append(step)
    return launches


def check_queues(trace: Trace) -> None:
    """No token queue ever holds more than its depth."""
    for index, queue in enumerate(trace.table.queues):
        pushed = np.sort(trace.end[trace.table.pushes >> index & 1 == 1])
        popped = np.sort(trace.start[trace.table.pops >> index & 1 == 1])
        held = np.arange(1, pushed.size + 1) - np.searchsorted(popped, pushed, side="left")
        assert held.max(initial=0) <= queue.depth


def executed(part: Any, row: int, dst: Array) -> Array:
    """The accumulator tile of every micro-op, in the order of execution."""
    listed = dst[int(part.uop_bgn[row]) : int(part.uop_end[row])]
    outer = np.arange(part.iter_out[row])[:, None, None] * part.dst_factor_out[row]
    inner = np.arange(part.iter_in[row])[None, :, None] * part.dst_factor_in[row]
    return (outer + inner + listed[None, None]).reshape(-1)


def check_portable(launch: Launch, machine: Config) -> None:
    """The subset on which all public references agree (docs/vta.md)."""
    s = decode(launch.arrays["insns"], machine)
    micro = decode_uops(launch.arrays["dram.uop"].reshape(-1, 4), machine)
    (start,) = (seg["address"] // 4 for seg in launch.meta["segments"] if seg["name"] == "uop")
    cache = np.full((2, machine.uop.depth), -1)
    written_by = np.zeros(machine.acc.depth, np.int64)  # 0 nothing or a reset, 1 a sum or the ALU
    unit = machine.pipeline.units_of(s)
    assert s.opcode[-1] == Opcode.FINISH
    assert np.count_nonzero(s.opcode == Opcode.FINISH) == 1
    assert not s.reserved.any()
    for name in ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1"):
        assert not getattr(s.mem, name).any()
    assert not (s.pop_prev | s.push_prev)[unit == machine.pipeline.load].any()
    assert not (s.pop_next | s.push_next)[unit == machine.pipeline.store].any()
    for row, opcode in enumerate(s.opcode.tolist()):
        base, count = int(s.mem.sram_base[row]), int(s.mem.x_size[row] * s.mem.y_size[row])
        if opcode == Opcode.LOAD and s.mem.memory_type[row] == Memory.UOP:
            assert s.mem.y_size[row] == 1
            at = int(s.mem.dram_base[row]) - start
            cache[:, base : base + count] = micro.dst[at : at + count], micro.src[at : at + count]
        elif opcode == Opcode.STORE:
            assert written_by[base : base + count].all()
        elif opcode in (Opcode.GEMM, Opcode.ALU):
            part = s.gemm if opcode == Opcode.GEMM else s.alu
            assert part.uop_end[row] > part.uop_bgn[row]
            dst = executed(part, row, cache[0])
            for apart in (1, 2):
                assert (dst[apart:] != dst[:-apart]).all(), f"#{row} writes a tile twice within {apart} micro-ops"
            written_by[dst] = 0 if opcode == Opcode.GEMM and s.gemm.reset_reg[row] else 1
        if opcode == Opcode.ALU:
            assert s.alu.alu_opcode[row] != AluOp.MUL
            if s.alu.use_imm[row]:
                listed = cache[:, int(s.alu.uop_bgn[row]) : int(s.alu.uop_end[row])]
                assert (listed[0] == listed[1]).all()
                assert s.alu.dst_factor_in[row] == s.alu.src_factor_in[row]
                assert s.alu.dst_factor_out[row] == s.alu.src_factor_out[row]
            if s.alu.alu_opcode[row] == AluOp.SHR:
                assert s.alu.use_imm[row]
                assert 0 < s.alu.imm[row] < 1 << (machine.LOG_ACC_WIDTH - 1)


@pytest.mark.parametrize("key", FILES)
def test_every_launch_of_mlperf_tiny_equals_the_reference(shared: Path, key: str) -> None:
    graph = load(model_path(shared, key))
    inputs = samples(shared, key)["inputs"][:2].reshape(2, *graph.tensors[graph.inputs[0]].shape)
    program = compile_graph(graph, CONFIGS["pynq"], "tflm")
    launches = check_against_reference(program, inputs)
    on_host = {step.node.rsplit("_", 1)[0] for step in program.steps if isinstance(step, HostStep)}
    assert on_host <= {"add", "softmax", "reshape"}
    assert len(launches) == len(graph.nodes) - sum(isinstance(step, HostStep) for step in program.steps)


@pytest.mark.parametrize("name", CONFIGS)
def test_digits_on_every_config(name: str) -> None:
    graph = load(ROOT / "examples" / "digits" / "digits.tflite")
    with np.load(ROOT / "examples" / "digits" / "samples.npz") as archive:
        inputs = archive["inputs"][:3].reshape(3, *graph.tensors[graph.inputs[0]].shape)
    for rounding in ("tflm", "xnnpack"):
        check_against_reference(compile_graph(graph, CONFIGS[name], rounding), inputs)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", CONFIGS)
def test_random_layer(name: str, seed: int) -> None:
    for part in range(3):
        rng = np.random.default_rng([sum(name.encode()), seed, part])
        graph = random_graph(rng)
        site = next(graph.sites())
        print(name, seed, part, site.node.op, [t.shape for t in site.inputs if t], site.input(0).zero_point)
        reason = plan(site, CONFIGS[name])
        program = compile_graph(graph, CONFIGS[name], "tflm")
        (step,) = program.steps
        if isinstance(reason, str):
            assert isinstance(step, HostStep)
            assert step.reason == reason
            assert "bits; the accumulators" in reason or "fits the buffers" in reason or "padding" in reason
        x = rng.integers(-128, 128, (2, *graph.tensors["x"].shape)).astype(np.int8)
        if seed % 4 == 0:
            x[:] = rng.choice([-128, 127])
        check_against_reference(program, x)


def test_reasons() -> None:
    graph = random_graph(np.random.default_rng(1))
    site = next(graph.sites())
    assert "4" in str(plan(site, config(LOG_INP_WIDTH=2, LOG_INP_BUFF_SIZE=14)))
    wide = Tensor("x", (1, 4), "int16", Quant((1.0,), (0,)))
    narrow = Tensor("w", (3, 4), "int8", Quant((1.0,), (0,)), np.ones((3, 4), np.int8))
    out = Tensor("y", (1, 3), "int8", Quant((1.0,), (0,)))
    odd = Site(Node("n", FullyConnected(), ("x", "w"), ("y",)), (wide, narrow), (out,))
    assert "int16" in str(plan(odd, config()))


def test_explain_and_counts(shared: Path) -> None:
    program = compile_graph(load(model_path(shared, "ic")), config(), "tflm")
    text = explain(program, "hls")
    assert "add_3: host, add rescales what it adds" in text
    assert "conv2d_1: vta" in text
    convolution = next(step for step in program.launches if step.name == "conv2d_1")
    found = counts(convolution, config())
    assert found["gemm_uops"] == 94 * 94  # 9 taps of 32 x 32 pixels without those in the padding
    assert found["reset_uops"] == 1024
    assert found["out_bytes"] == 3 * 32 * 32 * 16


def test_compilation_is_deterministic(shared: Path) -> None:
    graph = load(model_path(shared, "kws"))
    one, two = (compile_graph(graph, config(), "tflm") for _ in range(2))
    for a, b in zip(one.launches, two.launches, strict=True):
        assert a.meta == b.meta
        for name, array in a.arrays.items():
            np.testing.assert_array_equal(array, b.arrays[name])


def test_units_overlap(shared: Path) -> None:
    """Cycles stay near what the busiest unit needs: see specs for the bound."""
    program = compile_graph(load(model_path(shared, "ic")), config(), "tflm")
    inputs = samples(shared, "ic")["inputs"][:1]
    result = program.run(inputs, timing="hls")
    assert result.matches_reference
    assert not result.findings
    for layer in result.layers:
        if layer.trace and layer.cycles > 4000:
            assert layer.cycles < 1.25 * max(layer.trace.busy().values())
            assert layer.cycles < 0.85 * sum(layer.trace.busy().values())
