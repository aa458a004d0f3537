"""Cells that VTA's gateware needs, counted by Yosys; nothing is placed.

    python bench/gateware_cells.py [-c PRESET|FILE.json] [--set KEY=VALUE] [--family xc7|ecp5] [--json]

Each of the MULTIPLIERS in turn, for each family. 16x16 takes 2 to 5 minutes each, and half a GB.
--json: a list of {family, multipliers, LUT, FF, DSP, BRAM, seconds}; BRAM of 36 Kbit (xc7) or 18 Kbit (ecp5).
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from time import perf_counter
from typing import Any, NamedTuple

import click

from tilewright.cli import options
from tilewright.errors import ConfigError
from tilewright.hdl.build import TOP, to_rtlil, yosys_result
from tilewright.hdl.multipliers import MULTIPLIERS
from tilewright.targets.vta import TARGET
from tilewright.targets.vta.gateware.top import Vta


class Family(NamedTuple):
    """How Yosys is told of an FPGA family, and which of its cells count as what, each with its weight."""

    command: str
    cells: dict[str, tuple[tuple[str, float], ...]]


FAMILIES = {
    "xc7": Family(
        "synth_xilinx -flatten",
        {
            "LUT": (("LUT[1-6]", 1), ("RAM32M|RAM64M", 4), ("RAM(32|64)X1D", 2)),
            "FF": (("FD[RSCP]E(_1)?", 1),),
            "DSP": (("DSP48E1", 1),),
            "BRAM": (("RAMB36E1", 1), ("RAMB18E1", 0.5)),  # of 36 Kbit
        },
    ),
    "ecp5": Family(
        "synth_ecp5",
        {
            "LUT": (("LUT4", 1), ("CCU2C", 2), ("TRELLIS_DPR16X4", 4)),
            "FF": (("TRELLIS_FF", 1),),
            "DSP": (("MULT18X18D", 1),),
            "BRAM": (("DP16KD", 1),),  # of 18 Kbit
        },
    ),
}


def resources(source: str, family: str) -> dict[str, float]:
    """LUT, FF, DSP and BRAM of RTLIL for a family. Raises ConfigError for an unknown one."""
    if family not in FAMILIES:
        raise ConfigError("resources", f"unknown family '{family}'", f"choose one of {', '.join(FAMILIES)}")
    chosen = FAMILIES[family]
    text = yosys_result(source, f"{chosen.command} -top {TOP}; tee -o result stat -json")
    cells = json.loads(text[text.index("{") :])["design"]["num_cells_by_type"]
    return {
        kind: sum(
            weight * n for pattern, weight in patterns for cell, n in cells.items() if re.fullmatch(pattern, cell)
        )
        for kind, patterns in chosen.cells.items()
    }


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
