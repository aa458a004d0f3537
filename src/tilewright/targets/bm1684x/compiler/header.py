"""The machine for C: sizes, addresses, codes of types and engines."""

from __future__ import annotations

from tilewright.program.header import Group, header
from tilewright.targets.bm1684x import config as machine
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.formats import DMA_TYPES, TIU_TYPES
from tilewright.targets.bm1684x.values.dtypes import DTYPES, Rounding


def text(config: Config) -> str:
    """The header of one configuration."""
    bases = {"LOCAL": machine.LOCAL_BASE, "STATIC": machine.STATIC_BASE, "L2": machine.L2_BASE}
    bases["DDR"] = machine.DDR_BASE
    groups = [
        Group("sizes", {_macro(key): value for key, value in config.to_dict().items() if isinstance(value, int)}),
        Group("bus addresses", {_macro(f"{name}_base"): f"0x{base:x}ULL" for name, base in bases.items()}),
        Group("element types, as the device API codes them", {_macro(f"dt_{d}"): d.code for d in DTYPES.values()}),
        Group("rounding modes", {_macro(f"round_{mode.name}"): int(mode) for mode in Rounding}),
        Group("commands of the compute engine", {_macro(f"tiu_{name}"): code for code, name in TIU_TYPES.items()}),
        Group("commands of the DMA engine", {_macro(name): code for code, name in DMA_TYPES.items()}),
    ]
    return header("BM1684X_H_", "The BM1684X.", groups)


def _macro(name: str) -> str:
    return "BM1684X_" + name.upper().replace("&", "_")
