"""Runs a network of examples/networks.py, quantised, on VTA with values, time and hazards, and measures all of it.

    python bench/networks.py resnet18 -t vta [--scheme pow2|affine] [--set KEY=VALUE ...] [--json]

pow2 (default) needs shifts only; affine is onnxruntime's arithmetic, for machines with `--set alu=float`.
Cycles are of one sample. Bounds are what no order of the same instructions beats (vta/timing/limits.py), of all layers
on the machine together; geomean_ratio is over these layers, of cycles / the largest of a layer's own bounds.
compile_seconds: reading and compiling; cached_seconds: the same again, the program from the cache.
simulate_seconds, cpu_seconds: wall and process time of the first run in a process of its own, the program from the
cache, with host steps and without the reference; again_seconds, again_cpu_seconds: the least of two later runs there;
time_only_seconds: launches only timed; ort_seconds: onnxruntime's median, same file and cores.
Models and samples are kept by name, seed, scheme, versions and the quantiser's source: a second run only measures.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from statistics import geometric_mean, median
from subprocess import PIPE
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from timeit import repeat
from typing import Any, TypeVar

import click
import numpy as np
import onnx
import onnxruntime as ort

import tilewright as tw
from tilewright import quantize
from tilewright.api import Program
from tilewright.array import Array
from tilewright.cli import options
from tilewright.errors import InputError, TilewrightError
from tilewright.files import replacing
from tilewright.graph import reference
from tilewright.graph.ir import Graph
from tilewright.sim.passes import RunOptions
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.stream import image_of
from tilewright.targets.vta.passes import run_passes
from tilewright.targets.vta.timing import DEFAULT, MODELS
from tilewright.targets.vta.timing.limits import summed

sys.path.append(str(Path(__file__).resolve().parent.parent))  # for `tests`
EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "networks.py"
NETWORKS: dict[str, Any] = runpy.run_path(str(EXAMPLES))
T = TypeVar("T")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tilewright-bench"


def prepare(name: str, seed: int, scheme: str, cache: Path) -> tuple[Path, Path]:
    """The quantised model and its calibration samples (.npy), made unless they are there."""
    sources = [EXAMPLES, *sorted(Path(quantize.__file__).parent.rglob("*.py"))]
    versions = "-".join((tw.__version__, onnx.__version__, ort.__version__))
    key = sha256(versions.encode() + b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    model, samples = (cache / f"{name}-{seed}-{scheme}-{key}.{suffix}" for suffix in ("onnx", "npy"))
    if model.is_file() and samples.is_file():
        return model, samples
    cache.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder, options.progress_bar() as progress:
        made, net = NETWORKS["build"](name, seed)
        onnx.save(made, onnx_file := Path(folder) / f"{name}.onnx")
        with replacing(samples) as file:
            np.save(file, net.values["input"])
        del made, net  # up to 4 GB
        quantize.quantize(onnx_file, samples, model, quantize.Options(scheme=scheme), progress=progress)
    return model, samples


def measure(model: Path, samples: Path, config: str | None, overrides: dict[str, str], timing: str) -> dict[str, Any]:
    """All figures, with the first of the samples. Raises InputError where nothing runs on VTA."""
    sample = np.load(samples)[:1]
    with TemporaryDirectory() as kept:
        (graph, program), compiled = timed(lambda: compile_model(model, config, overrides, kept))
        if not program.launches:
            raise InputError(model.stem, "has no layer for this machine", "choose another --scheme or --set alu=float")
        cached = timed(lambda: compile_model(model, config, overrides, kept))[1]  # and not a second program
        result = program.run(sample[None], timing=timing, compare=False)  # compiles the loops, if they are not kept
        given = [__file__, [*map(str, (model, samples, kept)), config, overrides, timing]]
        fresh = [sys.executable, "-c", IN_A_PROCESS, json.dumps(given)]
        (simulated, cpu), *again = json.loads(subprocess.run(fresh, stdout=PIPE, check=True).stdout)
    golden = reference.run(graph, {graph.inputs[0]: sample[None]}, program.rounding)
    from tests.targets.vta.promises import limits

    bounds = limits(program, timing)
    whole = summed(bounds.values())
    ratios = [layer.cycles / bounds[layer.name].bound for layer in result.layers if layer.cycles]
    return {
        "config": dict(program.config),
        "timing": timing,
        "cycles": result.cycles,
        "cycles_serial": result.serial_cycles,
        "gemm_bound": whole.gemm,
        "compute_bound": whole.compute,
        "dram_bound": whole.dram,
        "geomean_ratio": geometric_mean(ratios),
        "compile_seconds": compiled,
        "cached_seconds": cached,
        "simulate_seconds": simulated,
        "cpu_seconds": cpu,
        "again_seconds": min(wall for wall, _ in again),
        "again_cpu_seconds": min(spent for _, spent in again),
        "time_only_seconds": time_only(program, timing),
        "ort_seconds": onnxruntime(model, sample),
        "hazards": len(result.findings),
        "matches_reference": all(np.array_equal(result.outputs[name], golden[name]) for name in graph.outputs),
    }


def compile_model(model: Path, config: str | None, overrides: dict[str, str], kept: str) -> tuple[Graph, Program]:
    """The model, read, and its program, from a cache of programs if it is there."""
    graph = tw.load(model)
    return graph, tw.compile(graph, "vta", config, overrides, cache=kept)


#: Calls `run_cached` of the file in the first argument, in a new process.
IN_A_PROCESS = """
import json, runpy, sys
file, given = json.loads(sys.argv[1])
print(json.dumps(runpy.run_path(file)["run_cached"](*given)))
"""


def run_cached(
    model: str, samples: str, kept: str, config: str | None, overrides: dict[str, str], timing: str
) -> list[tuple[float, float]]:
    """Wall and process time of three runs of the program in the cache `kept`, with the first sample."""
    program, found = compile_model(Path(model), config, overrides, kept)[1], []
    sample = np.load(samples)[:1]
    for _ in range(3):
        began, cpu = perf_counter(), process_time()
        program.run(sample[None], timing=timing, compare=False)
        found.append((perf_counter() - began, process_time() - cpu))
    return found


def timed(do: Callable[[], T]) -> tuple[T, float]:
    """What a call gives, and its wall seconds."""
    began = perf_counter()
    result = do()
    return result, perf_counter() - began


def time_only(program: Program, timing: str) -> float:
    """Wall seconds of all launches with nothing but time; data and results stay where they are."""
    config, only = Config.from_json(program.config), RunOptions(timing, check=False, values=False)
    began = perf_counter()
    for image in map(image_of, program.launches):
        run_passes(image.insns, config, image.dram({}, 1), image.bases, 1, only)
    return perf_counter() - began


def onnxruntime(path: Path, sample: Array) -> float:
    """Median wall seconds of onnxruntime on all cores of this process."""
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = len(os.sched_getaffinity(0))
    settings.add_session_config_entry("session.qdqisint8allowed", "1")
    session = ort.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    run = partial(session.run, None, {session.get_inputs()[0].name: sample})
    return median(repeat(run, number=1, repeat=10)[1:])  # the first warms up


@click.command(help="Measure a network of examples/networks.py on VTA. This file's first lines say what is what.")
@click.argument("name", type=click.Choice(list(NETWORKS["NETWORKS"])), metavar="NAME")
@click.option("-t", "--target", type=click.Choice(["vta"]), required=True, help="The machine.")
@options.machine
@click.option("--scheme", type=click.Choice(quantize.SCHEMES), default="pow2", show_default=True)
@click.option("--timing", type=click.Choice(list(MODELS)), default=DEFAULT, show_default=True)
@click.option("--seed", default=0, show_default=True, help="Of weights and samples.")
@click.option("--cache", type=click.Path(file_okay=False, path_type=Path), default=CACHE, show_default=True)
@options.as_json
def main(name: str, target: str, scheme: str, seed: int, cache: Path, as_json: bool, **machine: Any) -> None:
    try:
        figures = measure(*prepare(name, seed, scheme, cache), **machine)
    except TilewrightError as error:
        raise click.ClickException(str(error)) from None
    found = {"model": name, "target": target, "config": figures.pop("config"), "scheme": scheme, **figures}
    if as_json:
        return click.echo(json.dumps(found))
    found["config"] = " ".join(f"{key}={value}" for key, value in found["config"].items())
    for key, value in found.items():
        click.echo(f"{key:18} {value:.3f}" if isinstance(value, float) else f"{key:18} {value}")


if __name__ == "__main__":
    main()
