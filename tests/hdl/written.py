"""A component compiled from the Verilog that is written of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilewright.hdl.build import TOP, yosys
from tilewright.hdl.model import Compiled
from tilewright.hdl.modules import verilog_files


def from_verilog(component: Any, folder: Path) -> Compiled:
    """Write a component's Verilog to a folder, read it back with Yosys, and compile that."""
    files = verilog_files(component, TOP)
    for name, text in files.items():
        (folder / name).write_text(text)
    yosys(f"read_verilog {' '.join(files)}; hierarchy -check -top {TOP}; proc; write_rtlil result.il", folder)
    return Compiled(component, source=(folder / "result.il").read_text())
