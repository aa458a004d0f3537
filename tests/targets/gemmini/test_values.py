"""The value pass against a second model of the machine (reference.py), and each switch of the semantics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.targets.gemmini.programs import ACC, BASE, Program, bits, dumped, encoded, program
from tests.targets.gemmini.reference import NOTHING, Plain
from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.program.launch_image import Dram, Segment
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.passes import Passes
from tilewright.targets.gemmini.values import loop

SIZE = 8192
SMALL = Config(dim=4, spad_rows=64, acc_rows=128, dma_bytes=32)
WIDE = Config(dim=32, spad_rows=128, acc_rows=256)
MACHINES = {
    "dim4": SMALL,
    "functional": replace(SMALL, semantics="functional"),
    "dim16": Config(spad_rows=64, acc_rows=128),
    "dim32": WIDE,
}


def ran(commands: Program, config: Config, memory: Array) -> Array:
    """Return DRAM after a program, uint8 (S, bytes)."""
    dram = Dram([Segment("dram", BASE, memory.copy())])
    Passes(encoded(commands), config).values(dram, len(memory))
    return dram["dram"]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(n, marks=pytest.mark.slow) for n in range(4, 60))])
def test_random_programs_equal_the_plain_model(machine: str, seed: int) -> None:
    config, rng = MACHINES[machine], np.random.default_rng(seed)
    commands = program(rng, config, SIZE, 25)
    memory = rng.integers(0, 256, (2, SIZE + dumped(config))).astype(np.uint8)
    content = ran(commands, config, memory)
    for sample in range(2):
        plain = Plain(
            config.dim, config.all_spad_rows, config.acc_rows, memory[sample].copy(), BASE, config.semantics == "rtl"
        )
        plain.run(commands)
        np.testing.assert_array_equal(content[sample], plain.dram, err_msg=f"seed {seed}, {machine}, sample {sample}")


def test_a_result_may_overwrite_the_operands_that_it_was_computed_from() -> None:
    """All rows of A enter the array before the first row of the result leaves it."""
    dim, config = 16, Config()
    commands: Program = [
        ("config_ld", {"state": 0, "pixels": 1, "block_stride": dim, "stride": dim, "scale": bits(1.0)}),
        ("mvin", {"dram": BASE, "local": 0, "cols": dim, "rows": dim}),
        ("mvin", {"dram": BASE + 256, "local": 16, "cols": dim, "rows": dim}),
        ("config_ex", {"dataflow": 1, "a_stride": 1, "c_stride": 1}),
        ("preload", {"bd": 0, "bd_cols": dim, "bd_rows": dim, "c": 17, "c_cols": dim, "c_rows": dim}),
        ("compute_preloaded", {"a": 16, "a_cols": dim, "a_rows": dim, "bd": NOTHING, "bd_cols": dim, "bd_rows": dim}),
        ("config_st", {"stride": dim, "scale": bits(1.0)}),
        ("mvout", {"dram": BASE + 1024, "local": 17, "cols": dim, "rows": dim}),
    ]
    left, right = np.random.default_rng(3).integers(-5, 6, (2, dim, dim))
    memory = np.zeros((1, 4096), np.uint8)
    memory[0, :512] = np.concatenate([right, left]).astype(np.int8).reshape(-1).view(np.uint8)
    content = ran(commands, config, memory)[0, 1024:1280].view(np.int8).reshape(dim, dim)
    np.testing.assert_array_equal(content, np.clip(left @ right, -128, 127))


@pytest.mark.parametrize("config", [SMALL, Config(), WIDE], ids=lambda config: f"dim{config.dim}")
def test_the_loop_is_the_same_without_numba(monkeypatch: pytest.MonkeyPatch, config: Config) -> None:
    """The compiled loop and the Python function that it is made from give the same bytes."""
    rng = np.random.default_rng(9)
    commands = program(rng, config, SIZE, 10)
    memory = rng.integers(0, 256, (1, SIZE + dumped(config))).astype(np.uint8)
    monkeypatch.setattr(loop.run, "of", lambda _: loop.run)
    fast = ran(commands, config, memory)
    monkeypatch.setattr(loop.run, "of", lambda _: loop.run.python)
    np.testing.assert_array_equal(fast, ran(commands, config, memory))


def _matmul(config: Config, k_steps: int, **ex: int) -> Program:
    """Return a program that multiplies 127 * ones by 127 * ones `k_steps` times, os, and stores int32 rows."""
    dim = config.dim
    commands: Program = [
        ("config_ld", {"state": 0, "pixels": 1, "block_stride": dim, "stride": dim, "scale": bits(1.0)}),
        ("mvin", {"dram": BASE, "local": 0, "cols": dim, "rows": dim}),
        ("config_ex", {"dataflow": 0, "a_stride": 1, "c_stride": 1, **ex}),
    ]
    for step in range(k_steps):
        last = step == k_steps - 1
        c = {"c": ACC if last else NOTHING, "c_cols": dim, "c_rows": dim}
        commands.append(("preload", {"bd": NOTHING, "bd_cols": dim, "bd_rows": dim, **c}))
        operands = {"a": 0, "a_cols": dim, "a_rows": dim, "bd": 0, "bd_cols": dim, "bd_rows": dim}
        commands.append(("compute_accumulated" if step else "compute_preloaded", operands))
    commands.append(("config_st", {"stride": 4 * dim, "scale": bits(1.0)}))
    commands.append(("mvout", {"dram": BASE + 1024, "local": ACC | 1 << 29, "cols": dim, "rows": dim}))
    return commands


def _first_sum(config: Config, commands: Program, element: int = 127) -> int:
    memory = np.zeros((1, 4096), np.uint8)
    memory[0, :256] = element & 255
    return int(ran(commands, config, memory)[0, 1024:1028].view("<i4")[0])


def test_sums_of_os_wrap_at_the_width_of_the_array() -> None:
    """Five steps of 16 products of 127 * 127: docs/gemmini.md has both results, of RTL and of libgemmini."""
    assert _first_sum(Config(), _matmul(Config(), 5)) == 241744
    exact = Config(sums="exact")
    assert _first_sum(exact, _matmul(exact, 5)) == 5 * 16 * 127 * 127


def test_the_shift_of_os_results_for_the_accumulator_is_a_switch() -> None:
    commands = _matmul(Config(), 1, shift=3)
    product = 16 * 5 * 5
    assert _first_sum(Config(), commands, 5) == product // 8
    assert _first_sum(Config(os_shift="spad"), commands, 5) == product


@pytest.mark.parametrize(("relu", "expected"), [("before_scale", -60), ("after_scale", 0)])
def test_relu_with_a_negative_scale_is_a_switch(relu: str, expected: int) -> None:
    dim, config = 16, Config(relu=relu)
    commands: Program = [
        ("config_ld", {"state": 0, "pixels": 1, "block_stride": dim, "stride": 4 * dim, "scale": bits(1.0)}),
        ("mvin", {"dram": BASE, "local": ACC, "cols": dim, "rows": 1}),
        ("config_st", {"stride": dim, "activation": 1, "scale": bits(-0.5)}),
        ("mvout", {"dram": BASE + 1024, "local": ACC, "cols": 1, "rows": 1}),
    ]
    memory = np.zeros((1, 4096), np.uint8)
    memory[0, 0] = 120
    assert ran(commands, config, memory)[0, 1024].view(np.int8) == expected


@pytest.mark.parametrize(("rows", "expected"), [("kept", 7), ("zeros", 0)])
def test_result_rows_that_do_not_stream_are_a_switch(rows: str, expected: int) -> None:
    dim, config = 16, Config(extra_rows=rows)
    operand = {"bd": NOTHING, "bd_cols": dim, "bd_rows": 6, "a": 0, "a_cols": dim, "a_rows": 6}
    commands: Program = [
        ("config_ld", {"state": 0, "pixels": 1, "block_stride": dim, "stride": 0, "scale": bits(1.0)}),
        ("mvin", {"dram": BASE, "local": 32, "cols": dim, "rows": dim}),
        ("config_ex", {"dataflow": 1, "a_stride": 1, "c_stride": 1}),
        ("preload", {"bd": NOTHING, "bd_cols": dim, "bd_rows": dim, "c": 32, "c_cols": dim, "c_rows": dim}),
        ("compute_preloaded", operand),
        ("config_st", {"stride": dim, "scale": bits(1.0)}),
        ("mvout", {"dram": BASE + 1024, "local": 32, "cols": dim, "rows": dim}),
    ]
    memory = np.full((1, 4096), 7, np.uint8)
    content = ran(commands, config, memory)[0, 1024:1280].reshape(dim, dim)
    assert (content[:6] == 0).all() and (content[6:] == expected).all()


@pytest.mark.parametrize(("repeats", "expected"), [("half", 0), ("begin", 5)])
def test_repeated_pixels_before_the_second_half_are_a_switch(repeats: str, expected: int) -> None:
    """PixelRepeater.scala drops them; libgemmini writes them, over what a loop keeps at the end of the first half."""
    config = Config(repeats=repeats)
    half = config.half
    commands: Program = [
        ("config_ld", {"state": 0, "pixels": 3, "block_stride": 16, "stride": 4, "scale": bits(1.0)}),
        ("mvin", {"dram": BASE, "local": half, "cols": 4, "rows": 2}),
        ("config_st", {"stride": 16, "scale": bits(1.0)}),
        ("mvout", {"dram": BASE + 1024, "local": half - 2, "cols": 16, "rows": 4}),
    ]
    memory = np.full((1, 4096), 5, np.uint8)
    content = ran(commands, config, memory)[0, 1024:1088].reshape(4, 16)
    assert content[:, 4:8].tolist() == [[0] * 4, [expected] * 4, [5] * 4, [0] * 4]
    assert content[:, 8:12].tolist() == [[expected] * 4, [expected] * 4, [0] * 4, [0] * 4]
    assert (content[2:, :4] == 5).all() and (content[:2, :4] == 0).all()


@pytest.mark.parametrize("stride", [(1 << 62) - 1, (1 << 63) - 1, (1 << 63) - 2, -(1 << 62), -(1 << 63), 1 << 59])
@pytest.mark.parametrize("dram", [BASE, BASE + 100, (1 << 63) - 1])
def test_addresses_that_wrap_around_are_not_inside_a_segment(stride: int, dram: int) -> None:
    """Rows at such strides may end where the first one begins, after access to the process's own memory."""
    load = {"state": 0, "pixels": 1, "block_stride": 16, "stride": stride, "scale": bits(1.0)}
    for rows in (2, 3, 5, 16):
        commands = encoded([("config_ld", load), ("mvin", {"dram": dram, "local": 0, "cols": 16, "rows": rows})])
        with pytest.raises(MachineError, match="not inside one segment"):
            Passes(commands, Config()).values(Dram([Segment("dram", BASE, np.zeros((1, 4096), np.uint8))]), 1)
