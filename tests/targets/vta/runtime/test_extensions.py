"""Programs through the runtime on machines that upstream does not have: four stages, other ALU operations."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.graph.rounding import multiply_by_quantized_multiplier
from tilewright.sim.findings import RACE
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.isa.fields import Opcode
from tilewright.targets.vta.isa.stream import decode
from tilewright.targets.vta.runtime import AluOp, Debug, Memory, Runtime, UopRecorder

SEED = 5
ROWS, INNER, OUTER = 4, 2, 3  # rows, tiles of columns of the inputs and of the outputs of a half


def config(**overrides: object) -> Config:
    return PRESETS["pynq"].with_overrides(overrides)


FOUR = config(stages=4)


def product(k: UopRecorder, half: int, acc: int) -> None:
    with k.uop_loop(ROWS, dst=OUTER, src=INNER):
        for c in range(INNER):
            for n in range(OUTER):
                k.uop_push(acc + n, half * ROWS * INNER + c, n * INNER + c)


def each(k: UopRecorder, op: AluOp, imm: int, acc: int, tiles: int = ROWS * OUTER) -> None:
    with k.uop_loop(tiles, 1, 1):
        k.uop_push(acc, acc, opcode=op, imm=imm)


def dense(rt: Runtime, x: Array, w: Array, bias: Array, left_out: tuple[str, str] | None = None) -> Array:
    """max(x @ w.T + bias >> 8, 0) in two halves, each in a bank of acc; without the tokens of one queue."""

    def token(source: str, target: str) -> None:
        if (source, target) != left_out:
            rt.dep_push(source, target)
            rt.dep_pop(source, target)

    inputs, weights, biases = (
        rt.to_device(part, memory) for part, memory in ((x, Memory.INP), (w, Memory.WGT), (bias, Memory.ACC))
    )
    out, tiles = rt.empty(bias.shape, Memory.OUT), ROWS * OUTER
    rt.load_buffer_2d(inputs, 0, 2 * ROWS * INNER, 1, 1, 0, Memory.INP)
    rt.load_buffer_2d(weights, 0, OUTER * INNER, 1, 1, 0, Memory.WGT)
    token("load", "gemm")
    for half in range(2):
        acc = half * rt.config.acc.depth // 2
        rt.load_buffer_2d(biases, half * tiles, tiles, 1, 1, acc, Memory.ACC)
        rt.push_gemm(product, half, acc)
        token("gemm", "activate")
        rt.push_alu(each, AluOp.SHR, 8, acc)
        rt.push_alu(each, AluOp.MAX, 0, acc)
        token("activate", "store")
        rt.store_buffer_2d(acc, Memory.OUT, out, half * tiles, tiles, 1, 1)
    result = rt.synchronize()
    kinds = {finding.kind for finding in result.findings}
    assert kinds == (set() if left_out is None else {RACE})
    assert result.trace is not None
    assert result.trace.table.units == ("load", "gemm", "activate", "store")
    return rt.from_device(out, Memory.OUT, (bias.shape[0], bias.shape[1]))


def matrices() -> tuple[Array, Array, Array, Array]:
    rng = np.random.default_rng(SEED)
    print("seed", SEED)
    x, w = rng.integers(-128, 128, (2 * ROWS, 16 * INNER)), rng.integers(-128, 128, (16 * OUTER, 16 * INNER))
    bias = rng.integers(-20000, 20000, (2 * ROWS, 16 * OUTER))
    return x, w, bias, np.maximum(x @ w.T + bias >> 8, 0).astype(np.int8)


@pytest.mark.parametrize("debug", [Debug(0), Debug.FORCE_SERIAL])
def test_four_stages(debug: Debug) -> None:
    x, w, bias, golden = matrices()
    with Runtime(FOUR, debug=debug) as rt:
        for _ in range(2):  # both caches are empty again
            np.testing.assert_array_equal(dense(rt, x, w, bias), golden)
        for launch in rt.program().launches:
            stream = decode(launch.arrays["insns"], FOUR)
            moved = (stream.opcode == Opcode.LOAD) & (stream.mem.x_size > 0)
            memories = stream.mem.memory_type[moved].tolist()
            assert [memories.count(memory) for memory in (Memory.UOP, Memory.ALU_UOP)] == [2, 2]


@pytest.mark.parametrize("queue", [("load", "gemm"), ("gemm", "activate"), ("activate", "store")])
def test_four_stages_need_their_tokens(queue: tuple[str, str]) -> None:
    x, w, bias, _ = matrices()
    with Runtime(FOUR) as rt:
        dense(rt, x, w, bias, queue)


def test_each_cache_has_its_own_depth() -> None:
    def listed(k: UopRecorder, op: AluOp | None) -> None:
        for tile in range(9):
            k.uop_push(tile, tile, opcode=op)

    with Runtime(config(stages=4, LOG_ALU_UOP_BUFF_SIZE=5)) as rt:
        rt.push_gemm(listed, None)
        with pytest.raises(ProgramError, match="push_alu: its kernel has 9 micro-ops; the cache has 8"):
            rt.push_alu(listed, AluOp.ADD)


def requantise(k: UopRecorder, tiles: int) -> None:
    """Each channel tile has a bias and three tiles of factors."""
    with k.uop_loop(tiles, dst=ROWS, src=4, wgt=4), k.uop_loop(ROWS, dst=1, src=0):
        k.uop_push(0, 0, 1, opcode=AluOp.REQ)


@pytest.mark.parametrize("stages", [3, 4])
def test_requantisation_on_chip(stages: int) -> None:
    rng = np.random.default_rng(SEED)
    print("seed", SEED)
    sums, bias = rng.integers(-(1 << 20), 1 << 20, (2, ROWS, 16)), rng.integers(-(1 << 20), 1 << 20, (2, 16))
    multiplier, right = rng.integers(1 << 30, 1 << 31, (2, 16)), rng.integers(9, 14, (2, 16))
    zero_point, low, high = -5, -100, 90
    words = [bias, multiplier, right << 8 | zero_point << 16, np.full((2, 16), (low & 0xFFFF) | high << 16)]
    expected = multiply_by_quantized_multiplier((sums + bias[:, None]), multiplier[:, None], -right[:, None])
    golden = np.clip(expected + zero_point, low, high).reshape(2 * ROWS, 16)
    assert ((golden > low) & (golden < high)).any()
    with Runtime(config(stages=stages, alu="fused")) as rt:
        source = rt.to_device(sums.reshape(2 * ROWS, 16), Memory.ACC)
        parameters = rt.to_device(np.stack(words, axis=1).reshape(8, 16), Memory.PAR)
        out, units = rt.empty(golden.shape, Memory.OUT), rt.config.pipeline.units
        rt.load_buffer_2d(parameters, 0, 8, 1, 8, 0, Memory.PAR)
        rt.load_buffer_2d(source, 0, 2 * ROWS, 1, 2 * ROWS, 0, Memory.ACC)
        for queue in pairwise(units[:-1]):  # also past gemm, where it does nothing
            rt.dep_push(*queue)
            rt.dep_pop(*queue)
        rt.push_alu(requantise, 2)
        rt.dep_push(units[-2], "store")
        rt.dep_pop(units[-2], "store")
        rt.store_buffer_2d(0, Memory.OUT, out, 0, 2 * ROWS, 1, 2 * ROWS)
        assert rt.synchronize().findings == ()
        np.testing.assert_array_equal(rt.from_device(out, Memory.OUT, golden.shape), golden)


def single(k: UopRecorder, wgt: int) -> None:
    with k.uop_loop(2, dst=1, src=0, wgt=wgt):
        k.uop_push(0, 0, 1, opcode=AluOp.REQ)


@pytest.mark.parametrize(("wgt", "loops"), [(3, (2, 1)), (0, (1, 2))])
def test_a_single_loop_that_moves_factors_is_the_outer_one(wgt: int, loops: tuple[int, int]) -> None:
    with Runtime(config(alu="fused")) as rt:
        rt.push_alu(single, wgt)
        alu = decode(rt.program().launches[0].arrays["insns"], rt.config).alu
        row = int(np.argmax(alu.alu_opcode == AluOp.REQ))
        assert (alu.iter_out[row], alu.iter_in[row], alu.imm[row]) == (*loops, wgt)


def test_rounding_operations() -> None:
    values = np.arange(-32, 32).reshape(ROWS, 16) * 3
    with Runtime(config(alu="rounding")) as rt:
        source, out = rt.to_device(values, Memory.ACC), rt.empty(values.shape, Memory.OUT)
        rt.load_buffer_2d(source, 0, ROWS, 1, ROWS, 0, Memory.ACC)
        rt.push_alu(each, AluOp.MULH, 1 << 14, 0, ROWS)  # the upper half of 2^30: a half
        rt.push_alu(each, AluOp.RSHR, 2, 0, ROWS)
        rt.dep_push("compute", "store")
        rt.dep_pop("compute", "store")
        rt.store_buffer_2d(0, Memory.OUT, out, 0, ROWS, 1, ROWS)
        assert rt.synchronize().findings == ()
        half = np.floor(values / 2 + 0.5)  # halves up, then away from zero
        expected = np.sign(half) * np.floor(np.abs(half) / 4 + 0.5)
        np.testing.assert_array_equal(rt.from_device(out, Memory.OUT, values.shape), expected)


def several(k: UopRecorder) -> None:
    for tile in range(2):
        k.uop_push(tile, 0, tile, opcode=AluOp.REQ)


def inside(k: UopRecorder) -> None:
    with k.uop_loop(2, 1, 1), k.uop_loop(2, 1, 1, wgt=1):
        k.uop_push(0, 0, opcode=AluOp.REQ)


def beyond(k: UopRecorder, src: int, wgt: int) -> None:
    k.uop_push(0, src, wgt, opcode=AluOp.REQ)


def load_par(rt: Runtime) -> None:
    rt.load_buffer_2d(rt.alloc(64), 0, 1, 1, 1, 0, Memory.PAR)


@pytest.mark.parametrize(
    ("overrides", "call", "message"),
    [
        ({}, lambda rt: rt.push_alu(each, AluOp.MULH, 1, 0), "the ALU 'upstream' has no MULH; set alu to rounding or"),
        ({}, lambda rt: rt.push_alu(each, AluOp.RSHR, 1, 0), "uop_push: the ALU 'upstream' has no RSHR"),
        ({"alu": "rounding"}, lambda rt: rt.push_alu(beyond, 0, 0), "'rounding' has no REQ; set alu to fused"),
        ({"alu": "rounding"}, load_par, "load_buffer_2d: memory is PAR; set alu to fused"),
        ({"alu": "fused"}, lambda rt: rt.push_alu(each, AluOp.REQ, 1, 0), "REQ takes no immediate; leave imm out"),
        ({"alu": "fused"}, lambda rt: rt.push_alu(several), "several sets of factors in one outer iteration"),
        ({"alu": "fused"}, lambda rt: rt.push_alu(inside), "several sets of factors in one outer iteration"),
        ({"alu": "fused"}, lambda rt: rt.push_alu(beyond, 256, 0), r"src reaches tile 256; par has tiles 0\.\.255"),
        ({"alu": "fused"}, lambda rt: rt.push_alu(beyond, 0, 254), r"wgt reaches tile 256; par has tiles 0\.\.255"),
        ({"stages": 4}, lambda rt: rt.dep_push("gemm", "store"), "no such token queue; .* gemm->activate"),
        ({"stages": 4}, lambda rt: rt.dep_pop("compute", "store"), "choose one of load, gemm, activate, store"),
    ],
)
def test_what_a_machine_has_not_is_named(
    overrides: dict[str, object], call: Callable[[Runtime], object], message: str
) -> None:
    with Runtime(config(**overrides)) as rt:
        with pytest.raises(ProgramError, match=message):
            call(rt)
        assert not rt._commands
