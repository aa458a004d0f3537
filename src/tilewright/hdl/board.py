"""The files of a design for a board: its Verilog, and files from templates.

A target has a template of its README, and of a wrapper whose port names block designs recognise. All targets share a
synthesis script (board.ys), a clock constraint (board.xdc) and the wrapper's AXI4-Lite port.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Protocol

HERE = Path(__file__).parent
#: A wrapper's ports `s_axi_*` with `$register` as the highest bit of an address, and how the core's `control` has them.
PORTS = """\
    input [$register:0] s_axi_awaddr, input s_axi_awvalid, output s_axi_awready,
    input [31:0] s_axi_wdata, input [3:0] s_axi_wstrb, input s_axi_wvalid, output s_axi_wready,
    output [1:0] s_axi_bresp, output s_axi_bvalid, input s_axi_bready,
    input [$register:0] s_axi_araddr, input s_axi_arvalid, output s_axi_arready,
    output [31:0] s_axi_rdata, output [1:0] s_axi_rresp, output s_axi_rvalid, input s_axi_rready,"""
CONTROL = """\
        .control__aw__payload(s_axi_awaddr), .control__aw__valid(s_axi_awvalid), .control__aw__ready(s_axi_awready),
        .control__w__payload({s_axi_wstrb, s_axi_wdata}), .control__w__valid(s_axi_wvalid),
        .control__w__ready(s_axi_wready), .control__b__payload(s_axi_bresp), .control__b__valid(s_axi_bvalid),
        .control__b__ready(s_axi_bready), .control__ar__payload(s_axi_araddr), .control__ar__valid(s_axi_arvalid),
        .control__ar__ready(s_axi_arready), .control__r__payload(s_axi_rdata), .control__r__valid(s_axi_rvalid),
        .control__r__ready(s_axi_rready)"""


class Clocked(Protocol):
    """A configuration of a machine with a clock."""

    @property
    def clock_mhz(self) -> int | None: ...
    def digest(self) -> str: ...


def board_files(
    config: Clocked,
    verilog: Mapping[str, str],
    core: str,
    top: str,
    folder: Path,
    names: Mapping[str, object],
    mhz: int | None = None,
) -> dict[str, str]:
    """Return the text of each file of a design for a board, by file name.

    `verilog` are the files of the module `core`. `folder` has board.md and, if `top` is another module, board.v, the
    wrapper `top`. Both get `names` filled in, which must have `clock`, the name of the clock port of `top`, and with a
    wrapper `register`. `mhz` is the clock [`config.clock_mhz`].
    """
    clock = mhz or config.clock_mhz
    assert clock is not None
    templates = {"synth.ys": HERE / "board.ys", f"{top}.xdc": HERE / "board.xdc", "README.md": folder / "board.md"}
    if top != core:
        templates = {f"{top}.v": folder / "board.v", **templates}
    sources = [*verilog, *(name for name in templates if name.endswith(".v"))]
    heads = "\n".join(f"- `{name}`: {text[3:].splitlines()[0]}" for name, text in verilog.items())
    values = {"core": core, "top": top, "digest": config.digest()[:12], "sources": " ".join(sources), "files": heads}
    values |= {"mhz": str(clock), "period": f"{1000 / clock:.3f}"}
    values |= {"axi_ports": Template(PORTS).safe_substitute(names), "axi_control": CONTROL}
    filled = {name: Template(path.read_text("ascii")).substitute(values, **names) for name, path in templates.items()}
    return {**verilog, **filled}
