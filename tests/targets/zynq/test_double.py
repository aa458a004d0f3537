"""Two frames a store and the other what-if options against a simulation of every cycle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.targets.zynq.cases import FAST, LAYERS, WINDOW, case
from tests.targets.zynq.double import simulate
from tilewright.targets.zynq.config import Config
from tilewright.targets.zynq.timing import walk
from tilewright.targets.zynq.timing.service import schedule


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("seed", range(12))
def test_the_event_walk_equals_every_cycle(name: str, seed: int) -> None:
    print("seed", seed)
    rng = np.random.default_rng(seed)
    outputs = int(rng.integers(1, 4))
    changes: dict[str, Any] = {
        "outputs": outputs,
        "macs_per_dsp": int(rng.integers(1, min(outputs, 2) + 1)),
        "axi_bytes": int(rng.choice([1, 4, 16])),
        "handshake": int(rng.integers(0, 60)),
        **{key: int(rng.integers(2)) for key in ("oc_blocking", "write_behind", "resident")},
        "fetch": str(rng.choice(["once", "full"])),
        "control": str(rng.choice(["pipelined", "pruned", "direct"])),
        "bias_bits": 4,
        "fc_batch": int(rng.choice([1, 1, 2])) if name == "fc" else 1,
        "dsp_budget": 1000,
    }
    changes["data_bits"] = 10 if changes["fc_batch"] > 1 else 9
    config = Config.read({**FAST, **changes}, {})
    layer = case(seed, config, **LAYERS[name]).layer
    planned = schedule(layer)
    assert (planned.cycles, int(planned.waits.wait.sum())) == simulate(layer)
    assert planned.cycles <= schedule(case(seed, one_frame(config), **LAYERS[name]).layer).cycles


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("seed", range(12))
def test_the_window_buffer_equals_every_cycle(name: str, seed: int) -> None:
    print("seed", seed)
    rng = np.random.default_rng(seed)
    outputs = int(rng.integers(1, 4))
    changes: dict[str, Any] = {
        "outputs": outputs,
        "macs_per_dsp": int(rng.integers(1, min(outputs, 2) + 1)),
        "axi_bytes": int(rng.choice([1, 4, 16])),
        "handshake": int(rng.integers(0, 60)),
        "resident": int(rng.integers(2)),
        "data_bits": int(rng.integers(10, 12)),
        "weight_bits": int(rng.integers(9, 12)),
        "fc_batch": int(rng.choice([1, 1, 2])) if name == "fc" else 1,
    }
    config = Config.read({**WINDOW, **changes}, {})
    layer = case(seed, config, **LAYERS[name]).layer
    if layer.samples > 1 and "data blocks" in walk.refusal(layer):
        layer = case(seed, replace(config, data_bits=11), **LAYERS[name]).layer
    assert not walk.refusal(layer)
    planned = schedule(layer)
    assert (planned.cycles, int(planned.waits.wait.sum())) == simulate(layer)


def one_frame(config: Config) -> Config:
    return replace(config, frames=1, resident=0, fc_batch=1) if config.fc_batch == 1 else config


@pytest.mark.parametrize("name", LAYERS)
def test_services_never_overlap_and_waits_add_up(name: str) -> None:
    layer = case(1, Config.read(FAST, {}), **LAYERS[name]).layer
    planned = schedule(layer)
    assert (planned.service.start[1:] >= planned.service.end[:-1]).all()
    assert planned.cycles == planned.engine + sum(planned.stalls().values())
