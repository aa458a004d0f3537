"""What a machine's CFU asks of an FPGA: block RAMs of 36 Kbit and multipliers (DSP48E1). Counted, not synthesised.

The budget is the document's board, an Artix-7 100T: 135 block RAMs, 240 multipliers. A block RAM counts as 4 KiB: its
parity bits stay unused. LiteX's boot ROM and SRAM are left out.
"""

from __future__ import annotations

from .config import IMAGE_BYTES, Config

BUDGET = {"bram36": 135, "dsp": 240}
BLOCK = 4096
PRODUCT = 4  # multipliers in a product of 32 x 32 bits

#: Multipliers of each extension: four requantisation lanes, shared with additions; four products of 8 x 8 bits.
_MULTIPLIERS = {"im2col": 4 * PRODUCT, "dot": 4}


def bill(config: Config) -> dict[str, int]:
    """Block RAMs; multipliers beside the array's; and how many products of the array are left to logic cells."""
    rows = config.buffer_rows * config.array
    memories = [rows, rows, 4 * rows, config.icache_bytes, config.dcache_bytes, config.l2_bytes]
    names = config.extension_names
    if names:
        memories += [IMAGE_BYTES, BLOCK]  # tables of channels: 256 x 70 bits
    if "add" in names and "im2col" not in names:
        names = (*names, "im2col")  # the same lanes
    beside = 2 * PRODUCT + sum(_MULTIPLIERS.get(name, 0) for name in set(names))  # CPU, SRDHM
    return {
        "bram36": sum(-(-size // BLOCK) for size in memories),
        "dsp_beside_array": beside,
        "products_in_logic": max(0, config.array**2 - (BUDGET["dsp"] - beside)),
    }
