"""Cells that VTA's gateware needs, counted by Yosys; nothing is placed.

    python bench/gateware_cells.py [-c PRESET|FILE.json] [--set KEY=VALUE] [--family xc7|ecp5] [--json]

Each of the MULTIPLIERS in turn, for each family. 16x16 takes 2 to 5 minutes each, and half a GB.
--json: a list of {family, multipliers, LUT, FF, DSP, BRAM, seconds}; BRAM of 36 Kbit (xc7) or 18 Kbit (ecp5).
"""

from __future__ import annotations

import json
from dataclasses import replace
from time import perf_counter
from typing import Any

import click

from tilewright.cli import options
from tilewright.hdl.convert import FAMILIES, resources, to_rtlil
from tilewright.hdl.mac import MULTIPLIERS
from tilewright.targets.vta import TARGET
from tilewright.targets.vta.gateware.top import Vta


@click.command()
@options.machine
@click.option("--family", "families", multiple=True, type=click.Choice(list(FAMILIES)), help="One of these [all].")
@click.option("--multipliers", "kinds", multiple=True, type=click.Choice(MULTIPLIERS), help="One of these [all].")
@options.as_json
def main(
    config: str | None, overrides: dict[str, str], families: tuple[str, ...], kinds: tuple[str, ...], as_json: bool
) -> None:
    machine, rows = TARGET.config(config, overrides), list[dict[str, Any]]()
    for family in families or FAMILIES:
        for multipliers in kinds or MULTIPLIERS:
            began = perf_counter()
            cells = resources(to_rtlil(Vta(replace(machine, multipliers=multipliers))), family)
            rows.append({"family": family, "multipliers": multipliers, **cells, "seconds": perf_counter() - began})
            if not as_json:
                counts = ", ".join(f"{count:,g} {kind}" for kind, count in cells.items())
                click.echo(f"{family:6} {multipliers:8} {counts}")
    if as_json:
        click.echo(json.dumps(rows))


if __name__ == "__main__":
    main()
