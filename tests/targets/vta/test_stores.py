"""Programs planned for the timing model chisel, in which stores cost most: the reference's codes, and few bursts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.targets.vta.random_graphs import CONFIGS, random_graph
from tests.targets.vta.single_node import codes
from tilewright.program.program import Launch
from tilewright.run import run
from tilewright.targets.vta.compiler.compiler import compile_graph
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import Opcode
from tilewright.targets.vta.isa.stream import decode
from tilewright.targets.vta.launch.layouts import STORED

MACHINES = {
    "pynq": CONFIGS["pynq"],
    "short bursts": replace(CONFIGS["pynq"], burst_beats=16),
    "wide bus": replace(CONFIGS["pynq"], LOG_BUS_WIDTH=7),
    "small": CONFIGS["small"],
    "batch2": CONFIGS["batch2"],
    "block32": CONFIGS["block32"],
}


@pytest.mark.parametrize("name", MACHINES)
def test_random_layers_equal_the_reference(name: str, brief_search: None) -> None:
    config = MACHINES[name]
    reordered = 0
    for seed in range(12):
        rng = np.random.default_rng([seed, len(name)])
        graph = random_graph(rng)
        program = compile_graph(graph, config, "tflm", "chisel")
        result = run(program, {tensor: codes(rng, graph.tensors[tensor], 2) for tensor in graph.inputs})
        assert result.matches_reference, f"seed {seed}"
        assert not result.findings, f"seed {seed}"
        for launch in program.launches:
            if f"{STORED}.0" in launch.arrays:
                check_bursts(launch, config)
                reordered += 1
    assert reordered > 6


def check_bursts(launch: Launch, config: Config) -> None:
    """Every store writes one row, in as few bursts as a row of this length needs."""
    stream = decode(launch.arrays["insns"], config)
    stores = np.flatnonzero(stream.opcode == Opcode.STORE)
    assert (stream.mem.y_size[stores] == 1).all()
    burst = config.burst_beats * config.bus_bits // 8
    length = stream.mem.x_size[stores] * config.out.tile_bytes
    first = stream.mem.dram_base[stores] * config.out.tile_bytes
    np.testing.assert_array_equal((first + length - 1) // burst - first // burst, (length - 1) // burst)
