"""The files of a design for a board: its Verilog; from board.*, a wrapper, a clock constraint and a README."""

from __future__ import annotations

from pathlib import Path
from string import Template

from tilewright.hdl.axi import LITE_ADDRESS_BITS
from tilewright.hdl.build import to_rtlil, to_verilog
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.gateware import bill
from tilewright.targets.vta.gateware.header import MAP
from tilewright.targets.vta.gateware.top import VtaSystem
from tilewright.targets.vta.timing.model import IN_FLIGHT, LONGEST

CORE, TOP = "vta", "vta_axi"


def files(config: Config) -> dict[str, str]:
    """Texts by file name. Raises ConfigError for a machine that there is no gateware of."""
    verilog = to_verilog(to_rtlil(VtaSystem(config), CORE))
    names = {"top": TOP, "core": CORE, "data": config.bus_bits - 1, "bytes": config.bus_bits // 8 - 1}
    names |= {"bits": config.bus_bits, "strobes": config.bus_bits // 8, "address": LITE_ADDRESS_BITS - 1}
    names |= {"beat": config.bus_bits, "last": config.bus_bits + config.bus_bits // 8}
    names |= {"mhz": config.clock_mhz, "period": f"{1000 / config.clock_mhz:.3f}", "name": config.bitstream}
    names |= {"digest": config.digest()[:12], "longest": LONGEST, "flight": IN_FLIGHT}
    names["registers"] = "\n".join(f"| {r.offset:#04x} | {r.name} | {r.access} | {r.meaning} |" for r in MAP)
    names["multipliers"] = _multipliers(config)
    made = {f"{TOP}.v": "board.v", f"{TOP}.xdc": "board.xdc", "README.md": "board.md"}
    templates = {name: Template(Path(__file__).with_name(source).read_text("ascii")) for name, source in made.items()}
    return {f"{CORE}.v": verilog, **{name: template.substitute(names) for name, template in templates.items()}}


def _multipliers(config: Config) -> str:
    """How many multiplier blocks the design takes, and whether the board has them."""
    chip, parts = bill.CHIPS.get(config.TARGET), bill.bill(config)
    counted = ", ".join(f"{count} {part}" for part, count in parts.items() if count) or "none"
    text = f"Multiplier blocks (DSP48): {sum(parts.values())} ({counted})"
    if excess := bill.excess(config):
        return f"**This design does not fit its board.** It {excess}."
    return f"{text}, of the {chip.dsp} of the {chip.name}." if chip else f"{text}."
