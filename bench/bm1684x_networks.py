"""A network of examples/networks.py on the BM1684X at several batches: cycles, how busy its engines are, our own time.

    python bench/bm1684x_networks.py resnet18 [--precision int8|f16|bf16|f32] [--batch 1 --batch 4 ..] [--json]

int8 is the network quantised as bench/networks.py does it (`affine`: onnxruntime's arithmetic). A float type runs the
network as it is; `snr_db` is then its signal to noise against onnxruntime's float32. Each batch runs as many samples as
it takes, with values, cycles and hazards: `cpu_seconds` of that, the comparison with the reference left out. `cycles`
and `serial` are of one sample. `bound` is what the slower engine alone needs. `utilization` is of the type's own peak.
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import click
import numpy as np
import onnx

import tilewright as tw
from tilewright.array import Array
from tilewright.errors import TilewrightError
from tilewright.graph.ir import Graph

BENCH: dict[str, Any] = runpy.run_path(str(Path(__file__).resolve().parent / "networks.py"))
NETWORKS: dict[str, Any] = BENCH["NETWORKS"]


def model(name: str, precision: str, cache: Path) -> tuple[Graph, Array]:
    """The network and its calibration samples."""
    if precision == "int8":
        path, samples = BENCH["prepare"](name, 0, "affine", cache)
        return tw.load(path), np.load(samples)
    made, net = NETWORKS["build"](name, 0)
    with TemporaryDirectory() as folder:
        onnx.save(made, path := Path(folder) / f"{name}.onnx")
        return tw.load(path), net.values["input"]


def measure(graph: Graph, samples: Array, precision: str, batch: int) -> dict[str, Any]:
    """One batch."""
    keys = {"batch": str(batch)} | ({} if precision == "int8" else {"precision": precision})
    program = tw.compile(graph, "bm1684x", overrides=keys)
    some = np.resize(samples, (batch, *samples.shape[1:]))[:, None]
    program.run(some[:1], compare=False)  # loads or compiles loops
    program = tw.compile(graph, "bm1684x", overrides=keys)
    began = process_time()
    result = program.run(some, compare=False)
    spent = process_time() - began
    checked = program.run(some, check=False)
    busy = {engine: sum(trace.busy()[engine] for trace in result.trace.values()) for engine in ("tiu", "dma")}
    return {
        "batch": batch,
        "cycles": result.cycles,
        "serial": result.serial_cycles,
        "bound": -(-max(busy.values()) // batch),
        "utilization": result.macs / (result.cycles * result.macs_per_cycle),  # the network's MACs, not the commands'
        "tiu_busy": busy["tiu"] / (result.cycles * batch),
        "dma_busy": busy["dma"] / (result.cycles * batch),
        "launches": len(program.launches),
        "hazards": len(result.findings),
        "matches_reference": checked.matches_reference,
        "snr_db": min((own.snr_db or np.inf for own in checked.deviations.values()), default=None),
        "cpu_seconds": spent,
    }


@click.command(help="Measure a network on the BM1684X. This file's first lines say what is what.")
@click.argument("name", type=click.Choice(list(NETWORKS["NETWORKS"])), metavar="NAME")
@click.option("--precision", type=click.Choice(["int8", "f16", "bf16", "f32"]), default="int8", show_default=True)
@click.option("--batch", type=click.IntRange(1, 64), multiple=True, default=(1, 4, 16), show_default=True)
@click.option("--cache", type=click.Path(file_okay=False, path_type=Path), default=BENCH["CACHE"], show_default=True)
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each batch.")
def main(name: str, precision: str, batch: tuple[int, ...], cache: Path, as_json: bool) -> None:
    try:
        graph, samples = model(name, precision, cache)
        for size in batch:
            found = {"model": name, "precision": precision, **measure(graph, samples, precision, size)}
            if as_json:
                click.echo(json.dumps(found))
            else:
                click.echo("  ".join(f"{key} {_shown(value)}" for key, value in found.items() if value is not None))
    except TilewrightError as error:
        raise click.ClickException(str(error)) from None


def _shown(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
