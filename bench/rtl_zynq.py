"""The VGG16 engine's gateware beside the simulator: layers of every kind on every engine that has gateware.

    python bench/rtl_vs_machine.py --target zynq [--rounds N] [--full] [--json]

Layers are small, with blocks of 512 words, so that all pages of the document's engine are served many times; some are
random. In some cases pages take random additional cycles, and the engine is held at random cycles. `--full` adds layers
of VGG16 at full size, on the preset `fast` of every kind; the document's engine takes hours for its convolutions.

rtl:      one layer: a new instance, its pages, the run. The gateware is compiled beforehand.
machine:  the same layer in the simulator: all values, the cycles and the trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from tests.targets.zynq.cases import LAYERS as CASES
from tests.targets.zynq.cases import SHAPES, case, hash_of
from tests.targets.zynq.gateware.machines import MACHINES, DisturbedPace, image_of, machine
from tests.targets.zynq.gateware.random_layers import random_case
from tilewright.array import Array, one_thread
from tilewright.hdl.model import Compiled
from tilewright.targets.zynq.config import Config
from tilewright.targets.zynq.gateware import cosim
from tilewright.targets.zynq.isa.image import LayerImage
from tilewright.targets.zynq.isa.layer import RULES, Kind
from tilewright.targets.zynq.timing import service
from tilewright.targets.zynq.values import machine as values

CONV, POOL, FC = int(Kind.CONV_OTHER), int(Kind.POOL), int(Kind.FC)
#: Random layers for each engine.
RANDOM = 12
#: Layers of VGG16 on the preset `repaired`; the convolution has 4 of 512 output channels.
FULL: dict[str, dict[str, int]] = {
    "pool1": {"kind": POOL, "ic": 64, "rows": 224, "cols": 224},
    "pool5": {"kind": POOL, "ic": 512, "rows": 14, "cols": 14},
    "fc3": {"kind": FC, "r": 4096, "l": 1000},
    "conv4_2 (4 channels)": {"kind": CONV, "ic": 512, "oc": 4, "rows": 28, "cols": 28},
}
#: Layers of VGG16 on the preset `fast`.
FAST: dict[str, dict[str, int]] = {
    "conv1_1": {"kind": int(Kind.CONV_1_1), "ic": 3, "oc": 64, "rows": 224, "cols": 224},
    "conv1_2": {"kind": CONV, "ic": 64, "oc": 64, "rows": 224, "cols": 224},
    "conv5_3": {"kind": CONV, "ic": 512, "oc": 512, "rows": 14, "cols": 14},
    "pool4": {"kind": POOL, "ic": 512, "rows": 28, "cols": 28},
    "pool5": FULL["pool5"],
    "fc3": FULL["fc3"],
}
#: The layers of each preset that run with --full.
PRESETS = {"repaired": FULL, "fast": FAST}


class Work(NamedTuple):
    """A layer with its data, and a seed for random delays; 0: none."""

    image: LayerImage
    data: Array
    seed: int


def machines(full: bool) -> list[Config]:
    """Return the machines that `measure` compiles."""
    return [*map(machine, MACHINES), *(Config.read(preset, {}) for preset in (PRESETS if full else ()))]


def cases(full: bool) -> Iterator[Work]:
    """Yield the layers, in the order of their engines."""
    layers = CASES | SHAPES
    for name in MACHINES:
        for layer, fields in layers.items():
            given = case(hash_of(layer), machine(name), **fields)
            yield Work(image_of(given), given.data, 0)
        for seed in range(RANDOM):
            given = random_case(seed, machine(name))
            yield Work(image_of(given), given.data, seed if seed % 4 == 3 else 0)
    for number, fields in enumerate(layers.values(), 1):
        rule = {"rule": number % len(RULES)} if fields["kind"] != POOL else {}
        given = case(number, machine("rows"), **fields, **rule)
        image = image_of(given)
        if image.layer.rule == "pow2":
            image = replace(image, factor=2.0 ** np.round(np.log2(given.factor)))
        yield Work(image, given.data, number)
    for preset, chosen in PRESETS.items() if full else ():
        for layer, fields in chosen.items():
            given = case(hash_of(layer), Config.read(preset, {}), **fields)
            yield Work(image_of(given), given.data, 0)


def measure(rounds: int, full: bool) -> dict[str, Any]:
    """Return the row of zynq: totals of all layers, and cycles per second of processor time, the best of the rounds."""
    count = bits = differences = cycles = 0
    seconds = {"rtl": 0.0, "machine": 0.0}
    presets = [Config.read(preset, {}) for preset in PRESETS]
    for work in cases(full):
        image, layer = work.image, work.image.layer
        Compiled.of_machine(cosim.component, layer.config, "verilator")
        best = dict.fromkeys(seconds, float("inf"))
        for turn in range(1 if layer.config in presets else rounds):
            with one_thread():
                began = process_time()
                ran = cosim.run(image, work.data, pace=DisturbedPace(work.seed) if work.seed else cosim.STEADY)
                best["rtl"] = min(best["rtl"], process_time() - began)
                began = process_time()
                codes = values.run(
                    layer, work.data.reshape(1, *layer.input_shape), image.weight, image.bias, image.factor
                )
                trace, _ = service.timed(layer, service.PAGED)
                best["machine"] = min(best["machine"], process_time() - began)
            if turn == 0:
                same = cosim.in_order(layer, codes)
                bits += (
                    int(np.bitwise_count(ran.results ^ same).sum())
                    if ran.results.shape == same.shape
                    else 8 * same.size
                )
                differences += len(cosim.times(layer, ran, not work.seed)) + (
                    not work.seed and ran.cycles != trace.cycles
                )
                cycles, count = cycles + ran.cycles, count + 1
        for way, spent in best.items():
            seconds[way] += spent
    speed = {f"{way}_cycles_per_second": round(cycles / spent) for way, spent in seconds.items()}
    return {
        "target": "zynq",
        "cases": count,
        "cycles": cycles,
        "mismatched_bits": bits,
        "cycle_differences": differences,
        **speed,
    }
