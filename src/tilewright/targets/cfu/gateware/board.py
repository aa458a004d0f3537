"""The files of a CFU for a board: Verilog, a synthesis script, a clock constraint, a README."""

from __future__ import annotations

from pathlib import Path
from string import Template

from tilewright.hdl.modules import verilog_files
from tilewright.targets.cfu import bill
from tilewright.targets.cfu.config import Config
from tilewright.targets.cfu.gateware.top import Cfu
from tilewright.targets.cfu.isa.custom import CUSTOM

TOP, RESET = "Cfu", "reset"
TEMPLATES = {"synth.ys": "board.ys", "Cfu.xdc": "board.xdc", "README.md": "board.md"}


def board_files(config: Config) -> dict[str, str]:
    """Return the text of each file of a design for a board, by file name."""
    files = verilog_files(Cfu(config), TOP, RESET)
    counts, excess = bill.bill(config), bill.excess(config)
    keys = ["array", "buffer_rows", "transfer", "readout", "start", "srdhm"] + ["extensions"] * bool(config.extensions)
    names = {
        "digest": config.digest()[:12],
        "machine": ", ".join(f"{key}={config.to_dict()[key]}" for key in keys),
        "sources": " ".join(files),
        "files": "\n".join(f"- `{name}`: {text[3:].splitlines()[0]}" for name, text in files.items()),
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
        "mhz": config.clock_mhz,
        "period": f"{1000 / config.clock_mhz:.3f}",
    }
    for name, source in TEMPLATES.items():
        files[name] = Template(Path(__file__).with_name(source).read_text("ascii")).substitute(names)
    return files
