"""Peak memory of compiling and running large networks on each machine, beside what the documentation says.

    python bench/memory.py [MODEL.onnx|MODEL.tflite ...] [-t vta ...] [--json]

Without a model: VGG16 and ResNet-50 of examples/networks.py, quantised with pow2 (bench/networks.py keeps them; the
first time takes minutes and 4 GB). MiniLM and other files are given by name. Each row is the largest resident memory of
one process (ru_maxrss) in GB of 10^9 bytes, its wall seconds, and its processor seconds in the system, which page
faults take: `compile` reads the model and compiles it with an empty cache; `cached` does so with the program in the
cache, then runs one sample of random codes and the reference. A claim
that is exceeded is marked, and makes the exit status 1.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from tilewright import targets
from tilewright.cli import options

BENCH = Path(__file__).with_name("networks.py")
NETWORKS = ("vgg16", "resnet50")
#: What docs/TARGET.md says, in GB, by network and target.
CLAIMS: dict[tuple[str, str], dict[str, float]] = {
    ("vgg16", "vta"): {"compile": 1.3, "cached": 0.7},
    ("resnet50", "vta"): {"compile": 0.6, "cached": 0.3},
    ("minilm", "vta"): {"compile": 0.3, "cached": 0.3},
}
#: Compiles a model, and with `cached` runs it, in a process of its own. Prints one line of JSON.
CHILD = """
import json, resource, sys, time
import numpy as np
import tilewright as tw

path, target, what, cache = sys.argv[1:]
began = time.perf_counter()
graph = tw.load(path)
program = tw.compile(graph, target, cache=cache)
if what == "cached":
    random = np.random.default_rng(0)
    codes = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        kind = np.dtype(tensor.dtype)
        low, high = (np.iinfo(kind).min, np.iinfo(kind).max) if kind.itemsize == 1 else (0, 100)
        codes[name] = random.integers(low, high + 1, (1, *tensor.shape)).astype(kind)
    program.run(codes)
used = resource.getrusage(resource.RUSAGE_SELF)
peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9
print(json.dumps({"peak": peak, "seconds": time.perf_counter() - began, "system": used.ru_stime}))
"""


def measure(model: Path, target: str) -> list[dict[str, Any]]:
    """Return the rows of one model on one target: what is measured, and an error in the place of figures."""
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as cache:
        for what in ("compile", "cached"):
            command = [sys.executable, "-c", CHILD, str(model), target, what, cache]
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
            row = {"model": model.stem.split("-0-")[0], "target": target, "what": what}
            if done.returncode:
                return [*rows, {**row, "error": (done.stderr.strip().splitlines() or ["it ended"])[-1]}]
            claim = CLAIMS.get((row["model"], target), {}).get(what)
            rows.append({**row, **json.loads(done.stdout.splitlines()[-1]), "claim": claim})
    return rows


@click.command(help=__doc__)
@click.argument("models", nargs=-1, metavar="MODEL...", type=click.Path(exists=True, path_type=Path))
@click.option("-t", "--target", "chosen", multiple=True, metavar="TARGET", help="A machine [all that are built in].")
@options.as_json
def main(models: tuple[Path, ...], chosen: tuple[str, ...], as_json: bool) -> None:
    if not models:
        bench = runpy.run_path(str(BENCH))
        models = tuple(bench["prepare"](name, 0, "pow2", bench["CACHE"])[0] for name in NETWORKS)
    exceeded = False
    for model in models:
        for target in chosen or targets.names():
            for row in measure(model, target):
                exceeded |= bool(row.get("claim")) and round(row["peak"], 1) > row["claim"]
                if as_json:
                    click.echo(json.dumps(row))
                    continue
                head = f"{row['model']:12} {row['target']:8} {row['what']:8}"
                if "error" in row:
                    click.echo(f"{head} {row['error']}")
                    continue
                said = (
                    f"  claimed {row['claim']:.1f}" + " EXCEEDED" * (round(row["peak"], 1) > row["claim"])
                    if row["claim"]
                    else ""
                )
                click.echo(
                    f"{head} {row['peak']:5.2f} GB {row['seconds']:6.1f} s, {row['system']:5.1f} s in system{said}"
                )
    sys.exit(int(exceeded))


if __name__ == "__main__":
    main()
