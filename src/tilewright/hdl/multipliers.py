"""The use of FPGA multiplier blocks for products. This file needs no Amaranth, because estimates import it too."""

from __future__ import annotations

#: single: one multiplier block per product. packed: one block for two products with a common factor. logic: no block.
MULTIPLIERS = ("single", "packed", "logic")
#: Widths in bits of the signed factors of a block: Xilinx's DSP48E1; later generations are wider.
WIDE = 25
NARROW = 18


def packs(shared: int, other: int) -> bool:
    """Return whether one block can multiply a factor of `shared` bits by two factors of `other` bits."""
    return shared + 2 * other + 1 <= WIDE and shared <= NARROW
