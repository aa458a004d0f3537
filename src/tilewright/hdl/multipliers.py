"""How products are made of the multiplier blocks of an FPGA. Estimates read this file too: it needs no Amaranth."""

from __future__ import annotations

#: One multiplier block for each product, one for two products that share a factor, or logic.
MULTIPLIERS = ("single", "packed", "logic")
#: Widths in bits of the signed factors of a block: Xilinx's DSP48E1; later generations are wider.
WIDE = 25
NARROW = 18


def packs(shared: int, other: int) -> bool:
    """Return whether a block can make the products of a factor of `shared` bits with two factors of `other` bits."""
    return shared + 2 * other + 1 <= WIDE and shared <= NARROW
