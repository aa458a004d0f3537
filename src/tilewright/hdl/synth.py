"""Cells that a design needs, counted by Yosys; no placement, so no clock frequency."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import NamedTuple

from tilewright.errors import ConfigError
from tilewright.hdl.convert import TOP, yosys


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


def resources(source: str, family: str, top: str = TOP) -> dict[str, float]:
    """LUT, FF, DSP and BRAM of RTLIL for a family. Raises ConfigError for an unknown one."""
    if family not in FAMILIES:
        raise ConfigError("resources", f"unknown family '{family}'", f"choose one of {', '.join(FAMILIES)}")
    chosen = FAMILIES[family]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "source.il").write_text(source)
        yosys(f"read_rtlil source.il; {chosen.command} -top {top}; tee -o stat.json stat -json", folder)
        text = (folder / "stat.json").read_text()
    cells = json.loads(text[text.index("{") :])["design"]["num_cells_by_type"]
    return {
        kind: sum(weight * count for pattern, weight in patterns for cell, count in cells.items() if _is(cell, pattern))
        for kind, patterns in chosen.cells.items()
    }


def _is(cell: str, pattern: str) -> bool:
    return re.fullmatch(pattern, cell) is not None
