"""The CFU's gateware beside the simulator's model: random sequences of commands, misuse of each kind included.

    python bench/rtl_vs_machine.py --target cfu [--full] [--json]

Most cases run on small arrays. `--full` adds an array of 32, and ResNet-8 whole on `published` and on every preset with
extensions, if its model is there (../shared or $TILEWRIGHT_SHARED): firmware on the simulated CPU, with the gateware
behind it.

rtl:      all commands of a case, as fast as the CFU takes them. The gateware is compiled beforehand.
machine:  the same commands on the compiled model. It computes a launch when its values are first needed, and no cycle
          between two commands.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

import tilewright as tw
from tests.targets.cfu.gateware.sequences import Command, random_commands, run
from tilewright.array import one_thread
from tilewright.model import inputs
from tilewright.targets.cfu.config import Config
from tilewright.targets.cfu.gateware.cosim import Compared, Gateware, compare
from tilewright.targets.cfu.runtime.seam import ModelUnit, Unit
from tilewright.targets.gateware import CosimCase

SHARED = Path(os.environ.get("TILEWRIGHT_SHARED", Path(__file__).resolve().parents[2] / "shared"))
RESNET = SHARED / "mlperf_tiny" / "models" / "pretrainedResnet_quant.tflite"
COMMANDS = 300
#: Machines, each with its number of cases.
MACHINES: tuple[tuple[Config, int], ...] = (
    (Config(), 60),
    (Config(readout="random", start="blocking", srdhm="single"), 20),
    (Config(array=8, transfer="counter", buffer_rows=16), 60),
    (Config(array=8, transfer="addressed", readout="random", buffer_rows=64), 40),
    (Config(array=4, transfer="addressed", buffer_rows=16), 60),
    (Config(array=4, transfer="counter", buffer_rows=32, readout="random", start="blocking", srdhm="single"), 40),
    (Config(array=4, transfer="counter", buffer_rows=64, start="blocking"), 20),
)
FULL = ((Config(array=32, buffer_rows=64), 4), (Config(array=32, transfer="addressed", buffer_rows=64), 4))
#: Presets that run ResNet-8 whole.
WHOLE = ("published", "im2col", "add", "resident", "pool", "dma", "burst", "overlap", "add4", "stream", "tuned")


def machines(full: bool) -> list[Config]:
    """Return the machines that `measure` compiles."""
    whole = [Config.read(preset, {}) for preset in WHOLE] if full and RESNET.exists() else []
    return [*(config for config, _ in MACHINES + FULL * full), *whole]


def measure(full: bool) -> dict[str, Any]:
    """Return the row of cfu."""
    cases = cycles = bits = late = 0
    seconds = {"rtl": 0.0, "machine": 0.0}
    kinds: set[str] = set()
    for config, count in MACHINES + FULL * full:
        for case in range(count):
            commands = list(random_commands(config, np.random.default_rng([8, case]), COMMANDS))
            both = Compared(config)
            cycles += run(both, commands)
            cases, bits, late = cases + 1, bits + both.bits, late + both.late
            kinds |= both.misuses
            for name, unit in (("rtl", Gateware(config)), ("machine", ModelUnit(config))):
                seconds[name] += _seconds(unit, commands)
    row: dict[str, Any] = {
        "target": "cfu",
        "cases": cases,
        "commands": cases * COMMANDS,
        "misuses": sorted(kinds),
        "cycles": cycles,
        "mismatched_bits": bits,
        "cycle_differences": late,
        **{f"{name}_cycles_per_second": round(cycles / spent) for name, spent in seconds.items()},
    }
    if full and RESNET.exists():
        row["resnet8_cycles"] = dict[str, int]()
        for preset in WHOLE:
            network = resnet(RESNET, preset)
            row["resnet8_cycles"][preset] = network.rtl_cycles
            row["mismatched_bits"] += 8 * network.mismatched_bytes + bool(network.differences)
            row["cycle_differences"] += network.cycles != network.rtl_cycles
    return row


def _seconds(unit: Unit, commands: list[Command]) -> float:
    with one_thread():
        began = process_time()
        run(unit, commands)
        return process_time() - began


def resnet(model: Path, preset: str) -> CosimCase:
    """Compare ResNet-8 on one random sample."""
    program = tw.compile(model, "cfu", preset, rounding="tflm")
    assert program.graph is not None
    values = dict(inputs.random(program.graph).values)
    (launch,) = program.launches
    return compare(launch, Config.read(program.config, {}), values, "verilator")
