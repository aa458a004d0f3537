"""A quantised VGG on the Zynq engine beside onnxruntime, in one run: processor seconds of both on one thread.

    python bench/zynq_speed.py MODEL.onnx SAMPLES.npz [-c PRESET] [--set KEY=VALUE] [--json]

Values and time are those of a whole run without the comparison; the first run, which loads or compiles loops, does not
count. `matches_reference` is against the integer reference, `differing` counts outputs unlike onnxruntime's.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import click
import numpy as np
import onnxruntime as ort

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import tilewright as tw
from tilewright.cli import options
from tilewright.errors import TilewrightError
from tilewright.graph import reference
from tilewright.model import inputs


def session(path: Path) -> ort.InferenceSession:
    """One thread; int8 activations keep their integer kernels."""
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = 1
    settings.add_session_config_entry("session.qdqisint8allowed", "1")
    return ort.InferenceSession(path, settings, providers=["CPUExecutionProvider"])


def seconds(work: Any, rounds: int) -> float:
    """Median processor seconds."""
    spent = []
    for _ in range(rounds):
        began = process_time()
        work()
        spent.append(process_time() - began)
    return median(spent)


def measure(path: Path, samples: Path, config: str | None, overrides: dict[str, str], rounds: int) -> dict[str, Any]:
    graph = tw.load(path)
    (sample,) = (codes[:1] for codes in inputs.read(str(samples), graph).values.values())
    program = tw.compile(graph, "zynq", config, overrides)
    found = program.run(sample)
    golden = reference.run(graph, sample, program.rounding)
    peer = session(path)
    (name,) = (each.name for each in peer.get_inputs())
    theirs = peer.run(None, {name: sample[0]})
    simulate = seconds(lambda: program.run(sample, compare=False), rounds)
    runtime = seconds(lambda: peer.run(None, {name: sample[0]}), rounds)
    return {
        "model": path.stem,
        "config": config or "repaired",
        "on_host": [layer.name for layer in found.layers if layer.where == "host" and layer.macs],
        "cycles": found.cycles,
        "matches_reference": all(np.array_equal(found.outputs[key], golden[key]) for key in graph.outputs),
        "differing": int(
            sum((found.outputs[k][0] != other).sum() for k, other in zip(graph.outputs, theirs, strict=True))
        ),
        "simulate_cpu_seconds": simulate,
        "onnxruntime_cpu_seconds": runtime,
        "ratio": simulate / runtime,
    }


@click.command(help="The engine's simulation beside onnxruntime. This file's first lines say what is what.")
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.argument("samples", type=click.Path(exists=True, path_type=Path))
@options.machine
@click.option("--rounds", default=3, show_default=True)
@options.as_json
def main(model: Path, samples: Path, config: str | None, overrides: dict[str, str], rounds: int, as_json: bool) -> None:
    try:
        figures = measure(model, samples, config, overrides, rounds)
    except TilewrightError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        return click.echo(json.dumps(figures))
    for key, value in figures.items():
        click.echo(f"{key:26} {value:.3f}" if isinstance(value, float) else f"{key:26} {value}")


if __name__ == "__main__":
    main()
