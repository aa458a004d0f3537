"""Compiled networks and random layers: same bits as graph.reference, no hazards, portable streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.mlperf import FILES, model_path, samples
from tests.targets.vta.random_graphs import CONFIGS, check_queues, config, random_graph
from tests.targets.vta.records import records_of
from tests.targets.vta.single_node import plan
from tilewright import targets
from tilewright.array import Array
from tilewright.graph import reference
from tilewright.graph.ir import Node, Quant, Site, Tensor
from tilewright.graph.ops import FullyConnected
from tilewright.model import load
from tilewright.program import stages
from tilewright.program.program import HostStep, Launch, Program
from tilewright.sim.passes import RunOptions
from tilewright.targets.vta.compiler.compiler import compile_graph
from tilewright.targets.vta.compiler.explain import counts, explain
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.fields import Memory, Opcode
from tilewright.targets.vta.isa.stream import decode, decode_uops, encode

pytestmark = pytest.mark.usefixtures("brief_search")

ROOT = Path(__file__).resolve().parents[3]
VTA = targets.get("vta")


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
            reference.run_node(graph, step.node, golden, program.rounding)
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
    assert (encode(records_of(s, machine), machine) == launch.arrays["insns"]).all()
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


@pytest.mark.parametrize("key", [pytest.param(key, marks=[pytest.mark.slow] * (key == "vww")) for key in FILES])
def test_every_launch_of_mlperf_tiny_equals_the_reference(shared: Path, key: str) -> None:
    graph = load(model_path(shared, key))
    inputs = samples(shared, key)["inputs"][:2].reshape(2, *graph.tensors[graph.inputs[0]].shape)
    program = compile_graph(graph, CONFIGS["pynq"], "tflm")
    launches = check_against_reference(program, inputs)
    on_host = {step.node.rsplit("_", 1)[0] for step in program.steps if isinstance(step, HostStep)}
    assert on_host <= {"add", "softmax", "reshape"}
    ran = sum(len(launch.nodes) for launch in launches)
    assert ran == len(graph.nodes) - sum(isinstance(step, HostStep) for step in program.steps)


@pytest.mark.parametrize("name", CONFIGS)
def test_digits_on_every_config(name: str) -> None:
    graph = load(ROOT / "examples" / "digits" / "digits.tflite")
    with np.load(ROOT / "examples" / "digits" / "samples.npz") as archive:
        inputs = archive["inputs"][:3].reshape(3, *graph.tensors[graph.inputs[0]].shape)
    for rounding in ("tflm", "xnnpack"):
        check_against_reference(compile_graph(graph, CONFIGS[name], rounding), inputs)


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.slow] * (seed > 2)) for seed in range(12)])
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
    text = stages.text(explain(program, "hls"))
    assert "add_3: host, add rescales its operands" in text
    assert "conv2d_1: vta" in text
    convolution = next(step for step in program.launches if step.name == "conv2d_1")
    found = counts(convolution, config())
    assert found["gemm_uops"] == 94 * 94  # 9 taps of 32 x 32 pixels without those in the padding
    assert found["reset_uops"] < 1024  # only the first groups: the others add to what these left
    assert found["out_bytes"] == 3 * 32 * 32 * 16


def test_compilation_is_deterministic(shared: Path) -> None:
    graph = load(model_path(shared, "kws"))
    one, two = (compile_graph(graph, config(), "tflm") for _ in range(2))
    for a, b in zip(one.launches, two.launches, strict=True):
        assert a.meta == b.meta
        for name, array in a.arrays.items():
            np.testing.assert_array_equal(array, b.arrays[name])
