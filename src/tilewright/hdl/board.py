"""The files of a design for a board: Verilog, and files made from templates.

Each target has a template for the README, and a template for a wrapper whose port names block design tools recognise.
All targets share a synthesis script (board.ys), a clock constraint (board.xdc) and the wrapper's AXI4-Lite port.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Protocol

HERE = Path(__file__).parent
#: The ports `s_axi_*` of a wrapper, which CONTROL connects to the core. `$register` is the highest address bit.
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
    """A machine configuration with a clock frequency."""

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

    `verilog` has the files of the module `core`. `folder` has the template board.md and, if `top` is another module
    than `core`, also board.v, the template of the wrapper `top`. `names` has values for placeholders of both templates.
    It must have `clock`, the name of the clock port of `top`, and for a wrapper also `register`. `mhz` is the clock
    frequency [`config.clock_mhz`].
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
