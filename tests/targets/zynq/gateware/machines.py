"""Engines that have gateware, with small blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.targets.zynq.cases import SMALL, WINDOW, Case
from tilewright.errors import MachineError
from tilewright.hdl.model import Model
from tilewright.targets.zynq.config import Config
from tilewright.targets.zynq.gateware.cosim import SteadyPace
from tilewright.targets.zynq.isa.image import LayerImage

#: Blocks of 512 words (1,024 weights), and a page service of 128 + 20 cycles.
BLOCKS = {**SMALL, "weight_bits": 10, "handshake": 20}
MACHINES: dict[str, dict[str, Any]] = {
    "rows": {},
    "chw": {"layout": "chw", "weight_bits": 8},
    "hwc": {"layout": "hwc", "weight_bits": 8},
    "fc by 16": {"layout": "chw", "fc_lanes": 16},
    "no wait": {"lat_use": 0},
    "wide port": {"axi_bytes": 16, "bias_bits": 3},
    "few DSP48": {"dsp_budget": 150},
    "direct": {"control": "direct"},
    "direct, no wait": {"control": "direct", "lat_use": 0, "layout": "hwc"},
    "pruned, behind": {"control": "pruned", "write_behind": 1},
    "pipelined": {"control": "pipelined", "layout": "chw"},
    "pipelined, behind": {"control": "pipelined", "write_behind": 1},
    "pipelined, behind, by 16": {"control": "pipelined", "write_behind": 1, "layout": "chw", "fc_lanes": 16},
    "two frames": {"frames": 2},
    "one sweep": {"oc_blocking": 1, "bias_bits": 4, "weight_bits": 11},
    "two frames, resident": {"frames": 2, "resident": 1, "control": "pipelined"},
    "two frames, one sweep": {"frames": 2, "oc_blocking": 1, "write_behind": 1, "bias_bits": 4, "control": "pipelined"},
    "two frames, behind, by 16": {"frames": 2, "write_behind": 1, "control": "pruned", "fc_lanes": 16},
    "window": WINDOW,
    "window, few DSP48": {**WINDOW, "data_bits": 11, "dsp_budget": 220, "result_bits": 5},
    "window, one output": {
        **{**WINDOW, "outputs": 1, "macs_per_dsp": 1, "resident": 0, "axi_bytes": 4, "weight_bits": 9},
        **{"result_bits": 7, "bias_bits": 5},
    },
    "window, two outputs": {**WINDOW, "outputs": 2, "axi_bytes": 8, "result_bits": 6},
}


def machine(name: str) -> Config:
    return Config.read({**BLOCKS, **MACHINES[name]}, {})


def image_of(given: Case) -> LayerImage:
    return LayerImage(given.layer, given.weights, given.bias, given.factor)


class DisturbedPace(SteadyPace):
    """Random additional cycles for each page, and an engine that is held at random cycles; no state may move then."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def delay(self) -> int:
        return int(self.rng.integers(0, 40))

    def hold(self, model: Model) -> int:
        held = 0
        for _ in range(int(self.rng.integers(0, 12))):
            for _ in range(int(self.rng.integers(0, 60))):
                if model["interrupt"]:
                    return held
                model.step()
            if model["interrupt"]:
                return held
            before, cycles = _state(model), int(self.rng.integers(1, 9))
            model["hold"] = 1
            model.step(cycles)
            held += cycles
            model["hold"] = 0
            if _state(model) != before:
                raise MachineError("RTL", "a state changed while the engine was held")
        return held


def _state(model: Model) -> tuple[int, ...]:
    return tuple(model[name] for name in ("stage", "step", "lane"))
