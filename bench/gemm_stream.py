"""How fast a compiled layer is simulated with values, beside a float32 product of the same size, on one core.

The layer is a 3x3 convolution, 64 to 64 channels, 56x56: 115.6 million multiply-accumulates, as two streams: in large
tiles (about 200 instructions), and as the compiler chooses (fewer cycles, more instructions). `--json` prints one
object. Ratios come from one run, alternating the two sides; absolute figures are this machine's.
"""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import json
import sys
from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter

import numpy as np

from tilewright.graph.ir import Graph, Node, Quant, Tensor
from tilewright.graph.ops import Conv2D, Window
from tilewright.program.program import Launch
from tilewright.sim.passes import RunOptions
from tilewright.targets.vta.compiler.compiler import compile_graph
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.isa.fields import Opcode
from tilewright.targets.vta.isa.stream import image_of
from tilewright.targets.vta.launch.pack import pack
from tilewright.targets.vta.passes import run_passes
from tilewright.targets.vta.schedule import LayerSchedule, Schedule, Slots, Tile
from tilewright.targets.vta.values.machine import Machine

SIZE, CHANNELS, ROUNDS = 56, 64, 15


def layer() -> Graph:
    """One convolution with seeded weights."""
    rng = np.random.default_rng(1)
    shape, unit = (1, SIZE, SIZE, CHANNELS), Quant((0.05,), (0,))
    weights = rng.integers(-127, 128, (CHANNELS, 3, 3, CHANNELS)).astype(np.int8)
    tensors = (
        Tensor("x", shape, "int8", unit),
        Tensor("w", weights.shape, "int8", Quant((0.01,), (0,)), weights),
        Tensor("y", shape, "int8", Quant((2.0,), (0,))),
    )
    node = Node("conv", Conv2D("none", Window((3, 3), (1, 1), (1, 1, 1, 1))), ("x", "w"), ("y",))
    return Graph("layer", {tensor.name: tensor for tensor in tensors}, (node,), ("x",), ("y",)).validate()


def seconds(function: Callable[[], object]) -> float:
    """Wall time of a call right after another: each side finds its own data in the caches."""
    function()
    began = perf_counter()
    function()
    return perf_counter() - began


def measure(graph: Graph, launch: Launch, config: Config) -> dict[str, float]:
    """Figures of one stream for the layer: the two sides in turn, medians."""
    image = image_of(launch)
    codes = np.random.default_rng(2).integers(-128, 128, (1, *graph.tensors["x"].shape)).astype(np.int8)
    dram = image.dram(pack(launch, graph, {"x": codes}), 1)
    options, timed = RunOptions(timing="hls"), RunOptions(timing="hls", values=False)
    passes = run_passes(image.insns, config, dram, image.bases, 1, options)
    plan = passes.plan(options, 1)
    macs = graph.nodes[0].op.macs(graph.site(graph.nodes[0]))
    rng = np.random.default_rng(3)
    left = rng.integers(-128, 128, (SIZE * SIZE, 9 * CHANNELS)).astype(np.float32)
    right = rng.integers(-128, 128, (9 * CHANNELS, CHANNELS)).astype(np.float32)
    values, products, static = [], [], []
    for _ in range(ROUNDS):
        machine = Machine(config, dram, 1)
        values.append(seconds(partial(machine.run, plan)))
        products.append(seconds(lambda: left @ right))
        static.append(seconds(partial(run_passes, image.insns, config, dram, image.bases, 1, timed)))
    return {
        "instructions": len(image.insns),
        "gemm_instructions": int((passes.elaborated.stream.opcode == Opcode.GEMM).sum()),
        "cycles": passes.trace.cycles if passes.trace else 0,
        "values_gmac_per_s": macs / median(values) / 1e9,
        "float32_matmul_gmac_per_s": macs / median(products) / 1e9,
        "matmul_over_values": median(p / v for p, v in zip(products, values, strict=True)),
        "elaborate_order_check_time_over_values": median(s / v for s, v in zip(static, values, strict=True)),
    }


def main() -> None:
    graph, config = layer(), PRESETS["pynq"]
    coarse = Schedule((LayerSchedule("conv", Tile(4, SIZE, 4, 2), slots=Slots(2, 2, 2)),))
    launches = {
        "large_tiles": compile_graph(graph, config, "tflm", schedule=coarse).launches[0],
        "as_compiled": compile_graph(graph, config, "tflm").launches[0],
    }
    figures = {name: measure(graph, launch, config) for name, launch in launches.items()}
    if "--json" in sys.argv:
        print(json.dumps(figures))
        return
    for stream, values in figures.items():
        print(stream)
        for name, figure in values.items():
            print(f"  {name:40} {figure:,.3f}" if isinstance(figure, float) else f"  {name:40} {figure:,}")


if __name__ == "__main__":
    main()
