"""Compiled gateware beside the simulator, on the same launches: bits, cycles, and how fast each is.

    python bench/rtl_vs_machine.py [FILE.twp ...] [--rounds N] [--json]

Without a file: the digits on pynq. Host steps are run in between and not measured. Cycles a second are those of all
launches over processor time, the gateware compiled beforehand; machine: elaboration, order, time and values;
time_only: without values. The best of a few rounds, in turn, as the machine is shared. --json: a list, one object.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import click
import numpy as np

import tilewright as tw
from tilewright import host
from tilewright.array import Array, one_thread
from tilewright.model import inputs
from tilewright.program import file
from tilewright.program.program import Launch, Program
from tilewright.targets import get
from tilewright.targets.base import RunOptions
from tilewright.targets.vta.codegen.pack import pack
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.image import Image
from tilewright.targets.vta.passes import run_passes
from tilewright.targets.vta.rtl import run as rtl

DIGITS = Path(__file__).resolve().parent.parent / "examples" / "digits" / "digits.tflite"
WITH_VALUES = RunOptions(timing="tilewright", check=False)
TIME_ONLY = RunOptions(timing="tilewright", check=False, values=False)


def launches(program: Program) -> list[tuple[Image, dict[str, Array]]]:
    """Each launch, with the segments that one random sample gives it."""
    if program.graph is None:
        return [(Image.of(launch), {}) for launch in program.launches]
    target, values, found = get(program.target), dict(inputs.random(program.graph).values), []
    for step in program.steps:
        if isinstance(step, Launch):
            found.append((Image.of(step), dict(pack(step, program.graph, values))))
            values.update(target.launch(program, step, values, RunOptions(check=False)).values)
        else:
            values.update(host.run_node(program.graph, step.node, values, program.rounding))
    return found


def measure(program: Program, rounds: int) -> dict[str, Any]:
    """Totals of a program: launches, cycles, differences, and the least seconds of each way."""
    config, total = Config.from_json(program.config), dict.fromkeys(("launches", "cycles", "bits", "differences"), 0)
    seconds = dict.fromkeys(("rtl", "machine", "time_only"), 0.0)
    rtl.compiled(config, "verilator")
    for image, data in launches(program):
        best: dict[str, float] = {}

        def clocked(name: str, work: Callable[[], Any], best: dict[str, float] = best) -> Any:
            began = process_time()
            result = work()
            best[name] = min(best.get(name, np.inf), process_time() - began)
            return result

        for _ in range(rounds):
            ran, simulated, timed = (image.dram(data, 1) for _ in range(3))
            given = image.insns, config
            result = clocked("rtl", lambda: rtl.run(*given, ran, image.bases))  # noqa: B023
            with one_thread():
                passes = clocked("machine", lambda: run_passes(*given, simulated, image.bases, 1, WITH_VALUES))  # noqa: B023
                clocked("time_only", lambda: run_passes(*given, timed, image.bases, 1, TIME_ONLY))  # noqa: B023
        total["launches"] += 1
        total["cycles"] += result.cycles
        total["differences"] += int((result.start != passes.trace.start).sum() + (result.end != passes.trace.end).sum())
        for one, other in zip(ran.segments, simulated.segments, strict=True):
            total["bits"] += int(np.bitwise_count(one.data ^ other.data).sum())
        for name, spent in best.items():
            seconds[name] += spent
    return {**total, "seconds": seconds}


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE.twp ...]")
@click.option("--rounds", default=3, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(files: tuple[str, ...], rounds: int, as_json: bool) -> None:
    programs = [file.load(path) for path in files] or [tw.compile(DIGITS, "vta")]
    parts = [measure(program, rounds) for program in programs]
    cycles = sum(part["cycles"] for part in parts)
    speed = {name: cycles / sum(part["seconds"][name] for part in parts) for name in ("rtl", "machine", "time_only")}
    row = {
        "target": "vta",
        "programs": len(programs),
        "launches": sum(part["launches"] for part in parts),
        "cycles": cycles,
        "mismatched_bits": sum(part["bits"] for part in parts),
        "cycle_differences": sum(part["differences"] for part in parts),
        **{f"{name}_cycles_per_second": round(value) for name, value in speed.items()},
    }
    if as_json:
        click.echo(json.dumps([row]))
    else:
        for key, value in row.items():
            click.echo(f"{key:28} {value:,}" if isinstance(value, int) else f"{key:28} {value}")
        click.echo(
            f"machine / rtl {speed['machine'] / speed['rtl']:.1f}, time only {speed['time_only'] / speed['rtl']:.1f}"
        )


if __name__ == "__main__":
    main()
