"""Gemmini's clock and values beside simulation of its RTL, on a product of two matrices by LOOP_WS.

    python bench/gemmini.py [SIDE]

The RTL took 40,000 cycles a second in Verilator on one core (specs of the golden data). Processor time, the least of
five runs; the loops are compiled before.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from tilewright.program.launch_image import Dram, DramSegment, LaunchImage
from tilewright.targets.gemmini import timing
from tilewright.targets.gemmini.compiler import fastest
from tilewright.targets.gemmini.compiler.products import Product
from tilewright.targets.gemmini.compiler.requantise import SUMS
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.fields import raw
from tilewright.targets.gemmini.loops import expand
from tilewright.targets.gemmini.passes import Passes

RTL = 40_000
RUNS = 5


def seconds(act: Callable[[], object]) -> float:
    """Return the processor seconds of the fastest of some runs, after one that does not count."""
    found = []
    for _ in range(RUNS + 1):
        start = time.process_time()
        act()
        found.append(time.process_time() - start)
    return min(found[1:])


def main(side: int) -> None:
    config, rng = Config(), np.random.default_rng(0)
    x, w = rng.integers(-128, 128, (2, side, side)).astype(np.int8)
    data = {"x": x, "w": np.concatenate([w, np.zeros((config.dim, side), np.int8)])}  # whole blocks are read
    data |= {"d": np.zeros(side, np.int32), "y": np.zeros((side, side), np.int32)}
    segments, address = list[DramSegment](), 0x1000
    for name, array in data.items():
        segments.append(DramSegment(name, address, array.nbytes, "inout"))
        address += array.nbytes
    places = [segment.address for segment in segments]
    best = fastest(Product(side, side, side, SUMS), config, places)
    assert best is not None, "no tile of the product fits"
    commands, cycles = best.tiled.emit(config, *places).array, best.cycles
    image = LaunchImage(
        raw(commands), tuple(segments), {name: one.reshape(-1).view(np.uint8) for name, one in data.items()}
    )
    expansion = expand(commands, config)

    def whole() -> Dram:
        passes, dram = Passes(commands, config), image.dram({}, 1)
        passes.values(dram, 1)
        assert passes.trace.cycles == cycles
        return dram

    for name, act in (
        ("time only", lambda: timing.run(commands, expansion, config, config.memory_latency)),
        ("values and time", whole),
    ):
        rate = cycles / seconds(act)
        print(f"{name}: {cycles:,} cycles, {rate / 1e6:.2f} million a second, {rate / RTL:.0f} times the RTL")
    np.testing.assert_array_equal(whole()["y"].view("<i4").reshape(side, side), x.astype(np.int32) @ w)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 512)
