"""The word of an operand: a local address (LocalAddr.scala), the number of columns, and the number of rows."""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.timing.state import SHARED

#: The memory that contains an operand, or ABSENT for an absent operand.
ABSENT, IN_SPAD, IN_ACC = range(3)


@part
def is_acc(word: int) -> int:
    return word >> 31 & 1


@part
def is_garbage(m: Array, word: int) -> bool:
    """Return whether an operand is absent: its address is the garbage address (LocalAddr.scala)."""
    return (word & m[SHARED.garbage]) == m[SHARED.garbage]


@part
def local(m: Array, word: int) -> tuple[int, int]:
    """Return the memory of an operand (ABSENT, IN_SPAD or IN_ACC), and the operand's first row."""
    if is_garbage(m, word):
        return ABSENT, 0
    if is_acc(word):
        return IN_ACC, word & m[SHARED.acc]
    return IN_SPAD, word & m[SHARED.spad]


@part
def rows_of(word: int) -> int:
    return word >> 48 & 0xFFFF


@part
def columns_of(word: int) -> int:
    return word >> 32 & 0xFFFF


@part
def blocks_of(m: Array, word: int) -> int:
    """Return the number of blocks of an operand. A block has the width of the array."""
    return (columns_of(word) + m[SHARED.dim] - 1) >> m[SHARED.lg_dim]
