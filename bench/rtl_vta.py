"""VTA's gateware beside the simulator, on the launches of networks and on random legal programs.

    python bench/rtl_vs_machine.py [FILE.twp ...] --target vta [--rounds N] [--full] [--json]

Without a file: the digits, kws, ic and vww at 16x16 (preset pynq; the last three are read from $TILEWRIGHT_SHARED), and
random legal programs on two small machines. `--full` adds ad, and random programs on every machine of
tests/targets/vta/gateware/machines.py.

Cycles a second are those of all launches of networks over processor time, each launch's best of a few rounds, in turn,
as the machine is shared. Host steps are run in between and not measured.

rtl:        one sample through a launch: a new instance, its DRAM, the run. The gateware is compiled beforehand.
machine:    one sample through a launch of a loaded program: every instruction's cycles and all values. What Tilewright
            finds once a program is known (elaboration, order, plan of values), as it is when samples follow each other,
            and the loops are compiled.
time_only:  the same without values.
first:      the first sample: all of that from the bytes of the instructions on. first_time_only: without values.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

import tilewright as tw
from tests.mlperf import model_path
from tests.targets.vta.gateware.machines import MACHINES, dram_of
from tests.targets.vta.streams import BASES, random_case
from tilewright.array import Array, one_thread, uncollected
from tilewright.errors import HazardError
from tilewright.graph import reference
from tilewright.model import inputs
from tilewright.program import file
from tilewright.program.launch_image import Dram, LaunchImage
from tilewright.program.program import Launch, Program
from tilewright.sim import jit
from tilewright.sim.findings import RACE
from tilewright.sim.passes import RunOptions
from tilewright.targets import get
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.gateware import cosim as rtl
from tilewright.targets.vta.isa.stream import encode, image_of
from tilewright.targets.vta.launch.pack import pack
from tilewright.targets.vta.passes import Prepared, run_passes
from tilewright.targets.vta.timing import MODELS

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("TILEWRIGHT_SHARED", ROOT.parent / "shared"))
DIGITS = ROOT / "examples" / "digits" / "digits.tflite"
NETWORKS, MORE = ("kws", "ic", "vww"), ("ad",)
#: Random programs: on how many machines and how many on each, without and with --full.
FEW, ALL = (2, 40), (len(MACHINES), 100)
MODEL = "tilewright"
WITH_VALUES = RunOptions(timing=MODEL, check=False)
TIME_ONLY = RunOptions(timing=MODEL, check=False, values=False)
WAYS = ("rtl", "machine", "time_only", "first", "first_time_only")


def machines(full: bool, given: bool) -> list[Config]:
    """Return the machines that `measure` compiles, but for those of files (`given`)."""
    return [] if given else [Config.read(None, {}), *list(MACHINES.values())[: (ALL if full else FEW)[0]]]


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


def measured(program: Program, rounds: int) -> dict[str, Any]:
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
            passes.run(dram, 1, WITH_VALUES)
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


def networks(full: bool) -> list[Program]:
    """The networks that are there, compiled."""
    paths = [DIGITS, *(model_path(SHARED, name) for name in (*NETWORKS, *(MORE if full else ())))]
    return [tw.compile(path, "vta") for path in paths if path.exists()]


def randoms(machines: int, programs: int) -> dict[str, int]:
    """Totals of random programs: `bits` counts those without races, `differences` starts and ends of all."""
    found = {"cases": 0, "bits": 0, "differences": 0}
    for config in list(MACHINES.values())[:machines]:
        for seed in range(programs):
            case = random_case(np.random.default_rng(seed), config, 1)
            insns, modelled, ran = encode(case.records, config), dram_of(case), dram_of(case)
            try:
                passes = run_passes(insns, config, modelled, BASES, 1, RunOptions(timing=MODEL))
            except HazardError:  # queues too short for the program: a deadlock, and no run
                continue
            if (trace := passes.trace) is None:
                continue
            result = rtl.run(insns, config, ran, BASES)
            found["cases"] += 1
            found["differences"] += int((result.start != trace.start).sum() + (result.end != trace.end).sum())
            if not any(finding.kind == RACE for finding in passes.findings):
                found["bits"] += int(np.bitwise_count(ran["all"] ^ modelled["all"]).sum())
    return found


def measure(files: tuple[str, ...], rounds: int, full: bool) -> dict[str, Any]:
    """Return the row of vta."""
    programs = [file.load(path) for path in files] or networks(full)
    parts = [measured(program, rounds) for program in programs]
    cycles, launched = sum(part["cycles"] for part in parts), sum(part["launches"] for part in parts)
    speed = {name: cycles / sum(part["seconds"][name] for part in parts) for name in WAYS}
    also = randoms(*(ALL if full else FEW)) if not files else {"cases": 0, "bits": 0, "differences": 0}
    return {
        "target": "vta",
        "programs": len(programs),
        "launches": launched,
        "cases": launched + also["cases"],
        "cycles": cycles,
        "mismatched_bits": sum(part["bits"] for part in parts) + also["bits"],
        "cycle_differences": sum(part["differences"] for part in parts) + also["differences"],
        **{f"{name}_cycles_per_second": round(value) for name, value in speed.items()},
    }
