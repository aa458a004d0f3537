"""All operations of the machine by name, as the dict OPERATIONS."""

from tilewright.targets.bm1684x.isa.operations import elementwise, gather, move, neural, regions
from tilewright.targets.bm1684x.isa.operations.base import DMA, HAU, OPERATIONS, OPTIONAL, TIU, Operation, Values

__all__ = [
    "DMA",
    "HAU",
    "OPERATIONS",
    "OPTIONAL",
    "TIU",
    "Operation",
    "Values",
    "elementwise",
    "gather",
    "move",
    "neural",
    "regions",
]
