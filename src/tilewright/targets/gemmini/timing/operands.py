"""The word of an operand: a local address (LocalAddr.scala), and the operand's number of rows and columns."""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.timing.state import SHARED

#: The memory of an operand.
ABSENT, IN_SPAD, IN_ACC = range(3)


@part
def is_acc(word: int) -> int:
    """Return 1 if an operand is in the accumulator, else 0."""
    return word >> 31 & 1


@part
def is_garbage(m: Array, word: int) -> bool:
    """Return whether an operand's word has the garbage address, which means "no operand" (LocalAddr.scala)."""
    return (word & m[SHARED.garbage]) == m[SHARED.garbage]


@part
def local(m: Array, word: int) -> tuple[int, int]:
    """Return the kind and the row of an operand's word: ABSENT, IN_SPAD or IN_ACC."""
    if is_garbage(m, word):
        return ABSENT, 0
    if is_acc(word):
        return IN_ACC, word & m[SHARED.acc]
    return IN_SPAD, word & m[SHARED.spad]


@part
def rows_of(word: int) -> int:
    """Return the number of rows of an operand."""
    return word >> 48 & 0xFFFF


@part
def columns_of(word: int) -> int:
    """Return the number of columns of an operand."""
    return word >> 32 & 0xFFFF


@part
def blocks_of(m: Array, word: int) -> int:
    """Return the number of column blocks of an operand. A block has the width of the array."""
    return (columns_of(word) + m[SHARED.dim] - 1) >> m[SHARED.lg_dim]
