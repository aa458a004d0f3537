"""The constants of the cycle estimate (estimate.py), and the timing model with these constants."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.targets import given
from tilewright.targets.base import TimingModel


class Timing(NamedTuple):
    """The constants of the cycle estimate, most of them fitted to the vendor compiler's timelines."""

    #: The rates of tensor transfers in bytes per cycle: into local memory, out of local memory, and from DDR to DDR.
    read_rate: float = 54.01671
    write_rate: float = 40.978195
    copy_rate: float = 26.077032
    #: The rates of matrix transfers and broadcasts in bytes per cycle. A transposition multiplies the rate by
    #: `matrix_turn`.
    matrix_read_rate: float = 58.0
    matrix_write_rate: float = 44.0
    matrix_turn: float = 0.75
    #: The rate of exchanges of c and w, linear copies and moves by index, in bytes per cycle. Moves within local memory
    #: have half of this rate.
    turn_rate: float = 64.0
    #: A run of adjacent elements takes at least as long as this number of bytes.
    shortest_run: int = 256
    #: DDR has `full` channels, and consecutive pages of `unit` bytes lie in consecutive channels. A tensor transfer
    #: that uses fewer channels is proportionally slower.
    unit: int = 4096
    full: int = 4
    #: An exchange of n and c without strides rounds the size of a plane up to a multiple of this number of bytes.
    plane: int = 16
    #: A horizontal stride above 1 multiplies the cycles of a pool by this number.
    strided_pool: int = 3
    #: A division makes this number of passes over its operands per Newton step, plus one pass.
    division_step: int = 10
    #: The cycles for 64 bytes in a gather or scatter of rows, and the elements per cycle in a gather from four copies.
    moved_row: int = 2
    copies: int = 4
    #: The numbers of passes of an exponential and of a sigmoid. In compiled programs, each of these operations is a
    #: sequence of commands (`runtime/functions.py`).
    exponential: int = 22
    sigmoid: int = 56
    #: The number of elements per cycle in a pass. A sort of n elements has ceil(log2 n) passes, and an NMS has one.
    #: This is a guess, because no timeline has these operations.
    sort_rate: int = 1


ESTIMATE = Timing()


SOURCE = TimingModel(
    "estimate",
    "the vendor's compiler's estimate: equal to its timelines of 64 networks; no bank conflicts, no silicon measured",
)
MODELS = given.Models.of_numbers(given.Numbers(ESTIMATE, SOURCE), least=lambda _: 1)
DEFAULT = SOURCE.name
