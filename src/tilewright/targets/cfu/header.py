"""The machine as a C header: what its firmware and anyone else's is written against."""

from __future__ import annotations

from tilewright.program.header import Group, header

from .array.coupled import Field
from .config import CHOICES, Config
from .image import BASE
from .isa.table import CUSTOM
from .rv32 import devices


def c_header(config: Config) -> str:
    """Sizes, addresses, and funct7 of each custom-0 instruction; funct3 is 0."""
    sizes = {f"CFU_{key.upper()}": value for key, value in config.to_dict().items() if isinstance(value, int)}
    chosen = {
        f"CFU_{key.upper()}_{name.upper()}": int(getattr(config, key) == name)
        for key, names in CHOICES.items()
        for name in names
    }
    places = {"RAM": BASE, "UART": devices.UART, "HALT": devices.HALT, "REGION": devices.REGION}
    groups = [
        Group("sizes", sizes),
        Group("how the array is driven: 1 for what it does", chosen),
        Group("addresses; a store to HALT ends the run with a status, to REGION begins a region", _hex(places)),
        Group("funct7 of custom-0", {f"CFU_{known.name.upper()}": code for code, known in CUSTOM.items()}),
        Group("layer registers of put", {f"CFU_FIELD_{field.name}": int(field) for field in Field}),
    ]
    return header("CFU_MACHINE_H", "The CFU system.", groups)


def _hex(places: dict[str, int]) -> dict[str, str]:
    return {f"CFU_{name}": f"0x{address:08x}" for name, address in places.items()}
