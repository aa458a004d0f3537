"""The files of a CFU for a board: Verilog, a synthesis script, a clock constraint, a README."""

from __future__ import annotations

from pathlib import Path

from tilewright.hdl import board
from tilewright.hdl.modules import verilog_files
from tilewright.targets.cfu import bill
from tilewright.targets.cfu.config import Config
from tilewright.targets.cfu.gateware.top import Cfu
from tilewright.targets.cfu.isa.custom import CUSTOM

TOP, RESET = "Cfu", "reset"


def board_files(config: Config) -> dict[str, str]:
    """Return the text of each file of a design for a board, by file name."""
    counts, excess = bill.bill(config), bill.excess(config)
    keys = ["array", "buffer_rows", "transfer", "readout", "start", "srdhm"] + ["extensions"] * bool(config.extensions)
    names = {
        "clock": "clk",
        "machine": ", ".join(f"{key}={config.to_dict()[key]}" for key in keys),
        "instructions": "\n".join(
            f"| {code} | `{row.name}` | {row.operands} | {row.about} |"
            for code, row in CUSTOM.items()
            if not row.extensions or set(row.extensions) & set(config.extension_names)
        ),
        "counts": ", ".join(
            f"{counts[key]:,.10g} {text}"
            for key, text in (("cfu_dsp", "DSP48E1"), ("cfu_bram36", "RAMB36E1"), ("cfu_lut", "LUT"), ("cfu_ff", "FF"))
        ),
        "fits": f"**This design does not fit its board.** It {excess}." if excess else f"It fits the {bill.BOARD}.",
    }
    return board.board_files(config, verilog_files(Cfu(config), TOP, RESET), TOP, TOP, Path(__file__).parent, names)
