"""Random programs of hardware loops give NumPy's results."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.gemmini.loops import convolutions, products
from tests.targets.gemmini.loops.machine import executed
from tilewright.targets.gemmini.config import Config

#: Machines with different arrays, memories and lengths of DMA requests.
MACHINES = {
    "dim4": Config.read("dim4", {}),
    "dim8": Config.read("dim8", {}),
    "dim16": Config(spad_rows=1024),
    "dim4, wide requests": Config(dim=4, spad_rows=256, acc_rows=128, dma_bytes=64),
    "dim8, narrow requests": Config(dim=8, spad_rows=256, acc_rows=256, dma_bytes=16),
}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("make", [products.product, products.residual])
@pytest.mark.parametrize("seed", range(4))
def test_random_programs(make: object, machine: str, seed: int) -> None:
    assert callable(make)
    config = MACHINES[machine]
    case = make(np.random.default_rng(seed), config)
    wrong = case.wrong(executed(case.commands, config, case.dram))
    assert not wrong, f"seed {seed} on {machine}: {len(wrong)} bytes differ, from {wrong[0]:#x} on"


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", convolutions.KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_random_convolutions(kind: str, machine: str, seed: int) -> None:
    config = MACHINES[machine]
    case = convolutions.convolution(np.random.default_rng(seed), config, kind)
    wrong = case.wrong(executed(case.commands, config, case.dram))
    assert not wrong, f"seed {seed}, {kind} on {machine}: {len(wrong)} bytes differ, from {wrong[0]:#x} on"
