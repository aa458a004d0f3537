"""A GEMM as matrix products and an ALU instruction as waves, against micro-op by micro-op loops."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.sim.dram import Dram
from tilewright.targets.vta.config import PRESETS
from tilewright.targets.vta.isa.fields import AluOp
from tilewright.targets.vta.kernel import AluKernel, GemmKernel, Loop
from tilewright.targets.vta.machine import Machine, operate

SEED = 7
CONFIG = PRESETS["pynq"]
LOOP = Loop(0, 1, 1, 1, (0, 0), (0, 0))


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
        expected[:, d] += state.inp[:, s].astype(np.int64) @ state.wgt[:, w].astype(np.int64)
    state._accumulate(GemmKernel(LOOP, False, dst, src, wgt))
    np.testing.assert_array_equal(state.acc, expected.astype(np.int32), err_msg=f"seed {SEED + trial}")


@pytest.mark.parametrize("op", [AluOp.MIN, AluOp.MAX, AluOp.ADD, AluOp.SHR])
@pytest.mark.parametrize("trial", range(12))
def test_waves_equal_the_micro_op_loop(op: AluOp, trial: int) -> None:
    """Reductions, chains and disjoint tiles; with the immediate and with two tensors."""
    rng = np.random.default_rng(SEED + trial)
    state = machine(rng, samples=2)
    dst, src, _ = patterns(rng, trial % 3)
    imm = int(rng.integers(-40, 40)) if trial % 2 else None
    expected = state.acc.copy()
    for d, s in zip(dst, src, strict=True):
        second = np.array(imm, np.int32) if imm is not None else expected[:, s]
        expected[:, d] = operate(op, expected[:, d], second, CONFIG)
    state._alu(AluKernel(LOOP, op, imm, dst, src))
    np.testing.assert_array_equal(state.acc, expected, err_msg=f"seed {SEED + trial}")


@pytest.mark.parametrize(
    ("amount", "result"), [(0, -1000), (1, -500), (15, -1), (16, -65536000), (31, -2000), (-1, -2000), (-16, -65536000)]
)
def test_shift_takes_five_signed_bits(amount: int, result: int) -> None:
    value = np.full((1, 1), -1000, np.int32)
    assert operate(AluOp.SHR, value, np.array(amount, np.int32), CONFIG)[0, 0] == result
