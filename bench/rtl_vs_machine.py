"""Compiled gateware beside the simulator, on the same launches: bits, cycles, and how fast each is.

    python bench/rtl_vs_machine.py [FILE.twp ...] [--target vta|cfu|zynq] [--rounds N] [--full] [--json]

vta (for cfu and zynq see rtl_cfu.py, rtl_zynq.py): without a file, the digits on pynq. Cycles a second are those of all
launches over processor time, each launch's best of a few rounds, in turn, as the machine is shared. Host steps are run
in between and not measured.

rtl:        one sample through a launch: a new instance, its DRAM, the run. The gateware is compiled beforehand.
machine:    one sample through a launch of a loaded program: every instruction's cycles and all values. What Tilewright
            finds once a program is known (elaboration, order, plan of values), as it is when samples follow each other,
            and the loops are compiled.
time_only:  the same without values.
first:      the first sample: all of that from the bytes of the instructions on. first_time_only: without values.

--target: one of them [all, or vta with files]. --json: a list, one object per target.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from time import process_time
from typing import Any

import click
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tilewright as tw
from bench import rtl_cfu, rtl_zynq
from tilewright.array import Array, one_thread, uncollected
from tilewright.graph import reference
from tilewright.model import inputs
from tilewright.program import file
from tilewright.program.launch_image import Dram, LaunchImage
from tilewright.program.program import Launch, Program
from tilewright.sim import jit
from tilewright.sim.passes import RunOptions
from tilewright.targets import get
from tilewright.targets.vta.compiler.pack import pack
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.gateware import cosim as rtl
from tilewright.targets.vta.isa.stream import image_of
from tilewright.targets.vta.passes import Prepared, run_passes
from tilewright.targets.vta.timing import MODELS

DIGITS = Path(__file__).resolve().parent.parent / "examples" / "digits" / "digits.tflite"
MODEL = "tilewright"
WITH_VALUES = RunOptions(timing=MODEL, check=False)
TIME_ONLY = RunOptions(timing=MODEL, check=False, values=False)
WAYS = ("rtl", "machine", "time_only", "first", "first_time_only")


def launches(program: Program) -> list[tuple[LaunchImage, dict[str, Array]]]:
    """Each launch, with the segments that one random sample gives it."""
    if program.graph is None:
        return [(image_of(launch), {}) for launch in program.launches]
    target, values, found = get(program.target), dict(inputs.random(program.graph).values), []
    for step in program.steps:
        if isinstance(step, Launch):
            found.append((image_of(step), dict(pack(step, program.graph, values))))
            values.update(target.launch(program, step, values, RunOptions(check=False)).values)
        else:
            values.update(reference.run_node(program.graph, step.node, values, program.rounding))
    return found


def measure(program: Program, rounds: int) -> dict[str, Any]:
    """Totals of a program: launches, cycles, differences, and the least seconds of each way."""
    config, given = Config.from_json(program.config), launches(program)
    rtl.compiled(config, "verilator")
    jit.expect(jit.PATIENCE)
    known = [run_passes(item.insns, config, item.dram(data, 1), item.bases, 1, WITH_VALUES) for item, data in given]

    def work(way: str, image: LaunchImage, dram: Dram, passes: Prepared) -> Any:
        stream = image.insns, config, dram, image.bases
        if way == "rtl":
            return rtl.run(*stream)
        if way.startswith("first"):
            return run_passes(*stream, 1, TIME_ONLY if way == "first_time_only" else WITH_VALUES)
        if way == "machine":
            run_passes(*stream, 1, WITH_VALUES, passes)
        return MODELS[MODEL].trace(passes.elaborated, passes.order)

    best = {way: np.full(len(given), np.inf) for way in WAYS}
    last: dict[str, list[tuple[Dram, Any]]] = {}
    for _ in range(rounds):
        for way in WAYS:
            last[way] = []
            for index, ((image, data), passes) in enumerate(zip(given, known, strict=True)):
                dram = image.dram(data, 1)
                with one_thread(), uncollected():
                    began = process_time()
                    result = work(way, image, dram, passes)
                    best[way][index] = min(best[way][index], process_time() - began)
                last[way].append((dram, result))
    bits = differences = cycles = 0
    for (left, ran), (values, trace) in zip(last["rtl"], last["machine"], strict=True):
        cycles += ran.cycles
        differences += int((ran.start != trace.start).sum() + (ran.end != trace.end).sum())
        for one, other in zip(left.segments, values.segments, strict=True):
            bits += int(np.bitwise_count(one.data ^ other.data).sum())
    seconds = {way: float(spent.sum()) for way, spent in best.items()}
    return {"launches": len(given), "cycles": cycles, "bits": bits, "differences": differences, "seconds": seconds}


def vta(files: tuple[str, ...], rounds: int) -> dict[str, Any]:
    """The row of vta."""
    programs = [file.load(path) for path in files] or [tw.compile(DIGITS, "vta")]
    parts = [measure(program, rounds) for program in programs]
    cycles, cases = sum(part["cycles"] for part in parts), sum(part["launches"] for part in parts)
    speed = {name: cycles / sum(part["seconds"][name] for part in parts) for name in WAYS}
    return {
        "target": "vta",
        "programs": len(programs),
        "launches": cases,
        "cases": cases,
        "cycles": cycles,
        "mismatched_bits": sum(part["bits"] for part in parts),
        "cycle_differences": sum(part["differences"] for part in parts),
        **{f"{name}_cycles_per_second": round(value) for name, value in speed.items()},
    }


#: The targets with gateware.
TARGETS = ("vta", "cfu", "zynq")


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE.twp ...]")
@click.option("--target", "targets", multiple=True, type=click.Choice(TARGETS))
@click.option("--rounds", default=5, show_default=True)
@click.option("--full", is_flag=True, help="Arrays of 32 and ResNet-8 (cfu), and large layers of VGG16 (zynq).")
@click.option("--json", "as_json", is_flag=True)
def main(files: tuple[str, ...], targets: tuple[str, ...], rounds: int, full: bool, as_json: bool) -> None:
    rows = []
    chosen = targets or (("vta",) if files else TARGETS)
    if "vta" in chosen:
        rows.append(vta(files, rounds))
    if "cfu" in chosen:
        rows.append(rtl_cfu.measure(full))
    if "zynq" in chosen:
        rows.append(rtl_zynq.measure(rounds, full))
    if as_json:
        click.echo(json.dumps(rows))
        return
    for row in rows:
        for key, value in row.items():
            click.echo(f"{key:32} {value:,}" if isinstance(value, int) else f"{key:32} {value}")
        rtl_speed = row["rtl_cycles_per_second"]
        ways = {key: value / rtl_speed for key, value in row.items() if key.endswith("_per_second")}
        ways.pop("rtl_cycles_per_second")
        named = (f"{key.removesuffix('_cycles_per_second')} {value:.1f}" for key, value in ways.items())
        click.echo(f"times rtl: {', '.join(named)}")


if __name__ == "__main__":
    main()
