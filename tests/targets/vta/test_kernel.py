"""A GEMM as matrix products and an ALU instruction as waves, against micro-op by micro-op loops."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.program.launch_image import Dram
from tilewright.targets.vta.config import PRESETS
from tilewright.targets.vta.isa.alu import AluOp, Form, operate
from tilewright.targets.vta.steps.micro_kernel import GEMM_OP, Kernel, expanded
from tilewright.targets.vta.steps.pattern import Pattern
from tilewright.targets.vta.values.machine import Machine, matrices

SEED = 7
CONFIG = PRESETS["pynq"]


def machine(rng: np.random.Generator, samples: int) -> Machine:
    state = Machine(CONFIG, Dram([]), samples)
    state.inp[:, :-1] = rng.integers(-128, 128, state.inp[:, :-1].shape)  # the last tile is the one that is zero
    state.wgt[:] = rng.integers(-128, 128, state.wgt.shape)
    state.acc[:] = rng.integers(-(2**31), 2**31, state.acc.shape)
    return state


def patterns(rng: np.random.Generator, kind: int) -> tuple[Array, Array, Array]:
    """dst, src, wgt of a convolution-like, a repeated or an arbitrary kernel."""
    if kind == 0:
        pixel, tap, column = (
            a.reshape(-1) for a in np.meshgrid(np.arange(20), np.arange(9), np.arange(3), indexing="ij")
        )
        keep = rng.random(pixel.size) < 0.9  # border taps left out
        return (column * 20 + pixel)[keep], (pixel + tap)[keep], (tap * 3 + column)[keep]
    count = 50
    high = 4 if kind == 1 else 60
    return rng.integers(0, high, count), rng.integers(0, high, count), rng.integers(0, high, count)


@pytest.mark.parametrize("trial", range(12))
def test_products_equal_the_micro_op_loop(trial: int) -> None:
    rng = np.random.default_rng(SEED + trial)
    state = machine(rng, samples=1 + trial % 2)
    dst, src, wgt = patterns(rng, trial % 3)
    expected = state.acc.astype(np.int64)
    for d, s, w in zip(dst, src, wgt, strict=True):
        expected[:, d] += state.inp[:, s].astype(np.int64) @ matrices(state.wgt[:, w]).astype(np.int64)
    state._accumulate(Kernel(GEMM_OP, range(1), 1, Pattern(dst, src, wgt)))
    np.testing.assert_array_equal(state.acc, expected.astype(np.int32), err_msg=f"seed {SEED + trial}")


def alu(op: AluOp, imm: int | None, dst: Array, src: Array) -> Kernel:
    return Kernel(op, range(1), 1, Pattern(dst, src, src), imm=imm, field=imm or 0)


@pytest.mark.parametrize("op", [AluOp.MIN, AluOp.MAX, AluOp.ADD, AluOp.SHR])
@pytest.mark.parametrize("trial", range(12))
def test_waves_equal_the_micro_op_loop(op: AluOp, trial: int) -> None:
    """Reductions, chains and disjoint tiles; with the immediate and with two tensors."""
    rng = np.random.default_rng(SEED + trial)
    state = machine(rng, samples=2)
    dst, src, _ = patterns(rng, trial % 3)
    imm = int(rng.integers(-40, 40)) if trial % 2 else None
    kernel = alu(op, imm, dst, src)
    expected = state.acc.copy()
    for d, s in zip(dst, src, strict=True):
        second = np.array(imm, np.int32) if imm is not None else expected[:, s]
        form = Form(CONFIG.rules, CONFIG.acc.width, imm is not None, imm is not None and imm < 0)
        expected[:, d] = operate(op, expected[:, d], second, form)
    state._alu(kernel)
    np.testing.assert_array_equal(state.acc, expected, err_msg=f"seed {SEED + trial}")


@pytest.mark.parametrize(
    ("semantics", "amount", "result"),
    [
        ("hls", 0, -1000),
        ("hls", 1, -500),
        ("hls", 15, -1),
        ("hls", 16, -65536000),  # five bits, signed: 16 is -16
        ("hls", 31, -2000),
        ("hls", -1, -2000),
        ("hls", -16, -65536000),
        ("fsim", 16, -1),
        ("fsim", 31, -1),
        ("fsim", -3, -8000),
        ("chisel", 16, -1),
        ("chisel", -1, -2000),
        ("chisel", -30, -1000 << 30 & 0xFFFFFFFF),
    ],
)
def test_shift_by_an_immediate(semantics: str, amount: int, result: int) -> None:
    value = np.full((1, 1), -1000, np.int32)
    config = CONFIG.with_overrides({"semantics": semantics})
    form = Form(config.rules, config.acc.width, True, amount < 0)
    got = operate(AluOp.SHR, value, np.array(amount, np.int32), form)
    assert got[0, 0] == np.array(result).astype(np.int32)


def test_no_micro_ops_in_loops_of_any_size_take_no_memory() -> None:
    loops = np.array([1 << 14, 1 << 14, 1, 1, 1, 1, 0, 0])
    assert expanded(np.zeros((0, 3), np.int64), loops).shape == (3, 0)
