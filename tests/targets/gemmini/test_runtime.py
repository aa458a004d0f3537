"""Programs by hand: the macros of gemmini.h, buffers, and a run's result."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.errors import HazardError, InputError, MachineError, ProgramError
from tilewright.targets import get
from tilewright.targets.gemmini.isa.fields import commands
from tilewright.targets.gemmini.runtime import GARBAGE_ADDR, NO_ACTIVATION, WEIGHT_STATIONARY, Gemmini, acc, spad


def test_a_product_by_primitives() -> None:
    rng = np.random.default_rng(1)
    left, right = rng.integers(-9, 10, (2, 16, 16)).astype(np.int8)
    with Gemmini() as g:
        a, b, c = g.to_device(left), g.to_device(right), g.empty((16, 16), "int32")
        g.gemmini_config_ex(WEIGHT_STATIONARY, NO_ACTIVATION, 0)
        g.gemmini_config_ld(16)
        g.gemmini_config_st(64)
        g.gemmini_mvin(a.address, spad(0))
        g.gemmini_mvin(b.address, spad(16))
        g.gemmini_preload(spad(16), acc(0))
        g.gemmini_compute_preloaded(spad(0), GARBAGE_ADDR)
        g.gemmini_mvout(c.address, acc(0, full=True))
        g.gemmini_fence()
        program = g.program()
        result = g.run(timing=False)
    np.testing.assert_array_equal(c.data, left.astype(np.int32) @ right)
    assert result.findings == () and result.macs == 16**3
    assert list(get("gemmini").check(program)) == []
    with pytest.raises(ProgramError, match="no commands"):
        g.run()


def test_a_convolution_by_the_hardware_loop() -> None:
    """One 3x3 convolution of a 6 x 6 image, 16 channels, padding 1, by gemmini_loop_conv_ws, against NumPy."""
    rng = np.random.default_rng(2)
    image, weights = rng.integers(-4, 5, (1, 6, 6, 16)), rng.integers(-4, 5, (3, 3, 16, 16))
    with Gemmini() as g:
        x, w = g.to_device(image.astype(np.int8)), g.to_device(weights.astype(np.int8))
        bias, y = g.to_device(np.arange(16, dtype=np.int32)), g.empty((1, 6, 6, 16), "int8")
        g.gemmini_config_ex(WEIGHT_STATIONARY, NO_ACTIVATION, 0)
        g.gemmini_extended_config_st(16, NO_ACTIVATION, 0.25)
        sizes = {"in_row_dim": 6, "in_col_dim": 6, "out_row_dim": 6, "out_col_dim": 6, "orows": 6, "ocols": 6}
        pooled = {
            "pool_out_row_dim": 6,
            "pool_out_col_dim": 6,
            "porows": 6,
            "pocols": 6,
            "pool_size": 1,
            "pool_stride": 1,
        }
        channels = dict.fromkeys(("in_channels", "out_channels", "kchs", "pochs"), 16)
        strides = dict.fromkeys(("in_stride", "out_stride", "weight_stride"), 16)
        kernel = {"kernel_dim": 3, "krows": 3, "kcols": 3, "kernel_dilation": 1, "stride": 1, "padding": 1}
        pads = dict.fromkeys(("lpad", "rpad", "upad", "dpad"), 1)
        addresses = {"input": x.address, "weights": w.address, "bias": bias.address, "output": y.address}
        ones = dict.fromkeys(("batches", "batch_size", "no_pool", "max_pixels_per_row"), 1)
        g.gemmini_loop_conv_ws(**sizes, **pooled, **channels, **strides, **kernel, **pads, **addresses, **ones)
        g.gemmini_fence()
        result = g.run(timing=False)
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)))
    sums = sum(padded[:, i : i + 6, j : j + 6] @ weights[i, j] for i in range(3) for j in range(3)) + np.arange(16)
    np.testing.assert_array_equal(y.data, np.clip(np.round(sums * 0.25), -128, 127))
    assert result.findings == ()
    with pytest.raises(InputError, match="has no parameter 'kernel'"):
        g.gemmini_loop_conv_ws(kernel=3)


def test_macros_write_the_commands_of_the_header() -> None:
    g = Gemmini()
    g.gemmini_extended5_config_ld(64, 1.0, True, 16, 2, 1)
    g.gemmini_extended_mvin(0x80000000, spad(4), 16, 8)
    g.gemmini_preload_zeros(acc(3, accumulate=True))
    written = commands(g.program().launches[0].arrays["insns"]).tolist()
    assert written[0] == [0, 0x3F800000 << 32 | 16 << 16 | 2 << 8 | 1 << 3 | 1 << 2 | 1, 64]
    assert written[1] == [2, 0x80000000, 8 << 48 | 16 << 32 | 4]
    assert written[2] == [6, 16 << 48 | 16 << 32 | 0xFFFFFFFF, 16 << 48 | 16 << 32 | 0xC0000003]


def test_mistakes_are_refused() -> None:
    g = Gemmini()
    with pytest.raises(ProgramError, match="is empty"):
        g.to_device(np.zeros(0))
    g.to_device(np.zeros(64, np.int8), "x")
    with pytest.raises(ProgramError, match="'x' already"):
        g.to_device(np.zeros(4, np.int8), "x")
    with pytest.raises(ProgramError, match="cols is 70000"):
        g.gemmini_extended_mvin(0, 0, 70000, 1)
    g.gemmini_config_ld(16)
    g.gemmini_mvin(0x80000000, spad(0))
    with pytest.raises(MachineError, match="not inside one segment"):
        g.run(timing=False)
    g.gemmini_mvin(0x80000000, spad(1 << 20))
    with pytest.raises(HazardError, match="out_of_range"):
        g.run(timing=False)
