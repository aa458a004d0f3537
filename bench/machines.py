"""Four networks on four machines, each quantised for the machine's own arithmetic: the table of docs/machines.md.

    python bench/machines.py [--network NAME ..] [--machine NAME ..] [--json]

vta takes shifts only (pow2), cfu the integers of TFLite Micro (tflm), bm1684x one float32 scale a channel (affine), and
gemmini one a layer (symmetric). One sample of each network runs with values, cycles and hazards; outputs are compared
with the integer reference. `share`: multiply-accumulates on the machine; `busy`: of its multipliers, while it works on
them; `cpu_seconds`: of the run, the comparison included.
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import click
import numpy as np

import tilewright as tw

BENCH: dict[str, Any] = runpy.run_path(str(Path(__file__).resolve().parent / "networks.py"))
NETWORKS = "resnet18", "resnet50", "mobilenetv2", "squeezenet1.0"


class Machine(NamedTuple):
    """A machine of the table: its target, preset (None: the default one), and the scheme of its networks."""

    target: str
    preset: str | None
    scheme: str


MACHINES = {
    "vta": Machine("vta", None, "pow2"),
    "cfu": Machine("cfu", "tuned", "tflm"),
    "bm1684x": Machine("bm1684x", None, "affine"),
    "gemmini": Machine("gemmini", None, "symmetric"),
}


def measure(network: str, machine: Machine) -> dict[str, Any]:
    """One network on one machine."""
    model, samples = BENCH["prepare"](network, 0, machine.scheme, BENCH["CACHE"])
    program = tw.compile(tw.load(model), machine.target, machine.preset)
    began = process_time()
    result = program.run(np.load(samples)[:1][None])
    layers = [layer for layer in result.layers if layer.cycles]
    macs, own = sum(layer.macs for layer in result.layers), sum(layer.macs for layer in layers)
    return {
        "network": network,
        "target": machine.target,
        "preset": machine.preset or "default",
        "scheme": machine.scheme,
        "macs": macs,
        "share": own / macs,
        "cycles": result.cycles,
        "milliseconds": result.cycles / result.clock_mhz / 1000,
        "busy": own / result.cycles / result.macs_per_cycle,
        "dram_bytes": sum(layer.dram_read_bytes + layer.dram_write_bytes for layer in layers),
        "matches": result.matches_reference,
        "hazards": len(result.findings),
        "cpu_seconds": process_time() - began,
    }


@click.command(help=str(__doc__).partition("\n")[0])
@click.option("--network", "networks", multiple=True, type=click.Choice(NETWORKS), default=NETWORKS)
@click.option("--machine", "machines", multiple=True, type=click.Choice(list(MACHINES)), default=list(MACHINES))
@click.option("--json", "as_json", is_flag=True)
def main(networks: tuple[str, ...], machines: tuple[str, ...], as_json: bool) -> None:
    found = []
    for network in networks:
        for name in machines:
            one = measure(network, MACHINES[name])
            found.append(one)
            if not as_json:
                click.echo(
                    f"{network:14} {name:8} {one['cycles']:>14,} cycles {one['milliseconds']:9.2f} ms,"
                    f" {one['share']:4.0%} of the MACs, multipliers {one['busy']:5.1%} busy,"
                    f" {one['dram_bytes'] / 1e6:7.1f} MB, equal {one['matches']}, {one['hazards']} hazards,"
                    f" {one['cpu_seconds']:.1f} CPU s"
                )
    if as_json:
        click.echo(json.dumps(found))


if __name__ == "__main__":
    main()
