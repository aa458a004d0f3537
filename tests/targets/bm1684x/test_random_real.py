"""Random networks of real numbers in f16, bf16 and f32: near onnxruntime, without hazards, in every legal order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.targets.bm1684x.real_networks import Growing

#: Least signal to noise, dB: some bits below what one rounding of each type gives.
LEAST = {"f16": 45, "bf16": 26, "f32": 100}


def check(seeds: range, folder: Path) -> int:
    """How many of the networks ran on the machine at least in part."""
    taken = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        growing = Growing(seed, int(rng.integers(1, 9)))
        path = growing.net.save(folder / "net.onnx", *growing.outputs)
        machine = {
            "precision": str(rng.choice(list(LEAST))),
            "batch": str(rng.integers(1, 6)),
            "lanes": str(1 << rng.integers(0, 7)),
            "banks": str(rng.choice([1, 2, 4, 16])),
        }
        what = f"seed {seed}, {machine}"
        program = tw.compile(path, "bm1684x", overrides=machine)
        x = rng.normal(size=(int(rng.integers(1, 4)), *growing.open[growing.input])).astype(np.float32)
        result = program.run(x)
        assert result.findings == (), what
        for name, deviation in result.deviations.items():
            ratio = deviation.snr_db
            assert ratio is None or ratio > LEAST[machine["precision"]], f"{what}: {name} has {ratio} dB"
        for order in ("random", "time"):
            again = program.run(x, order=order, seed=seed, compare=False)
            for name, values in result.outputs.items():
                np.testing.assert_array_equal(again.outputs[name], values, what)
        taken += bool(program.launches)
    return taken


def test_random_networks_are_near_the_reference(tmp_path: Path) -> None:
    assert check(range(12), tmp_path) > 6


@pytest.mark.slow
def test_many_random_networks(tmp_path: Path) -> None:
    assert check(range(1000, 2000), tmp_path) > 500
