"""The operations of the machine, as the dict OPERATIONS, and the instructions that encode them."""

from tilewright.targets.bm1684x.isa.operation import DMA, HAU, OPERATIONS, OPTIONAL, TIU, Operation, Values
from tilewright.targets.bm1684x.isa.operations import (
    conversions,
    convolutions,
    elementwise,
    gathers,
    products,
    regions,
    transfers,
)

__all__ = ["DMA", "HAU", "INSTRUCTIONS", "OPERATIONS", "OPTIONAL", "TIU", "Operation", "Values"]

#: All instructions, in the order in which the decoder and the encoder try them.
INSTRUCTIONS = tuple(
    instruction
    for family in (elementwise, conversions, convolutions, products, regions, transfers, gathers)
    for instruction in family.INSTRUCTIONS
)
