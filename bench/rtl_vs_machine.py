"""Compiled gateware beside the simulator, on the same launches: bits, cycles, and how fast each is.

    python bench/rtl_vs_machine.py [FILE.twp ...] [--target vta|cfu|zynq] [--rounds N] [--full] [--json]

rtl_vta.py, rtl_cfu.py and rtl_zynq.py say what their cases are, and what is measured. --target: one of them [all, or
vta with files]. --full: also the cases that take long. --json: a list, one object per target.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import rtl_cfu, rtl_vta, rtl_zynq
from tilewright.hdl.model import Compiled
from tilewright.targets.cfu.gateware import cosim as cfu
from tilewright.targets.vta.gateware import cosim as vta
from tilewright.targets.zynq.gateware import cosim as zynq

#: The targets with gateware.
TARGETS = ("vta", "cfu", "zynq")


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE.twp ...]")
@click.option("--target", "targets", multiple=True, type=click.Choice(TARGETS))
@click.option("--rounds", default=3, show_default=True)
@click.option(
    "--full", is_flag=True, help="More networks, machines and random programs: the long cases of each target."
)
@click.option("--json", "as_json", is_flag=True)
def main(files: tuple[str, ...], targets: tuple[str, ...], rounds: int, full: bool, as_json: bool) -> None:
    chosen = targets or (("vta",) if files else TARGETS)
    machines: dict[str, tuple[Any, Sequence[Any]]] = {
        "vta": (vta.compiled, rtl_vta.machines(full, bool(files))),
        "cfu": (partial(Compiled.of_machine, cfu.component), rtl_cfu.machines(full)),
        "zynq": (partial(Compiled.of_machine, zynq.component), rtl_zynq.machines(full)),
    }
    compile_all((make, config) for target in chosen for make, configs in [machines[target]] for config in configs)
    rows = []
    if "vta" in chosen:
        rows.append(rtl_vta.measure(files, rounds, full))
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


def compile_all(machines: Iterable[tuple[Any, Any]]) -> None:
    """Compile the gateware of `machines` (function, configuration) to the cache, as many at once as there are cores."""
    with ProcessPoolExecutor() as pool:
        for done in [pool.submit(_compile, *machine) for machine in machines]:
            done.result()


def _compile(make: Any, config: Any) -> None:
    make(config, "verilator")


if __name__ == "__main__":
    main()
